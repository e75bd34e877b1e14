#ifndef LOCKSTEP_TOOLS_CLI_COMMANDS_H_
#define LOCKSTEP_TOOLS_CLI_COMMANDS_H_

// Every command of `lockstep`, in the order in which `lockstep help` lists them.
//
// Example:
//   return RunCli(words, AllCommands(), io);

#include <vector>

#include "tools/cli/command.h"

namespace lockstep::tools {

std::vector<Command> AllCommands();

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_COMMANDS_H_
