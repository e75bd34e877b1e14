#ifndef LOCKSTEP_POLICY_JSON_TEXT_H_
#define LOCKSTEP_POLICY_JSON_TEXT_H_

// The one way by which policy reads JSON that a stranger wrote: size and depth are bounded
// before anything is built, the text must be UTF-8, and an object that names a key twice is
// refused, since two readers would disagree about which one counts.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(nlohmann::json root, ParseJson(text, JsonLimits{}));

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace lockstep {

struct JsonLimits {
  size_t max_bytes = size_t{4} << 20;
  int max_depth = 64;
};

// InvalidArgument when `text` is not JSON within the limits.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, const JsonLimits& limits);

// The value of `key`, or nullptr when `object` is no object, lacks the key, or has null there.
const nlohmann::json* FindNonNull(const nlohmann::json& object, absl::string_view key);

// A value as a person quotes it, at most 120 bytes: "\"gelu\"", "7.0", "true".
std::string QuoteJson(const nlohmann::json& value);

// A non-negative whole number, or nullopt (7.0 counts, -1, 7.5 and "7" do not).
std::optional<uint64_t> AsUnsigned(const nlohmann::json& value);

// A finite number rounded once to float32, or nullopt.
std::optional<float> AsFloat(const nlohmann::json& value);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_JSON_TEXT_H_
