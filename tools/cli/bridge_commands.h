#ifndef LOCKSTEP_TOOLS_CLI_BRIDGE_COMMANDS_H_
#define LOCKSTEP_TOOLS_CLI_BRIDGE_COMMANDS_H_

// The commands that talk to a bridge, as rows of the command table.

#include <vector>

#include "tools/cli/command.h"

namespace lockstep::tools {

std::vector<Command> StatusCommands();   // status, watch, versions, samplers
std::vector<Command> InquiryCommands();  // events, explain, wait
std::vector<Command> ActCommands();      // rollback, retire, quarantine release
std::vector<Command> PeerCommands();     // publish, sampler
std::vector<Command> RolloutCommands();  // rollout submit

// All of them, in the order in which help lists them.
std::vector<Command> BridgeCommands();

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_BRIDGE_COMMANDS_H_
