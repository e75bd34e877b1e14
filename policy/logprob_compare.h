#ifndef LOCKSTEP_POLICY_LOGPROB_COMPARE_H_
#define LOCKSTEP_POLICY_LOGPROB_COMPARE_H_

// Compares the sampler's decision-time log-probabilities with the trainer's re-scored ones.
// The gate is equality of float32 bits. The K estimators are a gauge beside it: in float32
// the usual K3 is 0 for most small differences, so K3 = 0 proves nothing.
//
// With d = trainer - sampler in float64, means over all tokens:
//   k1 = mean(-d)   k2 = mean(d * d / 2)   k3 = mean(expm1(d) - d)
// A token whose bits agree counts d = 0, also when both are the same NaN.
//
// Example:
//   LogprobComparison c = CompareLogprobs(rollout.sampler_logprobs, rescore.trainer_logprobs);
//   if (c.mismatched_tokens > 0) Refuse(...);

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "policy/protocol.h"

namespace lockstep {

struct LogprobComparison {
  uint64_t compared_tokens = 0;
  uint64_t mismatched_tokens = 0;
  std::vector<TokenMismatch> mismatches;  // the first kMaxReportedMismatches
  double k1 = 0, k2 = 0, k3 = 0;
  double max_abs_diff = 0;  // NaN when a differing pair has a NaN
  // mean((exp(d) - d) - 1) with every step in float32, as it is usually computed.
  float k3_float32_naive = 0;
};

// Both float32, one per token, of equal length.
LogprobComparison CompareLogprobs(absl::Span<const float> sampler, absl::Span<const float> trainer);

// A log-probability of a token that was chosen is finite and not above 0; float32 log-softmax
// with approximated exp and log may end this much above it.
inline constexpr float kLogprobSlack = 1e-6f;
bool IsUsableLogprob(float logprob);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_LOGPROB_COMPARE_H_
