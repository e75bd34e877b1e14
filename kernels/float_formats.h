#ifndef LOCKSTEP_KERNELS_FLOAT_FORMATS_H_
#define LOCKSTEP_KERNELS_FLOAT_FORMATS_H_

// Conversions between the storage formats and the arithmetic formats, for host and device.
// A load is exact. A store rounds once, to nearest with ties to even, in integer arithmetic;
// overflow gives infinity, denormals are kept, and any NaN becomes the canonical one
// (kernels/SPECIFICATION.md, "Loads and stores"). A program templated on a format names
// Bf16, F16 or F32.
//
// Example:
//   float g = Bf16::Load(bits);
//   uint16_t out = Bf16::Store(g * u);        // float32 -> bf16, one rounding
//   uint16_t sum = Bf16::StoreF64(total);     // float64 -> bf16, one rounding

#include <cstdint>
#include <cstring>

#include "kernels/hd.h"
#include "kernels/types.h"

namespace lockstep::kernels {

inline constexpr uint16_t kBf16CanonicalNan = 0x7FC0;
inline constexpr uint16_t kF16CanonicalNan = 0x7E00;
inline constexpr uint32_t kF32CanonicalNan = 0x7FC00000;
inline constexpr uint64_t kF64CanonicalNan = 0x7FF8000000000000;

LOCKSTEP_HD inline uint32_t BitsOf(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

LOCKSTEP_HD inline uint64_t BitsOf(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

LOCKSTEP_HD inline float F32FromBits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

LOCKSTEP_HD inline double F64FromBits(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

// Any NaN becomes the canonical one; everything else is unchanged.
LOCKSTEP_HD inline float Canonicalise(float x) {
  return x == x ? x : F32FromBits(kF32CanonicalNan);
}

LOCKSTEP_HD inline double Canonicalise(double x) {
  return x == x ? x : F64FromBits(kF64CanonicalNan);
}

namespace internal {

// Rounds the finite or infinite magnitude `mag` (sign bit clear) of an IEEE format with
// kFromMantissa explicit mantissa bits and bias kFromBias to one with kToMantissa bits and bias
// kToBias, to nearest even. kToMantissa < kFromMantissa.
template <int kFromMantissa, int kFromBias, int kToMantissa, int kToBias>
LOCKSTEP_HD inline uint16_t RoundMagnitude(uint64_t mag) {
  constexpr int kDropped = kFromMantissa - kToMantissa;
  constexpr uint64_t kInfinity = uint64_t{2 * kToBias + 1} << kToMantissa;
  constexpr int kRebias = kFromBias - kToBias;
  const int exponent = static_cast<int>(mag >> kFromMantissa);
  if (exponent > kRebias) {
    // A normal result: rounding carries into the exponent by itself, and past the largest finite
    // value into infinity.
    mag -= static_cast<uint64_t>(kRebias) << kFromMantissa;
    const uint64_t half_minus_one = (uint64_t{1} << (kDropped - 1)) - 1;
    const uint64_t rounded = (mag + half_minus_one + ((mag >> kDropped) & 1)) >> kDropped;
    return static_cast<uint16_t>(rounded < kInfinity ? rounded : kInfinity);
  }
  const int shift = kDropped + kRebias + 1 - exponent;
  if (shift > kFromMantissa + 1) return 0;  // below half of the smallest denormal
  const uint64_t hidden = uint64_t{1} << kFromMantissa;
  const uint64_t significand = (mag & (hidden - 1)) | hidden;
  const uint64_t kept = significand >> shift;
  const uint64_t rest = significand & ((uint64_t{1} << shift) - 1);
  const uint64_t half = uint64_t{1} << (shift - 1);
  const bool up = rest > half || (rest == half && (kept & 1) != 0);
  return static_cast<uint16_t>(kept + (up ? 1 : 0));
}

}  // namespace internal

// bfloat16: 1 sign, 8 exponent and 7 mantissa bits.
struct Bf16 {
  using Storage = uint16_t;
  static constexpr FloatType kType = FloatType::kBf16;

  LOCKSTEP_HD static float Load(uint16_t bits) {
    return F32FromBits(static_cast<uint32_t>(bits) << 16);
  }

  LOCKSTEP_HD static uint16_t Store(float x) {
    const uint32_t bits = BitsOf(x);
    if (x != x) return kBf16CanonicalNan;
    return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
  }

  LOCKSTEP_HD static uint16_t StoreF64(double x) {
    if (x != x) return kBf16CanonicalNan;
    const uint64_t bits = BitsOf(x);
    const uint16_t sign = static_cast<uint16_t>((bits >> 48) & 0x8000);
    return sign | internal::RoundMagnitude<52, 1023, 7, 127>(bits & 0x7FFFFFFFFFFFFFFF);
  }
};

// IEEE binary16: 1 sign, 5 exponent and 10 mantissa bits.
struct F16 {
  using Storage = uint16_t;
  static constexpr FloatType kType = FloatType::kF16;

  LOCKSTEP_HD static float Load(uint16_t bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
    const uint32_t mag = bits & 0x7FFF;
    if (mag >= 0x7C00) return F32FromBits(sign | 0x7F800000 | ((mag & 0x3FF) << 13));
    if (mag >= 0x0400) return F32FromBits(sign | ((mag << 13) + (uint32_t{127 - 15} << 23)));
    constexpr float kSmallestDenormal = 0x1p-24f;
    const float value = static_cast<float>(mag) * kSmallestDenormal;
    return F32FromBits(sign | BitsOf(value));
  }

  LOCKSTEP_HD static uint16_t Store(float x) {
    if (x != x) return kF16CanonicalNan;
    const uint32_t bits = BitsOf(x);
    const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
    return sign | internal::RoundMagnitude<23, 127, 10, 15>(bits & 0x7FFFFFFF);
  }

  LOCKSTEP_HD static uint16_t StoreF64(double x) {
    if (x != x) return kF16CanonicalNan;
    const uint64_t bits = BitsOf(x);
    const uint16_t sign = static_cast<uint16_t>((bits >> 48) & 0x8000);
    return sign | internal::RoundMagnitude<52, 1023, 10, 15>(bits & 0x7FFFFFFFFFFFFFFF);
  }
};

// IEEE binary32, stored as it is computed but for the NaN.
struct F32 {
  using Storage = float;
  static constexpr FloatType kType = FloatType::kF32;

  LOCKSTEP_HD static float Load(float x) { return x; }
  LOCKSTEP_HD static float Store(float x) { return Canonicalise(x); }
  LOCKSTEP_HD static float StoreF64(double x) { return Canonicalise(static_cast<float>(x)); }
};

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_FLOAT_FORMATS_H_
