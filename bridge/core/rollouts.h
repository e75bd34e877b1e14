#ifndef LOCKSTEP_BRIDGE_CORE_ROLLOUTS_H_
#define LOCKSTEP_BRIDGE_CORE_ROLLOUTS_H_

// Rollouts: submitted, judged by policy/admission, decided once. A decision is idempotent by
// rollout id; level `tokens` without the trainer's log-probabilities is pending until they
// come or the deadline passes. Every check but the token comparison is made at submission.

#include <cstdint>
#include <optional>

#include "bridge/core/state.h"

namespace lockstep::core {

// `prior` is what the ledger holds of that rollout id.
void HandleSubmitRollout(Machine& m, const Session& session, const ReplyTo& reply,
                         const SubmitRollout& message, const std::optional<Decision>& prior);
void HandleSubmitRolloutFor(Machine& m, const Session& session, const ReplyTo& reply,
                            const SubmitRolloutFor& message, const std::optional<Decision>& prior);
void HandleSubmitRescore(Machine& m, const Session& session, const ReplyTo& reply,
                         const SubmitRescore& message, const std::optional<Decision>& prior);

void RescoreTimedOut(Machine& m, uint64_t number);

// One event a second sums up what was decided, so that a busy run's log stays readable.
void ReportRollouts(Machine& m);

inline constexpr int64_t kRolloutEventsEveryMs = 1'000;

}  // namespace lockstep::core

#endif  // LOCKSTEP_BRIDGE_CORE_ROLLOUTS_H_
