#ifndef LOCKSTEP_TOOLS_CLI_BRIDGE_STOP_SIGNAL_H_
#define LOCKSTEP_TOOLS_CLI_BRIDGE_STOP_SIGNAL_H_

// SIGINT and SIGTERM as something to wait for, for commands that run until they are stopped.
// Make it before any thread is started: threads inherit that these signals wait for it.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(StopSignal stop, StopSignal::Make());
//   while (!stop.Wait(absl::Milliseconds(200))) Redraw();

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bridge/transport/unique_fd.h"

namespace lockstep::tools {

class StopSignal {
 public:
  static absl::StatusOr<StopSignal> Make();

  // True when a signal has come, now or before.
  bool Wait(absl::Duration at_most);

  // The same, and returns early, with false, when `other` can be read.
  bool WaitUnlessReadable(int other, absl::Duration at_most);

 private:
  explicit StopSignal(transport::UniqueFd fd) : fd_(std::move(fd)) {}

  transport::UniqueFd fd_;  // signalfd; never read, so that it stays readable
};

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_BRIDGE_STOP_SIGNAL_H_
