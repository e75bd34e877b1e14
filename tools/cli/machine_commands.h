#ifndef LOCKSTEP_TOOLS_CLI_MACHINE_COMMANDS_H_
#define LOCKSTEP_TOOLS_CLI_MACHINE_COMMANDS_H_

// `lockstep doctor` and `lockstep keygen`: what this machine has, what is missing, what to do;
// and keys for peers that come over tcp.

#include <vector>

#include "tools/cli/command.h"

namespace lockstep::tools {

std::vector<Command> MachineCommands();

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_MACHINE_COMMANDS_H_
