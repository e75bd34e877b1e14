#ifndef LOCKSTEP_TOOLS_CLI_KERNEL_COMMANDS_H_
#define LOCKSTEP_TOOLS_CLI_KERNEL_COMMANDS_H_

// `lockstep kernel list`, `kernel run` and `kernel selftest`: the exact programs on files of
// tensors, and the proof that this machine computes their bytes.

#include <vector>

#include "tools/cli/command.h"

namespace lockstep::tools {

std::vector<Command> KernelCommands();

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_KERNEL_COMMANDS_H_
