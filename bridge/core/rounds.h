#ifndef LOCKSTEP_BRIDGE_CORE_ROUNDS_H_
#define LOCKSTEP_BRIDGE_CORE_ROUNDS_H_

// A round takes one sampler to one version: RoundStart, Sealed, RoundKey, Verified, Activate,
// Activated, Live. A sampler has at most one round. Rounds of different samplers never wait
// for each other.
//
// Keys. A sampler's first round of a version that runs with its publish is asked under the
// version's own key, whose digest the trainer made. Every other round gets a fresh key,
// answered for the trainer's side by a digest of the kept copy, after that copy was once
// proven equal to the trainer's bytes (verification.h).

#include <cstdint>

#include "bridge/core/state.h"

namespace lockstep::core {

// Starts the round that this sampler needs now, if any.
void ScheduleSampler(Machine& m, Sampler& sampler);
void ScheduleAll(Machine& m);

// The arena of the version in flight is there: rounds may start before the seal.
// The trainer sealed `version`: the bytes are final and keys may go out.
void RoundsOfSealedVersion(Machine& m, uint64_t version);
void RoundsProgress(Machine& m, uint64_t version);

// The version is no more (discarded, retired, broken copy); its samplers are not to blame.
void AbortRoundsOf(Machine& m, uint64_t version, const Refusal& why);

void HandleSealed(Machine& m, Sampler& sampler, const ReplyTo& reply, const Sealed& message);
void HandleActivated(Machine& m, Sampler& sampler, const ReplyTo& reply, const Activated& message);
void HandleRoundFailed(Machine& m, Sampler& sampler, const RoundFailed& message);
void HandleReleaseArena(Machine& m, Sampler& sampler, const ReleaseArena& message);

// Can any transport of the sampler be used here?
bool HasTransport(const Machine& m, const Sampler& sampler);

void RoundTimedOut(Machine& m, uint64_t round_id);

// Ends the running round; `tell` sends RoundAbort.
void EndRound(Machine& m, Sampler& sampler);
void AbortRound(Machine& m, Sampler& sampler, const Refusal& why);

// The round failed in a way that may not happen again: try anew, `limit` times, then fence.
void RetryOrQuarantine(Machine& m, Sampler& sampler, uint32_t& failures, uint32_t limit,
                       const Refusal& why);
void Quarantine(Machine& m, Sampler& sampler, const Refusal& why);

// The sampler's connection is gone or lapsed.
void SamplerLost(Machine& m, Sampler& sampler, const std::string& reason);

// Takes the sampler off the version it served.
void ClearLive(Machine& m, Sampler& sampler);

void SetRoundDeadline(Machine& m, const Round& round);

// nullptr when the message is of an older round: late, and of no effect.
Round* CurrentRound(Machine& m, Sampler& sampler, uint64_t round_id, absl::string_view verb);

inline constexpr uint32_t kTimeoutRetries = 1;

}  // namespace lockstep::core

#endif  // LOCKSTEP_BRIDGE_CORE_ROUNDS_H_
