#ifndef LOCKSTEP_KERNELS_GEMM_CHAIN_CUDA_H_
#define LOCKSTEP_KERNELS_GEMM_CHAIN_CUDA_H_

// One output's sum and its store, as every kernel of the matrix product keeps them; for .cu files
// alone.
//
// Example:
//   Sum<kTiles> sum;
//   for (int64_t k = 0; k < depth; ++k) {
//     if (kTiles && k % kGemmTileK == 0 && k > 0) sum.EndTile(k == kGemmTileK);
//     sum.chain = __fmaf_rn(a[k], b[k], sum.chain);
//   }
//   StoreSum(out, type, index, sum.Total(depth > kGemmTileK));

#include <cstdint>

#include "kernels/cuda_half.h"
#include "kernels/types.h"

namespace lockstep::kernels {

// The running chain and, with tiles, the total of the tiles before it.
template <bool kTiles>
struct Sum {
  float chain = 0.0f;

  __device__ void EndTile(bool) {}
  __device__ float Total(bool) const { return chain; }
};

template <>
struct Sum<true> {
  float chain = 0.0f;
  float total;

  // The first tile's sum is the total.
  __device__ void EndTile(bool first) {
    total = first ? chain : total + chain;
    chain = 0.0f;
  }

  __device__ float Total(bool has_total) const { return has_total ? total + chain : chain; }
};

__device__ inline void StoreSum(void* out, FloatType type, int64_t at, float sum) {
  if (type == FloatType::kF32) {
    static_cast<float*>(out)[at] = F32::Store(sum);
  } else if (type == FloatType::kBf16) {
    static_cast<uint16_t*>(out)[at] = StoreHalf<Bf16>(sum);
  } else {
    static_cast<uint16_t*>(out)[at] = StoreHalf<F16>(sum);
  }
}

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_GEMM_CHAIN_CUDA_H_
