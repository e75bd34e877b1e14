#include "tools/cli/bridge_contract.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bridge/auth/keys.h"
#include "policy/resolve.h"
#include "policy/status_macros.h"

namespace lockstep::tools {
namespace {

constexpr size_t kMaxConfigBytes = size_t{4} << 20;

constexpr FlagSpec kContractFlags[] = {
    {"--config", "CONFIG.json", "the model's config.json"},
    {"--exact", "", "demand the family's exact programs"},
    {"--lane", "LANE", "scoring, active_lora or full_param"},
    {"--tp", "N", "tensor parallel degree; default the contract's own"},
    {"--ep", "N", "expert parallel degree; default the contract's own"},
    {"--local-partial", "ID", "v2, v3 or any alias, instead of the config's own"},
    {"--swiglu", "ID", "one_round, two_round or a program id, instead of the config's own"},
};

absl::StatusOr<ResolveOptions> OptionsOf(const Args& args) {
  ResolveOptions options;
  options.exact = args.Has("--exact");
  constexpr absl::string_view kLanes[] = {"scoring", "active_lora", "full_param"};
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<std::string> lane, args.OneOf("--lane", kLanes));
  if (lane.has_value()) options.lane = *LaneFromName(*lane);
  LOCKSTEP_ASSIGN_OR_RETURN(options.tp, args.U64("--tp"));
  LOCKSTEP_ASSIGN_OR_RETURN(options.ep, args.U64("--ep"));
  options.local_partial = args.TextOr("--local-partial", "");
  options.swiglu = args.TextOr("--swiglu", "");
  return options;
}

}  // namespace

std::vector<FlagSpec> WithContractFlags(std::vector<FlagSpec> flags) {
  flags.insert(flags.end(), std::begin(kContractFlags), std::end(kContractFlags));
  return flags;
}

absl::StatusOr<StatedContract> StateContract(const Args& args) {
  const std::optional<std::string> path = args.Text("--config");
  if (!path.has_value()) {
    return absl::InvalidArgumentError(
        "--config is missing: the config.json of the model, which says its contract");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const ResolveOptions options, OptionsOf(args));
  StatedContract stated;
  LOCKSTEP_ASSIGN_OR_RETURN(stated.config_text, auth::ReadTextFile(*path, kMaxConfigBytes));
  Resolution resolution = ResolveConfig(stated.config_text, options);
  if (!resolution.contract.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", *path, "' has no such contract:\n", FormatRefusals(resolution.refusals)));
  }
  stated.contract_json = ContractToJson(*resolution.contract);
  stated.short_form = ContractShortForm(*resolution.contract);
  stated.notes = std::move(resolution.notes);
  return stated;
}

}  // namespace lockstep::tools
