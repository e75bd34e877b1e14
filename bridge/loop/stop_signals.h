#ifndef LOCKSTEP_BRIDGE_LOOP_STOP_SIGNALS_H_
#define LOCKSTEP_BRIDGE_LOOP_STOP_SIGNALS_H_

// SIGTERM and SIGINT as something to poll.
//
// Example, before any thread is started:
//   LOCKSTEP_ASSIGN_OR_RETURN(transport::UniqueFd stop, BlockStopSignals());

#include "absl/status/statusor.h"
#include "bridge/transport/unique_fd.h"

namespace lockstep::loop {

// Blocks both in the calling thread and those it starts, and gives the signalfd that they come
// by. SIGPIPE is ignored from then on: a peer that hangs up is an error, not an end.
absl::StatusOr<transport::UniqueFd> BlockStopSignals();

// Reads one signal; 0 when none is there.
int TakeStopSignal(int fd);

}  // namespace lockstep::loop

#endif  // LOCKSTEP_BRIDGE_LOOP_STOP_SIGNALS_H_
