#ifndef LOCKSTEP_POLICY_ADMISSION_H_
#define LOCKSTEP_POLICY_ADMISSION_H_

// Decides whether a rollout may be trained on (contracts.md section 4), from facts that the
// caller has gathered. Pure: the same facts give the same decision. Every check that can be
// made is made; the first failing one is the reason and all are listed.
//
// Rules that the specification leaves open:
// - A sampler's history is that of its live incarnation. Without one (peer unknown, other
//   incarnation) nothing is said about versions, caches, digests and probes: the rollout is
//   refused already.
// - "Live then" is judged by order: the spans' versions must have been activated on the
//   sampler, one after the other as the spans name them.
// - A rollout's cache epoch is the one it ended under. Its ticket is that of its last span's
//   version under that cache epoch.
// - Lag counts the versions that went live anywhere in the run after the oldest span's, not
//   the distance of their numbers.
// - Log-probabilities are judged at level `tokens`, and must be one a token. A value that no
//   chosen token can have (NaN, infinite, above 0 by more than kLogprobSlack) refuses at every
//   level, also when the trainer's bits agree: it would poison the update. Levels below
//   `tokens` accept a rollout that carries none.
// - Where trainer log-probabilities are at hand below level `tokens` they are compared and
//   reported, and decide nothing.
// - A probe with no components (0/0) shows nothing: an exact family is refused for it. Family
//   `none` claims no bytes, so nothing is missing there.
// - A tolerance counts for family `none` only; an exact family that states one is judged by
//   bits.
//
// Example:
//   AdmissionFacts facts = ...;
//   Decision decision = DecideAdmission(rollout, facts, policy);

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "policy/contract.h"
#include "policy/ids.h"
#include "policy/protocol.h"

namespace lockstep {

// A version became live on the sampler, under the live incarnation.
struct ActivationFacts {
  uint64_t version = 0;
  uint64_t cache_epoch = 0;    // after the flush
  bool digests_equal = false;  // installed bytes against the trainer's
  uint32_t components_verified = 0;
  uint32_t components_total = 0;
};

struct SamplerFacts {
  bool known = false;
  std::optional<Incarnation> live_incarnation;  // none: no process of that name is live
  bool fenced = false;
  std::string fence_reason;
  std::string contract_id;  // as agreed at registration
  bool exact_family = true;
  // In the order of activation; activations of versions that no span names may be left out.
  std::vector<ActivationFacts> activations;
};

enum class RescoreState { kAwaited, kArrived, kTimedOut };

struct AdmissionFacts {
  std::string run;
  Digest256 ticket_key{};
  SamplerFacts sampler;
  // Of the versions that the spans name, those this run has ever sealed.
  std::vector<uint64_t> known_versions;
  // Versions that were live anywhere in the run when the rollout was submitted, ascending.
  absl::Span<const uint64_t> live_versions;
  RescoreState rescore = RescoreState::kAwaited;
  absl::Span<const float> trainer_logprobs;  // when arrived
  int64_t rescore_timeout_ms = 0;            // for the message
  // Content of an earlier rollout with this id. A repeat with equal content is not a
  // duplicate: the caller answers it from its record and need not ask here.
  std::optional<Digest256> prior_content;
};

struct AdmissionPolicy {
  uint64_t max_lag = 0;  // 0: strict
  bool allow_mixed_versions = false;
  AdmissionLevel minimum_level = AdmissionLevel::kWeights;  // raises the rollout's own level
  std::optional<Tolerance> tolerance;
};

// kPending only when nothing fails and the trainer's log-probabilities are awaited.
Decision DecideAdmission(const Rollout& rollout, const AdmissionFacts& facts,
                         const AdmissionPolicy& policy);

absl::string_view AdmissionLevelName(AdmissionLevel level);  // "weights", "kernels", "tokens"

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_ADMISSION_H_
