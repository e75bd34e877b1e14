#ifndef LOCKSTEP_TOOLS_CLI_CONTRACT_COMMANDS_H_
#define LOCKSTEP_TOOLS_CLI_CONTRACT_COMMANDS_H_

// `lockstep contract resolve`, `diff`, `show` and `aliases`: contracts and their names, without
// a bridge.

#include <string>
#include <vector>

#include "policy/contract.h"
#include "tools/cli/command.h"

namespace lockstep::tools {

std::vector<Command> ContractCommands();  // the four

std::vector<Command> ContractNameCommands();  // show and aliases

// A contract as a table of sites below its parts.
std::string ContractText(const Contract& contract);

// The contract in a file: a contract as ContractToJson writes it, the answer of `contract
// resolve -o json`, or a config.json, resolved with `args`' flags (resolve_flags.h).
// FailedPrecondition with every reason when there is none.
absl::StatusOr<Contract> ContractOfFile(const std::string& path, const Args& args);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_CONTRACT_COMMANDS_H_
