#ifndef LOCKSTEP_BRIDGE_LOOP_DAEMON_H_
#define LOCKSTEP_BRIDGE_LOOP_DAEMON_H_

// From a command line to a running bridge.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(DaemonFlags flags, ParseDaemonFlags(words));
//   LOCKSTEP_ASSIGN_OR_RETURN(transport::UniqueFd stop, BlockStopSignals());
//   LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Loop> loop, StartDaemon(flags, stop.get()));
//   absl::Status ended = loop->Run();

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bridge/loop/daemon_flags.h"
#include "bridge/loop/loop.h"

namespace lockstep::loop {

inline constexpr char kDaemonVersion[] = "0.1.0";

// Where a run's state lies unless --state-dir says otherwise: lockstep/RUN in $XDG_STATE_HOME,
// or in $HOME/.local/state; where neither names a folder, state/RUN in the run folder (which a
// reboot may empty).
absl::StatusOr<std::string> DefaultStateFolder(const std::string& run);

// Opens the ledger and every socket. InvalidArgument for what the user must write differently;
// AlreadyExists or FailedPrecondition when another bridge has the address or the state folder.
absl::StatusOr<std::unique_ptr<Loop>> StartDaemon(const DaemonFlags& flags, int stop_fd);

}  // namespace lockstep::loop

#endif  // LOCKSTEP_BRIDGE_LOOP_DAEMON_H_
