#include "policy/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "policy/refusal_list.h"
#include "policy/safetensors_json.h"

namespace lockstep {
namespace {

uint64_t ReadLength(absl::string_view prefix) {
  uint64_t length = 0;
  for (uint64_t i = 0; i < kSafetensorsLengthBytes; ++i) {
    length |= static_cast<uint64_t>(static_cast<uint8_t>(prefix[i])) << (8 * i);
  }
  return length;
}

void Add(RefusalList& found, absl::string_view tensor, absl::string_view why) {
  found.Add(
      RefusalCode::kBadCheckpoint, ShownText(tensor),
      tensor.empty() ? std::string(why) : absl::StrCat("tensor '", ShownText(tensor), "' ", why));
}

// Each tensor by itself: limits, and a byte range that is in the file and fits the shape.
void CheckEach(const std::vector<StatedSafetensor>& tensors, uint64_t data_bytes,
               RefusalList& found) {
  Manifest manifest;
  for (const StatedSafetensor& tensor : tensors) manifest.tensors.push_back(tensor.spec);
  if (!tensors.empty()) {
    for (const Refusal& refusal : CheckManifest(manifest)) {
      found.Add(RefusalCode::kBadCheckpoint, refusal.key, refusal.message);
    }
  }
  for (const StatedSafetensor& tensor : tensors) {
    const auto bytes = TensorBytes(tensor.spec);
    if (!bytes.ok()) continue;  // CheckManifest has said so
    const uint64_t begin = tensor.offsets[0];
    const uint64_t end = tensor.offsets[1];
    if (begin > end) {
      Add(found, tensor.spec.name, absl::StrCat("ends at ", end, ", before it begins at ", begin));
    } else if (end > data_bytes) {
      Add(found, tensor.spec.name,
          absl::StrCat("needs data bytes [", begin, ", ", end, "), but the file has only ",
                       data_bytes, ": it is truncated, or the offsets are wrong"));
    } else if (end - begin != *bytes) {
      Add(found, tensor.spec.name,
          absl::StrCat("expected ", *bytes, " bytes for ", DtypeName(tensor.spec.dtype), " [",
                       absl::StrJoin(tensor.spec.shape, ","), "], got ", end - begin,
                       " from data_offsets [", begin, ", ", end, "]"));
    }
  }
}

// The tensors together cover the data section once.
void CheckCover(const std::vector<StatedSafetensor>& tensors, uint64_t data_bytes,
                RefusalList& found) {
  std::vector<const StatedSafetensor*> by_offset;
  for (const StatedSafetensor& tensor : tensors) by_offset.push_back(&tensor);
  std::sort(by_offset.begin(), by_offset.end(), [](const auto* a, const auto* b) {
    return std::tie(a->offsets, a->spec.name) < std::tie(b->offsets, b->spec.name);
  });
  uint64_t covered = 0;
  const StatedSafetensor* before = nullptr;
  for (const StatedSafetensor* tensor : by_offset) {
    const uint64_t begin = tensor->offsets[0];
    if (begin < covered) {
      Add(found, tensor->spec.name,
          absl::StrCat("begins at ", begin, " and overlaps tensor '", ShownText(before->spec.name),
                       "', which ends at ", covered));
    } else if (begin > covered) {
      Add(found, tensor->spec.name,
          absl::StrCat("begins at ", begin, ", which leaves a hole of ", begin - covered,
                       " bytes before it; expected ", covered));
    }
    if (tensor->offsets[1] >= covered) {
      covered = tensor->offsets[1];
      before = tensor;
    }
  }
  if (covered != data_bytes) {
    Add(found, "",
        absl::StrCat("the tensors end at data byte ", covered, ", but the file has ", data_bytes,
                     ": bytes that belong to no tensor"));
  }
}

}  // namespace

absl::StatusOr<uint64_t> SafetensorsHeaderEnd(uint64_t file_bytes, absl::string_view prefix) {
  if (file_bytes < kSafetensorsLengthBytes || prefix.size() < kSafetensorsLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a safetensors file begins with an 8-byte header length; this one has only ",
                     std::min<uint64_t>(file_bytes, prefix.size()),
                     " bytes: it is truncated or another format"));
  }
  const uint64_t length = ReadLength(prefix);
  if (length > kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the header claims ", length, " bytes; the limit is ", kMaxSafetensorsHeaderBytes,
        ": the file is no safetensors file or is damaged"));
  }
  if (length > file_bytes - kSafetensorsLengthBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the header claims ", length, " bytes, but only ", file_bytes - kSafetensorsLengthBytes,
        " follow its length: the file is truncated"));
  }
  return kSafetensorsLengthBytes + length;
}

SafetensorsParse ParseSafetensorsHeader(uint64_t file_bytes, absl::string_view prefix) {
  SafetensorsParse parse;
  RefusalList found;
  const auto finish = [&]() {
    parse.refusals = std::move(found).Take();
    return std::move(parse);
  };
  const auto end = SafetensorsHeaderEnd(file_bytes, prefix);
  if (!end.ok()) {
    Add(found, "", end.status().message());
    return finish();
  }
  if (prefix.size() < *end) {
    Add(found, "",
        absl::StrCat("the header ends at byte ", *end, ", but only ", prefix.size(), " were read"));
    return finish();
  }
  const absl::string_view json =
      prefix.substr(kSafetensorsLengthBytes, *end - kSafetensorsLengthBytes);
  if (json.empty() || json[0] != '{') {
    Add(found, "", "the header does not begin with '{': the file is no safetensors file");
    return finish();
  }
  // The JSON library takes a NUL for the end of its input and would skip what follows.
  if (const size_t nul = json.find('\0'); nul != json.npos) {
    Add(found, "", absl::StrCat("the header is invalid JSON: byte ", nul, " is NUL"));
    return finish();
  }
  SafetensorsJsonHandler handler;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &handler)) {
    Add(found, handler.failed_tensor(), handler.failure());
    return finish();
  }
  std::vector<StatedSafetensor>& stated = handler.tensors();
  std::sort(stated.begin(), stated.end(), [](const StatedSafetensor& a, const StatedSafetensor& b) {
    return a.spec.name < b.spec.name;
  });
  const uint64_t data_bytes = file_bytes - *end;
  CheckEach(stated, data_bytes, found);
  if (found.empty()) CheckCover(stated, data_bytes, found);
  if (!found.empty()) return finish();
  parse.header.data_start = *end;
  parse.header.metadata = std::move(handler.metadata());
  for (StatedSafetensor& tensor : stated) {
    parse.header.tensors.push_back(
        {std::move(tensor.spec), *end + tensor.offsets[0], *end + tensor.offsets[1]});
  }
  return parse;
}

}  // namespace lockstep
