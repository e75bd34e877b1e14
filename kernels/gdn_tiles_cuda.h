#ifndef LOCKSTEP_KERNELS_GDN_TILES_CUDA_H_
#define LOCKSTEP_KERNELS_GDN_TILES_CUDA_H_

// Four floats at a time, for the kernels of K = V = 128; for .cu files alone.
//
// Example:
//   AddScaled(w, Four(&state[k][4 * group]), acc);

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/float_formats.h"

namespace lockstep::kernels {

inline constexpr int kWideDim = 128;
inline constexpr int kLanes = 32;

__device__ inline float4& Four(float* at) { return *reinterpret_cast<float4*>(at); }
__device__ inline const float4& Four(const float* at) {
  return *reinterpret_cast<const float4*>(at);
}

// Bytes of four elements, which is also their alignment.
inline uintptr_t FourBytes(FloatType type) { return 4 * SizeOf(type); }

__device__ inline float4 LoadFour(FloatType type, const void* from, int64_t at) {
  if (type == FloatType::kF32)
    return __ldg(reinterpret_cast<const float4*>(static_cast<const float*>(from) + at));
  const uint2 packed =
      __ldg(reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(from) + at));
  return make_float4(F32FromBits(packed.x << 16), F32FromBits(packed.x & 0xFFFF0000),
                     F32FromBits(packed.y << 16), F32FromBits(packed.y & 0xFFFF0000));
}

__device__ inline void StoreFour(FloatType type, void* to, int64_t at, const float4& x) {
  if (type == FloatType::kF32) {
    *reinterpret_cast<float4*>(static_cast<float*>(to) + at) =
        make_float4(F32::Store(x.x), F32::Store(x.y), F32::Store(x.z), F32::Store(x.w));
    return;
  }
  const uint2 packed = {uint32_t{Bf16::Store(x.x)} | uint32_t{Bf16::Store(x.y)} << 16,
                        uint32_t{Bf16::Store(x.z)} | uint32_t{Bf16::Store(x.w)} << 16};
  *reinterpret_cast<uint2*>(static_cast<uint16_t*>(to) + at) = packed;
}

__device__ inline float4 Scaled(const float4& x, float by) {
  return make_float4(__fmul_rn(x.x, by), __fmul_rn(x.y, by), __fmul_rn(x.z, by),
                     __fmul_rn(x.w, by));
}

// Four more steps of one chain.
__device__ inline float Dot(const float4& a, const float4& b, float acc) {
  acc = __fmaf_rn(a.x, b.x, acc);
  acc = __fmaf_rn(a.y, b.y, acc);
  acc = __fmaf_rn(a.z, b.z, acc);
  return __fmaf_rn(a.w, b.w, acc);
}

// One more step of four chains.
__device__ inline void AddScaled(float a, const float4& b, float (&acc)[4]) {
  acc[0] = __fmaf_rn(a, b.x, acc[0]);
  acc[1] = __fmaf_rn(a, b.y, acc[1]);
  acc[2] = __fmaf_rn(a, b.z, acc[2]);
  acc[3] = __fmaf_rn(a, b.w, acc[3]);
}

// What a block may have on the calling thread's device; 0 when that cannot be told.
inline size_t SharedMemoryOfBlock() {
  int device = 0;
  int bytes = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
          cudaSuccess) {
    return 0;
  }
  return static_cast<size_t>(bytes);
}

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_GDN_TILES_CUDA_H_
