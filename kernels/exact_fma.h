#ifndef LOCKSTEP_KERNELS_EXACT_FMA_H_
#define LOCKSTEP_KERNELS_EXACT_FMA_H_

// A correctly rounded float32 fused multiply-add in plain float64 arithmetic, for processors and
// vector targets without an FMA instruction. Equal to the instruction for every input, denormal
// and overflowing results included (a NaN result is some NaN; stores make it canonical).
//
// Example:
//   accumulator = ExactFma(a, b, accumulator);

#include <cstdint>

#include "kernels/float_formats.h"

namespace lockstep::kernels {

inline float ExactFma(float a, float b, float c) {
  // 24 + 24 significant bits fit in 53 and the exponents in float64's, so the product is exact.
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = static_cast<double>(c);
  double sum = product + addend;
  // The exact rounding error of the sum (Knuth's TwoSum); NaN when an operand is not finite.
  const double addend_part = sum - product;
  const double error = (product - (sum - addend_part)) + (addend - addend_part);
  // Rounding to odd in 53 bits (53 >= 24 + 2) makes the second rounding below the only one.
  if (error > 0 || error < 0) {
    const uint64_t bits = BitsOf(sum);
    if ((bits & 1) == 0) sum = F64FromBits((sum > 0) == (error > 0) ? bits + 1 : bits - 1);
  }
  return static_cast<float>(sum);
}

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_EXACT_FMA_H_
