#include "policy/logprob_compare.h"

#include <bit>
#include <cmath>

namespace lockstep {

LogprobComparison CompareLogprobs(absl::Span<const float> sampler,
                                  absl::Span<const float> trainer) {
  LogprobComparison out;
  out.compared_tokens = sampler.size();
  if (sampler.empty()) return out;
  double sum_k1 = 0, sum_k2 = 0, sum_k3 = 0;
  float sum_naive = 0;
  for (size_t i = 0; i < sampler.size(); ++i) {
    const uint32_t sampler_bits = std::bit_cast<uint32_t>(sampler[i]);
    const uint32_t trainer_bits = std::bit_cast<uint32_t>(trainer[i]);
    if (sampler_bits == trainer_bits) continue;
    ++out.mismatched_tokens;
    if (out.mismatches.size() < kMaxReportedMismatches) {
      out.mismatches.push_back({i, sampler_bits, trainer_bits});
    }
    const double d = static_cast<double>(trainer[i]) - static_cast<double>(sampler[i]);
    sum_k1 += -d;
    sum_k2 += d * d / 2;
    sum_k3 += std::expm1(d) - d;
    // A NaN stays: no later difference may hide it.
    if (std::isnan(d) || std::abs(d) > out.max_abs_diff) out.max_abs_diff = std::abs(d);
    const float naive_d = trainer[i] - sampler[i];
    sum_naive += (std::exp(naive_d) - naive_d) - 1.0f;
  }
  const double tokens = static_cast<double>(sampler.size());
  out.k1 = sum_k1 / tokens;
  out.k2 = sum_k2 / tokens;
  out.k3 = sum_k3 / tokens;
  out.k3_float32_naive = sum_naive / static_cast<float>(sampler.size());
  return out;
}

bool IsUsableLogprob(float logprob) { return std::isfinite(logprob) && logprob <= kLogprobSlack; }

}  // namespace lockstep
