#ifndef LOCKSTEP_TOOLS_CLI_VERSION_COMMAND_H_
#define LOCKSTEP_TOOLS_CLI_VERSION_COMMAND_H_

// `lockstep version`: what this build is and what it speaks.

#include <vector>

#include "tools/cli/command.h"

namespace lockstep::tools {

inline constexpr char kCliVersion[] = "0.1.0";

std::vector<Command> VersionCommands();

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_VERSION_COMMAND_H_
