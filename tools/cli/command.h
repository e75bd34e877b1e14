#ifndef LOCKSTEP_TOOLS_CLI_COMMAND_H_
#define LOCKSTEP_TOOLS_CLI_COMMAND_H_

// A command is a row: its name, what it takes, and the function that runs it. Each group of
// commands has a file with such rows; tools/cli/commands.cc lists the groups.
//
// Example, in version_commands.cc:
//   absl::StatusOr<int> Version(const Args& args, Io& io) { ...; return kExitConverged; }
//   std::vector<Command> VersionCommands() {
//     return {{.name = "version", .help = "what this build is", .run = Version}};
//   }
//
// `-o table|wide|json` and `--help` are understood by every command and not listed in its flags;
// the choice of -o is io.format.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tools/cli/args.h"
#include "tools/cli/io.h"

namespace lockstep::tools {

struct Command {
  absl::string_view name;        // one or more words: "contract resolve"
  absl::string_view words = "";  // positional words in the usage: "CONFIG.json"
  size_t min_words = 0;
  size_t max_words = 0;
  absl::string_view help;          // one line, no full stop
  absl::string_view details = "";  // what `--help` says besides; lines end in \n
  std::vector<FlagSpec> flags = {};
  // The exit code; an error is printed and gives ExitCodeFor's.
  absl::StatusOr<int> (*run)(const Args& args, Io& io) = nullptr;
};

// Finds the command in `words` (the command line without the program's name), runs it, and
// returns what the process exits with.
int RunCli(const std::vector<std::string>& words, absl::Span<const Command> commands, Io& io);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_COMMAND_H_
