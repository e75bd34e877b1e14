#ifndef LOCKSTEP_KERNELS_DIGEST_SUMS_CUDA_H_
#define LOCKSTEP_KERNELS_DIGEST_SUMS_CUDA_H_

// The sums of `digest/paged@v1` inside a kernel; for .cu files alone.
//
// Example:
//   PartialSum sum;
//   sum.AddUnit(m, __ldg(keys + i), __ldg(keys + i + 1));
//   sum = WarpSum(sum);

#include <cstdint>

#include "kernels/digest.h"

namespace lockstep::kernels {

inline constexpr unsigned kFullWarp = 0xFFFFFFFF;
inline constexpr int kWarpLanes = 32;

struct PartialSum {
  uint64_t lane0 = 0;
  uint64_t lane1 = 0;
  uint64_t covered = 0;  // bytes in the low half, NaN elements in the high half

  // A unit or the part of one; the other bytes of `m` are 0.
  __device__ void AddUnit(uint32_t m, uint32_t key, uint32_t next_key) {
    lane0 += uint64_t{key} * m;
    lane1 += uint64_t{next_key} * m;
  }
  __device__ void AddNans(uint32_t count) { covered += uint64_t{count} << 32; }
};

// Every lane ends with the warp's sum.
__device__ inline PartialSum WarpSum(PartialSum sum) {
  for (int distance = kWarpLanes / 2; distance > 0; distance /= 2) {
    sum.lane0 += __shfl_xor_sync(kFullWarp, sum.lane0, distance);
    sum.lane1 += __shfl_xor_sync(kFullWarp, sum.lane1, distance);
    sum.covered += __shfl_xor_sync(kFullWarp, sum.covered, distance);
  }
  return sum;
}

// The bytes of a unit, of which `count` are there; any alignment.
__device__ inline uint32_t LoadUnitBytes(const uint8_t* from, uint32_t count) {
  uint32_t m = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    if (i < count) m |= static_cast<uint32_t>(from[i]) << (8 * i);
  }
  return m;
}

// Four units at a multiple of 16 bytes in the page.
__device__ inline void AddGrain(PartialSum& sum, const uint32_t* keys, uint32_t in_page,
                                const uint4& x) {
  const uint32_t unit = in_page / 4;
  const uint4 k = __ldg(reinterpret_cast<const uint4*>(keys + unit));
  sum.AddUnit(x.x, k.x, k.y);
  sum.AddUnit(x.y, k.y, k.z);
  sum.AddUnit(x.z, k.z, k.w);
  sum.AddUnit(x.w, k.w, __ldg(keys + unit + 4));
}

// What is summed of a page elsewhere adds up there, in any order.
__device__ inline void AddToPage(PageSum& page, const PartialSum& sum) {
  if (sum.covered == 0) return;
  atomicAdd(reinterpret_cast<unsigned long long*>(&page.lane0), sum.lane0);
  atomicAdd(reinterpret_cast<unsigned long long*>(&page.lane1), sum.lane1);
  atomicAdd(reinterpret_cast<unsigned long long*>(&page.covered_bytes), sum.covered);
}

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_DIGEST_SUMS_CUDA_H_
