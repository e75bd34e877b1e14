// Contracts of lockstep.h.

#include <string>

#include "policy/resolve.h"
#include "policy/status_macros.h"
#include "tools/capi/common.h"
#include "tools/cli/json_line.h"

namespace lockstep::capi {
namespace {

absl::StatusOr<ResolveOptions> ResolveOptionsOf(const lockstep_resolve_options& given) {
  ResolveOptions options;
  options.exact = given.exact != 0;
  if (given.lane != nullptr) {
    const std::optional<Lane> lane = LaneFromName(given.lane);
    if (!lane.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("options.lane '", given.lane,
                                                     "' is none of scoring, active_lora, "
                                                     "full_param"));
    }
    options.lane = *lane;
  }
  if (given.tp != 0) options.tp = given.tp;
  if (given.ep != 0) options.ep = given.ep;
  if (given.level != nullptr) {
    options.level = LevelFromName(given.level);
    if (!options.level.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("options.level '", given.level, "' is none of weights, kernels, tokens"));
    }
  }
  options.local_partial = TextOr(given.local_partial, "");
  options.swiglu = TextOr(given.swiglu, "");
  return options;
}

absl::Status Resolve(const char* config_json, const lockstep_resolve_options* options,
                     char** contract_json, char** resolution_json) {
  if (resolution_json != nullptr) *resolution_json = nullptr;
  if (contract_json == nullptr) return Missing("contract_json");
  *contract_json = nullptr;
  if (config_json == nullptr) return Missing("config_json");
  ResolveOptions asked;
  if (options != nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(const lockstep_resolve_options given, ReadSized(options, "options"));
    LOCKSTEP_ASSIGN_OR_RETURN(asked, ResolveOptionsOf(given));
  }
  const Resolution resolution = ResolveConfig(config_json, asked);
  if (resolution_json != nullptr) {
    *resolution_json = NewString(tools::JsonLine(ResolutionJson(resolution)));
  }
  if (!resolution.contract.has_value()) {
    return absl::FailedPreconditionError(FormatRefusals(resolution.refusals));
  }
  *contract_json = NewString(ContractToJson(*resolution.contract));
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep::capi

extern "C" int32_t lockstep_contract_resolve(const char* config_json,
                                             const lockstep_resolve_options* options,
                                             char** contract_json, char** resolution_json) {
  return lockstep::capi::Guarded([&] {
    return lockstep::capi::Resolve(config_json, options, contract_json, resolution_json);
  });
}
