#include "tools/cli/bridge_commands.h"

#include <iterator>

namespace lockstep::tools {

std::vector<Command> BridgeCommands() {
  std::vector<Command> all;
  for (std::vector<Command> group :
       {StatusCommands(), InquiryCommands(), PeerCommands(), RolloutCommands(), ActCommands()}) {
    all.insert(all.end(), std::make_move_iterator(group.begin()),
               std::make_move_iterator(group.end()));
  }
  return all;
}

}  // namespace lockstep::tools
