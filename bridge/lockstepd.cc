// The bridge's process: see --help, and ARCHITECTURE.md for what it does.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bridge/loop/daemon.h"
#include "bridge/loop/daemon_flags.h"
#include "bridge/loop/log.h"
#include "bridge/loop/loop.h"
#include "bridge/loop/stop_signals.h"
#include "bridge/transport/unique_fd.h"

namespace lockstep {
namespace {

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kStoppedAtOnce = 130;  // as shells say of SIGINT

int Complain(const absl::Status& status) {
  fprintf(stderr, "lockstepd: %s\n", std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? kUsage : kFailed;
}

// For people and for scripts that wait for it, whatever the log level.
void SayReady(const loop::Loop& loop, const loop::DaemonFlags& flags) {
  const std::string line = loop::FormatLogLine(absl::Now(), loop::LogLevel::kInfo, "ready",
                                               {{"listen", loop.config().listen},
                                                {"run", flags.config.run},
                                                {"boot", absl::StrCat(loop.config().boot)},
                                                {"bulk", loop.config().bulk_address},
                                                {"state", loop.state_dir()}});
  fprintf(stderr, "%s\n", line.c_str());
}

int Main(const std::vector<std::string>& words) {
  const absl::StatusOr<loop::DaemonFlags> flags = loop::ParseDaemonFlags(words);
  if (!flags.ok()) return Complain(flags.status());
  if (flags->help || flags->version) {
    const std::string text =
        flags->help ? loop::DaemonUsage() : absl::StrCat("lockstepd ", loop::kDaemonVersion, "\n");
    fputs(text.c_str(), stdout);
    return kDone;
  }
  const absl::StatusOr<transport::UniqueFd> stop = loop::BlockStopSignals();
  if (!stop.ok()) return Complain(stop.status());
  absl::StatusOr<std::unique_ptr<loop::Loop>> loop = loop::StartDaemon(*flags, stop->get());
  if (!loop.ok()) return Complain(loop.status());
  SayReady(**loop, *flags);
  const absl::Status ended = (*loop)->Run();
  if (ended.ok()) return kDone;
  Complain(ended);
  // Nobody waits for workers or queued answers any more.
  if (absl::IsCancelled(ended)) std::_Exit(kStoppedAtOnce);
  return kFailed;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::Main(std::vector<std::string>(argv + 1, argv + argc));
}
