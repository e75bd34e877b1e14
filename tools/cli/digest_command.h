#ifndef LOCKSTEP_TOOLS_CLI_DIGEST_COMMAND_H_
#define LOCKSTEP_TOOLS_CLI_DIGEST_COMMAND_H_

// `lockstep digest FILE.safetensors`: the roots of a file's tensors and of the whole file.

#include <vector>

#include "tools/cli/command.h"

namespace lockstep::tools {

std::vector<Command> DigestCommands();

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_DIGEST_COMMAND_H_
