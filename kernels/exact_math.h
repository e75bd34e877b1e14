#ifndef LOCKSTEP_KERNELS_EXACT_MATH_H_
#define LOCKSTEP_KERNELS_EXACT_MATH_H_

// exp and log of a float32, correctly rounded to float32 for every input, in plain IEEE float64
// operations (no libm, no CUDA math library, no FMA), for host and device. The result is the
// mathematical value rounded once to nearest even, so any other correctly rounded
// implementation gives the same bytes. Both were compared with a 113-bit reference over all
// 2^32 inputs; exact_math_test.cc keeps the hard cases and a strided sample.
//
// Special cases: exp(-inf) = +0, exp(+inf) = +inf, log(+-0) = -inf, log(x < 0) = NaN,
// log(+inf) = +inf; NaN gives NaN. Every NaN result is the canonical one.
//
// Example:
//   float e = ExpF32(-g);
//   float sigmoid = 1.0f / (1.0f + e);

#include <cstdint>

#include "kernels/float_formats.h"
#include "kernels/hd.h"

namespace lockstep::kernels {

namespace internal {

// ln 2 in two parts: k * kLn2Hi is exact for every |k| < 2^20.
inline constexpr double kLn2Hi = 6.93147180369123816490e-01;
inline constexpr double kLn2Lo = 1.90821492927058770002e-10;

// A log whose float64 value lies so close to the midpoint of two float32 values that rounding it
// again goes wrong.
struct LogException {
  uint32_t input_bits;
  uint32_t result_bits;
};

// 2^n as a float64, for -1022 <= n <= 1023.
LOCKSTEP_HD inline double PowerOfTwo(int n) {
  return F64FromBits(static_cast<uint64_t>(1023 + n) << 52);
}

// e^x as a float64 with an error below 1 ulp, for -104 <= x <= 89.
LOCKSTEP_HD inline double ExpF64Core(double x) {
  constexpr double kInverseLn2 = 1.44269504088896338700e+00;
  constexpr double kRoundToInteger = 0x1.8p52;
  const double shifted = x * kInverseLn2 + kRoundToInteger;
  const double n = shifted - kRoundToInteger;
  // |r| <= ln(2) / 2 and a little; the first difference is exact.
  const double r = (x - n * kLn2Hi) - n * kLn2Lo;
  // The series of (e^r - 1 - r) / r^2 up to r^11 / 13!; what is left out is below 2^-57.
  double q = 1.0 / 6227020800.0;
  q = q * r + 1.0 / 479001600.0;
  q = q * r + 1.0 / 39916800.0;
  q = q * r + 1.0 / 3628800.0;
  q = q * r + 1.0 / 362880.0;
  q = q * r + 1.0 / 40320.0;
  q = q * r + 1.0 / 5040.0;
  q = q * r + 1.0 / 720.0;
  q = q * r + 1.0 / 120.0;
  q = q * r + 1.0 / 24.0;
  q = q * r + 1.0 / 6.0;
  q = q * r + 0.5;
  const double p = 1.0 + (r + (r * r) * q);
  return p * PowerOfTwo(static_cast<int>(n));
}

// ln(x) as a float64 with an error below 1 ulp, for finite x > 0 that a float32 can hold.
LOCKSTEP_HD inline double LogF64Core(double x) {
  // x = 2^k * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)).
  constexpr uint64_t kMantissa = (uint64_t{1} << 52) - 1;
  constexpr uint64_t kSqrt2Mantissa = 0x6A09E667F3BCD;
  const uint64_t bits = BitsOf(x);
  const uint64_t mantissa = bits & kMantissa;
  const int up = mantissa >= kSqrt2Mantissa ? 1 : 0;
  const int k = static_cast<int>(bits >> 52) - 1023 + up;
  const double f = F64FromBits(mantissa | (static_cast<uint64_t>(1023 - up) << 52)) - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  // ln(1 + f) = f - f^2/2 + s * (f^2/2 + R(z)); the minimax coefficients are those of FDLIBM.
  double t = 1.479819860511658591e-01;
  t = t * z + 1.531383769920937332e-01;
  t = t * z + 1.818357216161805012e-01;
  t = t * z + 2.222219843214978396e-01;
  t = t * z + 2.857142874366239149e-01;
  t = t * z + 3.999999999940941908e-01;
  t = t * z + 6.666666666666735130e-01;
  const double r = z * t;
  const double half_square = 0.5 * f * f;
  const double dk = static_cast<double>(k);
  return dk * kLn2Hi - ((half_square - (s * (half_square + r) + dk * kLn2Lo)) - f);
}

}  // namespace internal

// Any float32, to float32. Overflows to +inf above 0x42B17217, underflows through the denormals
// to +0.
LOCKSTEP_HD inline float ExpF32(float x) {
  if (x != x) return F32FromBits(kF32CanonicalNan);
  if (x > 89.0f) return F32FromBits(0x7F800000);
  if (x < -104.0f) return 0.0f;
  return static_cast<float>(internal::ExpF64Core(static_cast<double>(x)));
}

// Any float32, to float32.
LOCKSTEP_HD inline float LogF32(float x) {
  constexpr uint32_t kInfinity = 0x7F800000;
  if (x == 0.0f) return F32FromBits(0xFF800000);
  if (!(x > 0.0f)) return F32FromBits(kF32CanonicalNan);
  const uint32_t bits = BitsOf(x);
  if (bits == kInfinity) return x;
  // All of them; also a correctly rounded float64 log would go wrong here.
  constexpr internal::LogException kExceptions[] = {
      {0x3C413D3A, 0xC08E158F}, {0x41178FEB, 0x400FE5E7}, {0x4C5D65A5, 0x418F034B},
      {0x65D890D3, 0x4254D1F9}, {0x6F31A8EC, 0x42845A89},
  };
  for (const internal::LogException& e : kExceptions) {
    if (bits == e.input_bits) return F32FromBits(e.result_bits);
  }
  return static_cast<float>(internal::LogF64Core(static_cast<double>(x)));
}

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_EXACT_MATH_H_
