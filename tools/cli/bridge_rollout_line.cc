#include "tools/cli/bridge_rollout_line.h"

#include <cstring>
#include <streambuf>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "policy/json_text.h"
#include "policy/status_macros.h"

namespace lockstep::tools {
namespace {

using nlohmann::json;

constexpr absl::string_view kSamplerLogprobs = "sampler_logprobs";
constexpr absl::string_view kTrainerLogprobs = "trainer_logprobs";

absl::Status Wrong(absl::string_view key, absl::string_view expected, const json& found) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", key, "': expected ", expected, ", got ", QuoteJson(found)));
}

absl::StatusOr<json> ParseLine(absl::string_view line) {
  JsonLimits limits;
  limits.max_bytes = kMaxRolloutLineBytes;
  LOCKSTEP_ASSIGN_OR_RETURN(json root, ParseJson(line, limits));
  if (!root.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a JSON object a line, got ", QuoteJson(root)));
  }
  return root;
}

std::string FloatText(const json& number) {
  const float value = static_cast<float>(number.get<double>());
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return absl::StrFormat("%08x", bits);
}

enum class Numbers { kAsWritten, kAllFloats };

// ParseJson has bounded the depth.
json Canonical(const json& value, Numbers numbers) {
  if (value.is_number_float() || (value.is_number() && numbers == Numbers::kAllFloats)) {
    return FloatText(value);
  }
  if (value.is_array()) {
    json out = json::array();
    for (const json& element : value) out.push_back(Canonical(element, numbers));
    return out;
  }
  if (value.is_object()) {
    json out = json::object();
    for (const auto& [key, member] : value.items()) out[key] = Canonical(member, numbers);
    return out;
  }
  return value;
}

std::string CanonicalText(const json& line) {
  json out = json::object();
  for (const auto& [key, member] : line.items()) {
    const bool floats = key == kSamplerLogprobs || key == kTrainerLogprobs;
    out[key] = Canonical(member, floats ? Numbers::kAllFloats : Numbers::kAsWritten);
  }
  return out.dump();
}

absl::StatusOr<std::optional<std::vector<float>>> ReadLogprobs(const json& line,
                                                               absl::string_view key) {
  const json* list = FindNonNull(line, key);
  if (list == nullptr) return std::optional<std::vector<float>>();
  if (!list->is_array()) return Wrong(key, "a list of numbers", *list);
  std::vector<float> values;
  values.reserve(list->size());
  for (size_t i = 0; i < list->size(); ++i) {
    const std::optional<float> value = AsFloat((*list)[i]);
    if (!value.has_value()) {
      return Wrong(absl::StrCat(key, "[", i, "]"), "a number that float32 can hold", (*list)[i]);
    }
    values.push_back(*value);
  }
  return std::optional<std::vector<float>>(std::move(values));
}

absl::StatusOr<std::vector<int64_t>> ReadTokens(const json& line) {
  const json* list = FindNonNull(line, "tokens");
  if (list == nullptr) {
    return absl::InvalidArgumentError("'tokens' is missing: the token ids of the completion");
  }
  if (!list->is_array()) return Wrong("tokens", "a list of token ids", *list);
  std::vector<int64_t> tokens;
  tokens.reserve(list->size());
  for (size_t i = 0; i < list->size(); ++i) {
    const std::optional<uint64_t> token = AsUnsigned((*list)[i]);
    if (!token.has_value() || *token > static_cast<uint64_t>(INT64_MAX)) {
      return Wrong(absl::StrCat("tokens[", i, "]"), "a token id", (*list)[i]);
    }
    tokens.push_back(static_cast<int64_t>(*token));
  }
  return tokens;
}

absl::StatusOr<std::vector<TokenSpan>> ReadSpans(const json& line, uint64_t tokens) {
  const json* version = FindNonNull(line, "policy_version");
  std::optional<uint64_t> number;
  if (version != nullptr) {
    number = AsUnsigned(*version);
    if (!number.has_value()) return Wrong("policy_version", "a version's number", *version);
  }
  const json* list = FindNonNull(line, "spans");
  if (list == nullptr) {
    if (number.has_value()) return std::vector<TokenSpan>{{*number, 0, tokens}};
    return absl::InvalidArgumentError(
        "'policy_version' is missing: the version that decoded the tokens (or give 'spans')");
  }
  if (!list->is_array()) return Wrong("spans", "[[version, start, end], ...]", *list);
  std::vector<TokenSpan> spans;
  for (size_t i = 0; i < list->size(); ++i) {
    const json& span = (*list)[i];
    std::vector<uint64_t> numbers;
    if (span.is_array()) {
      for (const json& part : span) {
        if (const std::optional<uint64_t> value = AsUnsigned(part)) numbers.push_back(*value);
      }
    }
    if (numbers.size() != 3 || span.size() != 3) {
      return Wrong(absl::StrCat("spans[", i, "]"), "[version, start, end]", span);
    }
    spans.push_back({numbers[0], numbers[1], numbers[2]});
  }
  return spans;
}

}  // namespace

absl::StatusOr<std::string> CanonicalRolloutLine(absl::string_view line) {
  LOCKSTEP_ASSIGN_OR_RETURN(const json root, ParseLine(line));
  return CanonicalText(root);
}

absl::StatusOr<RecordedRollout> ReadRolloutLine(absl::string_view line) {
  LOCKSTEP_ASSIGN_OR_RETURN(const json root, ParseLine(line));
  RecordedRollout recorded;
  Rollout& rollout = recorded.rollout;
  LOCKSTEP_ASSIGN_OR_RETURN(rollout.tokens, ReadTokens(root));
  LOCKSTEP_ASSIGN_OR_RETURN(rollout.spans, ReadSpans(root, rollout.tokens.size()));
  LOCKSTEP_ASSIGN_OR_RETURN(std::optional<std::vector<float>> sampler_logprobs,
                            ReadLogprobs(root, kSamplerLogprobs));
  if (sampler_logprobs.has_value()) rollout.sampler_logprobs = *std::move(sampler_logprobs);
  LOCKSTEP_ASSIGN_OR_RETURN(recorded.trainer_logprobs, ReadLogprobs(root, kTrainerLogprobs));
  rollout.content = Blake2b256(CanonicalText(root));
  rollout.id = ToHex(rollout.content);
  if (const json* id = FindNonNull(root, "id")) {
    const bool fits = id->is_string() && !id->get_ref<const std::string&>().empty() &&
                      id->get_ref<const std::string&>().size() <= kMaxRolloutIdBytes;
    if (!fits) {
      return Wrong("id", absl::StrCat("a string of 1 to ", kMaxRolloutIdBytes, " bytes"), *id);
    }
    rollout.id = id->get<std::string>();
  }
  return recorded;
}

bool RolloutFile::TakeLine(std::string& line, bool& too_long) {
  line.clear();
  too_long = false;
  std::streambuf& buffer = *in_.rdbuf();
  bool any = false;
  for (;;) {
    const int next = buffer.sbumpc();
    if (next == std::char_traits<char>::eof()) return any;
    any = true;
    if (next == '\n') return true;
    if (line.size() < kMaxRolloutLineBytes) {
      line.push_back(static_cast<char>(next));
    } else {
      too_long = true;
    }
  }
}

std::optional<RolloutFileLine> RolloutFile::Next() {
  std::string line;
  bool too_long = false;
  while (TakeLine(line, too_long)) {
    ++number_;
    if (too_long) {
      return RolloutFileLine{number_, absl::InvalidArgumentError(absl::StrCat(
                                          "a line has at most ", kMaxRolloutLineBytes, " bytes"))};
    }
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    return RolloutFileLine{number_, ReadRolloutLine(line)};
  }
  return std::nullopt;
}

}  // namespace lockstep::tools
