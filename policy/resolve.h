#ifndef LOCKSTEP_POLICY_RESOLVE_H_
#define LOCKSTEP_POLICY_RESOLVE_H_

// From a model's raw config.json, the parallel geometry and the lane asked for to a stamped
// contract, or to every reason why there is none (contracts.md section 2).
//
// Example:
//   ResolveOptions options;
//   options.exact = true;
//   Resolution resolution = ResolveConfig(config_text, options);
//   if (!resolution.contract) std::cerr << FormatRefusals(resolution.refusals);  // exit 4
//
// Family `none` is an answer, not an error: it keeps the historical two-round bytes and
// claims none. It is refused only where exactness was demanded: by `exact`, by a lane, by a
// stamp or by a flag in the config.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "policy/contract.h"
#include "policy/refusal.h"

namespace lockstep {

enum class Lane { kNone, kScoring, kActiveLora, kFullParam };

absl::string_view LaneName(Lane lane);  // "none", "scoring", "active_lora", "full_param"
std::optional<Lane> LaneFromName(absl::string_view name);

// What an adapter lane is asked to train; unset members take the family's own.
struct AdapterRequest {
  std::optional<uint64_t> rank;
  std::optional<float> alpha;
  std::vector<std::string> targets;  // empty: the full set
  bool trainable_base = false;       // refused: an adapter lane's base is frozen
  bool merged = false;               // lora/merged@v1 instead of lora/active@v2
};

struct ResolveOptions {
  Lane lane = Lane::kNone;
  bool exact = false;
  std::optional<uint64_t> tp, ep, cp, dp;  // omitted: the family's own
  // Length of the sequences to be split by cp, where it is known now; checked against the
  // 64-token grid of the gated delta net.
  std::optional<uint64_t> sequence_tokens;
  // A contract other than the config's own: these replace the programs of the sites they
  // name. "v2", "v3" or any alias; "one_round", "two_round" or a program id; a realisation id.
  std::string local_partial;
  std::string swiglu;
  std::string realisation;
  std::optional<Level> level;          // default: tokens for an exact family, weights for `none`
  std::optional<Tolerance> tolerance;  // family `none` only
  AdapterRequest adapter;
};

struct Resolution {
  std::string family = "none";       // "none" also when refused
  std::optional<Contract> contract;  // set exactly when `refusals` is empty
  std::vector<Refusal> refusals;     // key: the JSON path, the option's name or a site
  std::vector<std::string> notes;    // what a person should know although nothing is refused
  // The config with one coherent stamp at the top and every stale stamp and flag removed;
  // empty when refused.
  std::string stamped_config;
};

Resolution ResolveConfig(absl::string_view config_json, const ResolveOptions& options);

// {"family", "contract_id", "contract_short", "sites" (name -> program, realisation,
// geometry), "parallel", "local_partial", "lora", "level", "notes", "refusals" (code, key,
// message)}; what a refusal leaves open is null, and `family` is always a string.
nlohmann::json ResolutionJson(const Resolution& resolution);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_RESOLVE_H_
