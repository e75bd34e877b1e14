#ifndef LOCKSTEP_TOOLS_CLI_IO_H_
#define LOCKSTEP_TOOLS_CLI_IO_H_

// Where a command writes and how: data to `out`, everything else to `err`. A test gives it
// string streams; the program gives it the process's own.
//
// Example:
//   std::ostringstream out, err;
//   Io io{out, err};
//   io.format = Format::kJson;
//   int code = RunCli({"version"}, AllCommands(), io);

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lockstep::tools {

enum class Format {
  kTable,
  kWide,  // a table with every column
  kJson,
};

struct Io {
  std::ostream& out;
  std::ostream& err;
  Format format = Format::kTable;  // `-o`
  bool terminal = false;           // `out` is one: redraw rather than print line after line
  bool color = false;              // a terminal, and NO_COLOR does not forbid it
};

// The process's standard streams. Colour is off when NO_COLOR is set and not empty, when TERM
// is "dumb" and when standard output is no terminal.
Io StandardIo();

enum class Color { kGreen, kYellow, kRed, kBold, kDim };

// `text` in that colour, or as it is when io.color is off.
std::string Paint(const Io& io, Color color, absl::string_view text);

// What `lockstep` exits with for an error: InvalidArgument, NotFound, OutOfRange and
// AlreadyExists are the command line's or an input file's, Unavailable the bridge's absence,
// FailedPrecondition, PermissionDenied and Unauthenticated refusals, DeadlineExceeded a timeout;
// anything else is 1.
int ExitCodeFor(const absl::Status& status);

// Prints "lockstep COMMAND: MESSAGE" to io.err and returns ExitCodeFor(status). A message says
// what, why and what to do.
int Fail(Io& io, absl::string_view command, const absl::Status& status);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_IO_H_
