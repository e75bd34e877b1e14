// `lockstep`: the command line over a run of the bridge (tools/cli).

#include <string>
#include <vector>

#include "tools/cli/commands.h"

int main(int argc, char** argv) {
  lockstep::tools::Io io = lockstep::tools::StandardIo();
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  return lockstep::tools::RunCli(words, lockstep::tools::AllCommands(), io);
}
