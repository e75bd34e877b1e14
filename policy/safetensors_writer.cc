#include <nlohmann/json.hpp>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "policy/safetensors.h"
#include "policy/safetensors_json.h"
#include "policy/status_macros.h"
#include "policy/utf8.h"

namespace lockstep {

absl::StatusOr<std::string> WriteSafetensorsHeader(
    absl::Span<const TensorSpec> tensors, const std::map<std::string, std::string>& metadata) {
  // Names and metadata are checked before they reach dump(), which throws on bad UTF-8.
  const auto quoted = [](const std::string& text) { return nlohmann::json(text).dump(); };
  std::string json = "{";
  if (!metadata.empty()) {
    absl::StrAppend(&json, quoted(std::string(kSafetensorsMetadataKey)), ":{");
    const char* separator = "";
    for (const auto& [key, value] : metadata) {
      if (!IsValidUtf8(key) || !IsValidUtf8(value)) {
        return absl::InvalidArgumentError(
            absl::StrCat("metadata '", ShownText(key), "' is not UTF-8 text"));
      }
      absl::StrAppend(&json, separator, quoted(key), ":", quoted(value));
      separator = ",";
    }
    json += '}';
  }
  std::set<absl::string_view> names;
  uint64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.name == kSafetensorsMetadataKey || !IsValidUtf8(tensor.name) ||
        !names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor name '", ShownText(tensor.name),
          "' is reserved, not UTF-8 or given twice; a safetensors file cannot hold it"));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t bytes, TensorBytes(tensor));
    uint64_t end = 0;
    if (__builtin_add_overflow(offset, bytes, &end)) {
      return absl::InvalidArgumentError("the tensors are larger than 64 bits can count together");
    }
    absl::StrAppend(&json, json.size() > 1 ? "," : "", quoted(tensor.name), ":{\"dtype\":\"",
                    DtypeName(tensor.dtype), "\",\"shape\":[", absl::StrJoin(tensor.shape, ","),
                    "],\"data_offsets\":[", offset, ",", end, "]}");
    offset = end;
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  if (json.size() > kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the header would have ", json.size(),
                                                   " bytes; the format's limit is ",
                                                   kMaxSafetensorsHeaderBytes));
  }
  std::string out;
  for (uint64_t i = 0; i < kSafetensorsLengthBytes; ++i) {
    out.push_back(static_cast<char>(json.size() >> (8 * i)));
  }
  return out + json;
}

}  // namespace lockstep
