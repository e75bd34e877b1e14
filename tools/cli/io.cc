#include "tools/cli/io.h"

#include <stdlib.h>
#include <unistd.h>

#include <iostream>

#include "absl/strings/str_cat.h"
#include "tools/cli/exit_codes.h"

namespace lockstep::tools {
namespace {

bool IsSet(const char* variable) {
  const char* value = ::getenv(variable);
  return value != nullptr && *value != '\0';
}

absl::string_view Code(Color color) {
  switch (color) {
    case Color::kGreen:
      return "\x1b[32m";
    case Color::kYellow:
      return "\x1b[33m";
    case Color::kRed:
      return "\x1b[31m";
    case Color::kBold:
      return "\x1b[1m";
    case Color::kDim:
      return "\x1b[2m";
  }
  return "";
}

}  // namespace

Io StandardIo() {
  Io io{std::cout, std::cerr};
  io.terminal = ::isatty(STDOUT_FILENO) == 1;
  const char* term = ::getenv("TERM");
  io.color = io.terminal && !IsSet("NO_COLOR") && term != nullptr && std::string(term) != "dumb";
  return io;
}

std::string Paint(const Io& io, Color color, absl::string_view text) {
  if (!io.color || text.empty()) return std::string(text);
  return absl::StrCat(Code(color), text, "\x1b[0m");
}

int ExitCodeFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitConverged;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kAlreadyExists:
      return kExitUsage;
    case absl::StatusCode::kUnavailable:
      return kExitUnreachable;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kExitRefused;
    case absl::StatusCode::kDeadlineExceeded:
      return kExitTimedOut;
    default:
      return kExitDegraded;
  }
}

int Fail(Io& io, absl::string_view command, const absl::Status& status) {
  io.err << "lockstep" << (command.empty() ? "" : " ") << command << ": " << status.message()
         << "\n";
  return ExitCodeFor(status);
}

}  // namespace lockstep::tools
