#ifndef LOCKSTEP_TOOLS_CLI_BENCH_COMMANDS_H_
#define LOCKSTEP_TOOLS_CLI_BENCH_COMMANDS_H_

#include <vector>

#include "tools/cli/command.h"

namespace lockstep::tools {

std::vector<Command> BenchCommands();  // bench sync, bench admit

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_BENCH_COMMANDS_H_
