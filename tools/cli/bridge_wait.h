#ifndef LOCKSTEP_TOOLS_CLI_BRIDGE_WAIT_H_
#define LOCKSTEP_TOOLS_CLI_BRIDGE_WAIT_H_

// `lockstep wait`: has the run come to where a script wants it, and can it still?
//
// Example:
//   WaitVerdict verdict = JudgeWait(status, {.version = 3, .samplers = 2});

#include <cstdint>
#include <string>
#include <vector>

#include "policy/protocol.h"

namespace lockstep::tools {

struct WaitGoal {
  uint64_t version = 0;
  uint64_t samplers = 1;  // live on it; 0: sealed is enough
};

enum class WaitState { kReached, kNotYet, kHopeless };

struct WaitVerdict {
  WaitState state = WaitState::kNotYet;
  std::vector<std::string> live;  // names, sorted
  std::string why;                // a sentence, of kNotYet and kHopeless
};

// Hopeless: the version was retired, or a newer one is sealed and no sampler is on its way any
// more, since samplers are never taken to an older version. Refused and quarantined samplers are
// not counted; others may still register, so their number alone never makes a goal hopeless.
WaitVerdict JudgeWait(const StatusReply& status, const WaitGoal& goal);

// Is every connected sampler whose contract agrees live on the newest sealed version, none
// quarantined, and no alarm open? A sentence a reason why not; empty when all is well.
std::vector<std::string> Degradations(const StatusReply& status);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_BRIDGE_WAIT_H_
