#ifndef LOCKSTEP_TOOLS_CLI_BRIDGE_CONTRACT_H_
#define LOCKSTEP_TOOLS_CLI_BRIDGE_CONTRACT_H_

// The contract that a file-based trainer or sampler states: its config.json's, or another one
// by the flags of resolve_flags.h.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(StatedContract stated, StateContract(args));
//   options.contract_json = stated.contract_json;

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/cli/args.h"

namespace lockstep::tools {

// `flags`, then --config and the flags of resolve_flags.h.
std::vector<FlagSpec> WithContractFlags(std::vector<FlagSpec> flags);

struct StatedContract {
  std::string config_text;
  std::string contract_json;
  std::string short_form;
  std::vector<std::string> notes;  // what a person should know although nothing is refused
};

// InvalidArgument for a flag, NotFound for a file that cannot be read; FailedPrecondition, with
// every reason, when the config has no such contract.
absl::StatusOr<StatedContract> StateContract(const Args& args);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_BRIDGE_CONTRACT_H_
