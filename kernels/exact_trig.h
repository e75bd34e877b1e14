#ifndef LOCKSTEP_KERNELS_EXACT_TRIG_H_
#define LOCKSTEP_KERNELS_EXACT_TRIG_H_

// Sine, cosine and power of float32, each the mathematical value rounded once to float32, for the
// tables of rotary embeddings. Host only: a table is made once and copied to the device, so there
// is no second implementation to agree with. Plain IEEE operations, no libm: float64 with a known
// error bound, and binary128 arithmetic for the rare argument whose value lies within the bound
// of a rounding boundary.
//
// Example:
//   const SinCosF32 entry = ExactSinCos(angle);   // 0 <= angle <= kMaxExactAngle

#include <cstdint>

namespace lockstep::kernels {

struct SinCosF32 {
  float sin;
  float cos;
};

// Angles are reduced exactly up to here.
inline constexpr float kMaxExactAngle = 0x1p24f;

// sin and cos of an angle in radians, 0 <= angle <= kMaxExactAngle.
SinCosF32 ExactSinCos(float angle);

// base^(-numerator / denominator) for finite base >= 1 and 0 <= numerator <= denominator with
// 1 <= denominator <= 2^20.
float ExactInversePower(float base, int64_t numerator, int64_t denominator);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_EXACT_TRIG_H_
