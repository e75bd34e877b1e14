#include "policy/json_text.h"

#include <cmath>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr size_t kMaxQuotedBytes = 120;

// The deepest nesting of brackets outside strings; what follows malformed text is the
// parser's business.
int NestingDepth(absl::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

absl::StatusOr<json> ParseJson(absl::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected at most ", limits.max_bytes, " bytes of JSON, got ", text.size()));
  }
  // The parser takes a NUL for the end of its input; a NUL is in no JSON text.
  if (const size_t nul = text.find('\0'); nul != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("not well-formed JSON: a NUL at byte ", nul));
  }
  if (const int depth = NestingDepth(text); depth > limits.max_depth) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected JSON nested at most ", limits.max_depth, " deep, got ", depth));
  }
  std::vector<std::set<std::string>> open;
  std::string repeated;
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key &&
        !open.back().insert(parsed.get<std::string>()).second) {
      repeated = parsed.get<std::string>();
    }
    return true;
  };
  json root = json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (root.is_discarded()) {
    return absl::InvalidArgumentError("not well-formed JSON in UTF-8");
  }
  if (!repeated.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("an object has the key '", repeated.substr(0, kMaxQuotedBytes),
                     "' twice, so readers would disagree about its value"));
  }
  return root;
}

const json* FindNonNull(const json& object, absl::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(std::string(key));
  if (it == object.end() || it->is_null()) return nullptr;
  return &*it;
}

std::string QuoteJson(const json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  if (text.size() > kMaxQuotedBytes) text = absl::StrCat(text.substr(0, kMaxQuotedBytes), "...");
  return text;
}

std::optional<uint64_t> AsUnsigned(const json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    constexpr double kExactIntegers = 9007199254740992.0;  // 2^53
    if (number >= 0 && number <= kExactIntegers && number == std::floor(number)) {
      return static_cast<uint64_t>(number);
    }
  }
  return std::nullopt;
}

std::optional<float> AsFloat(const json& value) {
  if (!value.is_number()) return std::nullopt;
  const float number = static_cast<float>(value.get<double>());
  if (!std::isfinite(number)) return std::nullopt;
  return number;
}

}  // namespace lockstep
