#ifndef LOCKSTEP_KERNELS_CUDA_HALF_H_
#define LOCKSTEP_KERNELS_CUDA_HALF_H_

// Loads and stores of BF16 and F16 on the device, eight elements at a time where alignment
// allows; for .cu files alone.
//
// Example:
//   float x[8];
//   Unpack<Format>(LoadEight(row + column), x);
//   StoreEight(out + column, Pack<Format>(x));

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/float_formats.h"

namespace lockstep::kernels {

// Elements of one 16-byte access.
inline constexpr int kEight = 8;

// The same values as Format::Load and Format::Store, with the device's own F16 conversions (exact
// and correctly rounded; a NaN is canonical at the store).
template <class Format>
__device__ inline float LoadHalf(uint16_t bits) {
  return Format::Load(bits);
}

template <>
__device__ inline float LoadHalf<F16>(uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}

template <class Format>
__device__ inline uint16_t StoreHalf(float x) {
  return Format::Store(x);
}

template <>
__device__ inline uint16_t StoreHalf<F16>(float x) {
  return x == x ? __half_as_ushort(__float2half_rn(x)) : kF16CanonicalNan;
}

// Through the cache's streaming path: each element of a large operand is used once.
__device__ inline uint4 LoadEight(const uint16_t* from) {
  return __ldcs(reinterpret_cast<const uint4*>(from));
}

__device__ inline void StoreEight(uint16_t* to, const uint4& packed) {
  __stcs(reinterpret_cast<uint4*>(to), packed);
}

// Element i of eight packed ones; i must be a constant after unrolling.
__device__ inline uint16_t Element(const uint4& packed, int i) {
  const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
  return static_cast<uint16_t>(i % 2 == 0 ? words[i / 2] : words[i / 2] >> 16);
}

template <class Format>
__device__ inline void Unpack(const uint4& packed, float (&x)[kEight]) {
#pragma unroll
  for (int i = 0; i < kEight; ++i) x[i] = LoadHalf<Format>(Element(packed, i));
}

// Two elements in one word, each rounded to nearest even, denormals kept; a NaN is some NaN.
template <class Format>
__device__ inline uint32_t RoundPair(float low, float high) {
  return (uint32_t{Format::Store(high)} << 16) | Format::Store(low);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <>
__device__ inline uint32_t RoundPair<Bf16>(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
#endif

template <>
__device__ inline uint32_t RoundPair<F16>(float low, float high) {
  return (uint32_t{__half_as_ushort(__float2half_rn(high))} << 16) |
         __half_as_ushort(__float2half_rn(low));
}

// One store and the load back; a NaN is some NaN.
template <class Format>
__device__ inline float Rounded(float x) {
  return LoadHalf<Format>(static_cast<uint16_t>(RoundPair<Format>(x, 0.0f)));
}

template <>
__device__ inline float Rounded<Bf16>(float x) {
  // The upper half of the word is the float32's.
  return F32FromBits(RoundPair<Bf16>(0.0f, x));
}

template <class Format>
__device__ inline uint4 Pack(const float (&x)[kEight]) {
  uint32_t words[4];
  bool nan = false;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = RoundPair<Format>(x[2 * i], x[2 * i + 1]);
    nan = nan || x[2 * i] != x[2 * i] || x[2 * i + 1] != x[2 * i + 1];
  }
  if (nan) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t high = StoreHalf<Format>(x[2 * i + 1]);
      words[i] = (high << 16) | StoreHalf<Format>(x[2 * i]);
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

// Up to eight elements from `from`, the rest zero, whatever the alignment.
__device__ inline uint4 LoadUpToEight(const uint16_t* from, int64_t count) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t low = 2 * i < count ? from[2 * i] : 0;
    const uint32_t high = 2 * i + 1 < count ? from[2 * i + 1] : 0;
    words[i] = (high << 16) | low;
  }
  return {words[0], words[1], words[2], words[3]};
}

__device__ inline void StoreUpToEight(uint16_t* to, const uint4& packed, int64_t count) {
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    if (i < count) to[i] = Element(packed, i);
  }
}

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_CUDA_HALF_H_
