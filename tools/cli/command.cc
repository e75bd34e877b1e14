#include "tools/cli/command.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "policy/nearest.h"
#include "policy/status_macros.h"
#include "tools/cli/exit_codes.h"

namespace lockstep::tools {
namespace {

constexpr FlagSpec kOutputFlag = {"-o", "FORMAT", "table (default), wide or json"};
constexpr FlagSpec kHelpFlag = {"--help", "", "what this command does"};

size_t WordCount(absl::string_view name) {
  return 1 + static_cast<size_t>(std::count(name.begin(), name.end(), ' '));
}

bool Matches(const Command& command, const std::vector<std::string>& words) {
  const size_t count = WordCount(command.name);
  return words.size() >= count &&
         absl::StrJoin(words.begin(), words.begin() + static_cast<ptrdiff_t>(count), " ") ==
             command.name;
}

// The longest name that `words` begin with.
const Command* FindCommand(const std::vector<std::string>& words,
                           absl::Span<const Command> commands) {
  const Command* found = nullptr;
  for (const Command& command : commands) {
    if (Matches(command, words) &&
        (found == nullptr || WordCount(command.name) > WordCount(found->name))) {
      found = &command;
    }
  }
  return found;
}

void PrintRows(absl::Span<const Command> commands, absl::string_view prefix, std::ostream& out) {
  const auto left = [](const Command& command) {
    return absl::StrCat(command.name, command.words.empty() ? "" : " ", command.words);
  };
  size_t width = 0;
  for (const Command& command : commands) {
    if (absl::StartsWith(command.name, prefix)) width = std::max(width, left(command).size());
  }
  for (const Command& command : commands) {
    if (!absl::StartsWith(command.name, prefix)) continue;
    const std::string text = left(command);
    out << "  " << text << std::string(width - text.size() + 2, ' ') << command.help << "\n";
  }
}

void PrintOverview(absl::Span<const Command> commands, std::ostream& out) {
  out << "lockstep: weights from trainer to samplers, proven byte for byte\n\n"
         "usage: lockstep COMMAND [ARGUMENTS] [-o table|wide|json]\n\ncommands:\n";
  PrintRows(commands, "", out);
  out << "\n`lockstep COMMAND --help` says more. Commands that talk to a bridge find it by "
         "--bridge\nADDR, else LOCKSTEP_BRIDGE, else at the default address.\n\n"
         "exit codes: 0 converged, 1 degraded or difference found, 2 usage, 3 unreachable,\n"
         "4 refused or not authorised, 5 timed out, 6 can no longer succeed\n";
}

std::vector<FlagSpec> AllFlags(const Command& command) {
  std::vector<FlagSpec> flags = command.flags;
  flags.push_back(kOutputFlag);
  flags.push_back(kHelpFlag);
  return flags;
}

void PrintHelp(const Command& command, std::ostream& out) {
  out << "usage: lockstep " << command.name << (command.words.empty() ? "" : " ") << command.words
      << " [FLAGS]\n\n"
      << command.help << "\n";
  if (!command.details.empty()) out << "\n" << command.details;
  out << "\nflags:\n" << FlagHelp(AllFlags(command));
}

bool IsGroup(absl::string_view word, absl::Span<const Command> commands) {
  return std::any_of(commands.begin(), commands.end(), [&](const Command& command) {
    return absl::StartsWith(command.name, absl::StrCat(word, " "));
  });
}

int Unknown(const std::vector<std::string>& words, absl::Span<const Command> commands, Io& io) {
  if (IsGroup(words[0], commands)) {
    io.err << "lockstep: '" << words[0] << "' needs one of these:\n";
    PrintRows(commands, absl::StrCat(words[0], " "), io.err);
    return kExitUsage;
  }
  std::vector<std::string> known;
  for (const Command& command : commands) known.emplace_back(command.name);
  const std::vector<std::string> near = NearestNames(words[0], known);
  io.err << "lockstep: there is no command '" << words[0] << "'";
  if (!near.empty()) io.err << "; nearest: " << absl::StrJoin(near, ", ");
  io.err << "; `lockstep help` lists all\n";
  return kExitUsage;
}

bool AsksForHelp(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word == "--") return false;
    if (word == "--help" || word == "-h") return true;
  }
  return false;
}

absl::StatusOr<int> Run(const Command& command, const std::vector<std::string>& words, Io& io) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Args args, Args::Parse(words, AllFlags(command), command.min_words, command.max_words));
  constexpr absl::string_view kFormats[] = {"table", "wide", "json"};
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<std::string> given, args.OneOf("-o", kFormats));
  const std::string format = given.value_or("");
  if (format == "wide") io.format = Format::kWide;
  if (format == "json") io.format = Format::kJson;
  return command.run(args, io);
}

}  // namespace

int RunCli(const std::vector<std::string>& words, absl::Span<const Command> commands, Io& io) {
  if (words.empty()) {
    PrintOverview(commands, io.err);
    return kExitUsage;
  }
  std::vector<std::string> rest = words;
  const bool help = rest[0] == "help" || rest[0] == "--help" || rest[0] == "-h";
  if (help) rest.erase(rest.begin());
  if (rest.empty()) {
    PrintOverview(commands, io.out);
    return kExitConverged;
  }
  const Command* command = FindCommand(rest, commands);
  if (command == nullptr && (help || AsksForHelp(rest)) && IsGroup(rest[0], commands)) {
    PrintRows(commands, absl::StrCat(rest[0], " "), io.out);
    return kExitConverged;
  }
  if (command == nullptr) return Unknown(rest, commands, io);
  rest.erase(rest.begin(), rest.begin() + static_cast<ptrdiff_t>(WordCount(command->name)));
  if (help || AsksForHelp(rest)) {
    PrintHelp(*command, io.out);
    return kExitConverged;
  }
  const absl::StatusOr<int> code = Run(*command, rest, io);
  io.out << std::flush;
  if (!code.ok()) return Fail(io, command->name, code.status());
  if (!io.out) {
    return Fail(io, command->name,
                absl::InternalError("cannot write the answer to standard output: the disk there "
                                    "may be full, or its reader has gone"));
  }
  return *code;
}

}  // namespace lockstep::tools
