#include "tools/cli/bridge_contract.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/resolve.h"
#include "policy/status_macros.h"
#include "tools/cli/resolve_flags.h"

namespace lockstep::tools {

std::vector<FlagSpec> WithContractFlags(std::vector<FlagSpec> flags) {
  flags.push_back({"--config", "CONFIG.json", "the model's config.json"});
  return WithResolveFlags(std::move(flags));
}

absl::StatusOr<StatedContract> StateContract(const Args& args) {
  const std::optional<std::string> path = args.Text("--config");
  if (!path.has_value()) {
    return absl::InvalidArgumentError(
        "--config is missing: the config.json of the model, which says its contract");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const ResolveOptions options, ResolveOptionsOf(args));
  StatedContract stated;
  LOCKSTEP_ASSIGN_OR_RETURN(stated.config_text, ReadConfigFile(*path));
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
