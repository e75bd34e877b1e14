#include "tools/cli/commands.h"

#include <iterator>
#include <utility>

#include "tools/cli/bench_commands.h"
#include "tools/cli/bridge_commands.h"
#include "tools/cli/contract_commands.h"
#include "tools/cli/digest_command.h"
#include "tools/cli/kernel_commands.h"
#include "tools/cli/machine_commands.h"
#include "tools/cli/version_command.h"

namespace lockstep::tools {

std::vector<Command> AllCommands() {
  std::vector<Command> all;
  for (std::vector<Command> (*group)() :
       {BridgeCommands, ContractCommands, DigestCommands, KernelCommands, BenchCommands,
        MachineCommands, VersionCommands}) {
    std::vector<Command> commands = group();
    all.insert(all.end(), std::make_move_iterator(commands.begin()),
               std::make_move_iterator(commands.end()));
  }
  return all;
}

}  // namespace lockstep::tools
