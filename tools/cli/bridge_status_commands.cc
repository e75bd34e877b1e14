// status, versions, samplers, watch: what the run looks like.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"
#include "tools/cli/bridge_commands.h"
#include "tools/cli/bridge_connect.h"
#include "tools/cli/bridge_json.h"
#include "tools/cli/bridge_stop_signal.h"
#include "tools/cli/bridge_tables.h"
#include "tools/cli/bridge_view.h"
#include "tools/cli/bridge_wait.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/json_line.h"

namespace lockstep::tools {
namespace {

constexpr absl::Duration kWatchEvery = absl::Milliseconds(250);
// Goes to the top left and clears from there to the end of the screen.
constexpr absl::string_view kRedraw = "\x1b[H\x1b[J";
constexpr absl::string_view kClearScreen = "\x1b[2J";

absl::StatusOr<StatusReply> AskOnce(const Args& args) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto session, OpenOperator(args));
  return AskStatus(*session);
}

absl::StatusOr<int> Watch(const Args& args, Io& io) {
  LOCKSTEP_ASSIGN_OR_RETURN(StopSignal stop, StopSignal::Make());
  LOCKSTEP_ASSIGN_OR_RETURN(const auto session, OpenOperator(args));
  const bool redraw = io.terminal && io.format != Format::kJson;
  if (redraw) io.out << kClearScreen;
  StatusReply before;
  bool lost = false;
  do {
    const absl::StatusOr<StatusReply> now = AskStatus(*session, absl::Seconds(2));
    if (!now.ok()) {
      if (!lost) io.err << "lockstep watch: the bridge does not answer; waiting for it\n";
      lost = true;
      continue;
    }
    if (lost) io.err << "lockstep watch: the bridge is back\n";
    lost = false;
    const std::vector<std::string> changes = StatusChanges(before, *now);
    if (redraw) {
      io.out << kRedraw << StatusText(*now, io) << std::flush;
    } else if (!changes.empty() && io.format == Format::kJson) {
      io.out << JsonLine(StatusJson(*now)) << std::endl;
    } else {
      for (const std::string& change : changes) io.out << change << std::endl;
    }
    before = *now;
  } while (!stop.Wait(kWatchEvery));
  return kExitConverged;
}

absl::StatusOr<int> Status(const Args& args, Io& io) {
  LOCKSTEP_ASSIGN_OR_RETURN(const StatusReply status, AskOnce(args));
  io.out << (io.format == Format::kJson ? JsonLine(StatusJson(status)) + "\n"
                                        : StatusText(status, io));
  return Degradations(status).empty() ? kExitConverged : kExitDegraded;
}

absl::StatusOr<int> Versions(const Args& args, Io& io) {
  LOCKSTEP_ASSIGN_OR_RETURN(const StatusReply status, AskOnce(args));
  io.out << (io.format == Format::kJson ? JsonLine(VersionsJson(status)) + "\n"
                                        : VersionsText(status, io));
  return kExitConverged;
}

absl::StatusOr<int> Samplers(const Args& args, Io& io) {
  LOCKSTEP_ASSIGN_OR_RETURN(const StatusReply status, AskOnce(args));
  io.out << (io.format == Format::kJson ? JsonLine(SamplersJson(status)) + "\n"
                                        : SamplersText(status, io));
  return kExitConverged;
}

}  // namespace

std::vector<Command> StatusCommands() {
  return {
      {.name = "status",
       .help = "versions, samplers and rollouts of the run",
       .details =
           "Exits with 0 when every connected sampler whose contract agrees is live on the newest "
           "sealed\nversion, none is quarantined and no alarm is open; with 1 otherwise. A refused "
           "sampler is\nshown and does not count.\n",
       .flags = WithBridgeFlags({}),
       .run = Status},
      {.name = "watch",
       .help = "the same, until it is stopped: redrawn on a terminal, else one line per change",
       .flags = WithBridgeFlags({}),
       .run = Watch},
      {.name = "versions",
       .help = "the versions of the run",
       .flags = WithBridgeFlags({}),
       .run = Versions},
      {.name = "samplers",
       .help = "the samplers of the run, with the reason of a refusal",
       .flags = WithBridgeFlags({}),
       .run = Samplers},
  };
}

}  // namespace lockstep::tools
