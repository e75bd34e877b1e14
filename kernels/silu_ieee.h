#ifndef LOCKSTEP_KERNELS_SILU_IEEE_H_
#define LOCKSTEP_KERNELS_SILU_IEEE_H_

// The computed SiLU realisation `silu/ieee@v1` and the logistic function that goes with it, for
// host and device (kernels/SPECIFICATION.md, "SiLU realisations").
//
// Example:
//   float s = SiluIeee(Bf16::Load(gate));

#include "kernels/exact_math.h"
#include "kernels/float_formats.h"
#include "kernels/hd.h"

namespace lockstep::kernels {

// g / (1 + exp(-g)): exp correctly rounded, then one float32 addition and one division. Where
// exp(-g) overflows the result is -0; g = -inf gives NaN. Every NaN is the canonical one.
LOCKSTEP_HD inline float SiluIeee(float g) { return Canonicalise(g / (1.0f + ExpF32(-g))); }

// 1 / (1 + exp(-g)), same steps.
LOCKSTEP_HD inline float SigmoidIeee(float g) { return Canonicalise(1.0f / (1.0f + ExpF32(-g))); }

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_SILU_IEEE_H_
