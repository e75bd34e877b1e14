#ifndef LOCKSTEP_KERNELS_LAYER_STEPS_H_
#define LOCKSTEP_KERNELS_LAYER_STEPS_H_

// The scalar steps of the small programs that a decoder layer needs besides the large ones, for
// host and device (kernels/SPECIFICATION.md, "Small programs of a layer").
//
// Example:
//   float g = GdnDecayStep(Bf16::Load(a), dt_bias, a_log);

#include <cstdint>

#include "kernels/exact_fma.h"
#include "kernels/exact_math.h"
#include "kernels/float_formats.h"
#include "kernels/hd.h"
#include "kernels/silu_ieee.h"

namespace lockstep::kernels {

// Above it softplus(x) is x, as production models have it.
inline constexpr float kSoftplusThreshold = 20.0f;

// One rounding, on either side.
LOCKSTEP_HD inline float FusedMultiplyAdd(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return ExactFma(a, b, c);
#endif
}

LOCKSTEP_HD inline float SquareRoot(float x) {
#ifdef __CUDA_ARCH__
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

// log(1 + e) for e = exp(x), by log(u) * (e / (u - 1)) with u = 1 + e, which makes up for what the
// addition loses.
LOCKSTEP_HD inline float SoftplusStep(float x) {
  if (x > kSoftplusThreshold) return x;
  const float e = ExpF32(x);
  const float u = 1.0f + e;
  if (u == 1.0f) return e;
  return LogF32(u) * (e / (u - 1.0f));
}

// `gdn_decay/exp_softplus@v1`
LOCKSTEP_HD inline float GdnDecayStep(float a, float dt_bias, float a_log) {
  return Canonicalise(-(ExpF32(a_log) * SoftplusStep(a + dt_bias)));
}

// `sigmoid_gate/one_round@v1`, before its store
LOCKSTEP_HD inline float SigmoidGateStep(float x, float gate) { return x * SigmoidIeee(gate); }

// `gated_rmsnorm/pair_tree_silu@v1`, before its store
LOCKSTEP_HD inline float GatedNormStep(float x, float inv, float weight, float gate) {
  return ((x * inv) * weight) * SiluIeee(gate);
}

// The sum of values[0 .. count) by adjacent pairs, odd tail passed up; overwrites them.
LOCKSTEP_HD inline float PairTreeSumInPlace(float* values, int64_t count) {
  while (count > 1) {
    const int64_t half = count / 2;
    for (int64_t i = 0; i < half; ++i) values[i] = values[2 * i] + values[2 * i + 1];
    if (count % 2 != 0) values[half] = values[count - 1];
    count = (count + 1) / 2;
  }
  return values[0];
}

// 1 / sqrt(sum / columns + eps): one division, one addition, one root, one division.
LOCKSTEP_HD inline float InverseRms(float sum, float columns, float eps) {
  return 1.0f / SquareRoot(sum / columns + eps);
}

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_LAYER_STEPS_H_
