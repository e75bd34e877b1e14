#ifndef LOCKSTEP_KERNELS_GDN_DEVICE_CUDA_H_
#define LOCKSTEP_KERNELS_GDN_DEVICE_CUDA_H_

// Scalar steps that the kernels of the gated delta net share; for .cu files alone.
//
// Example:
//   const float k_hat = NormalisedKey(dims, work, tokens, token, key_head, c);

#include <cstdint>

#include "kernels/exact_math.h"
#include "kernels/float_formats.h"
#include "kernels/gdn_work_cuda.h"

namespace lockstep::kernels {

__device__ inline float LoadFloat(FloatType type, const void* from, int64_t at) {
  if (type == FloatType::kBf16) return Bf16::Load(static_cast<const uint16_t*>(from)[at]);
  return static_cast<const float*>(from)[at];
}

__device__ inline void StoreFloat(FloatType type, void* to, int64_t at, float x) {
  if (type == FloatType::kBf16) {
    static_cast<uint16_t*>(to)[at] = Bf16::Store(x);
  } else {
    static_cast<float*>(to)[at] = F32::Store(x);
  }
}

// `token` counts within `tokens`.
__device__ inline int64_t KeyRow(const GdnDims& dims, const GdnTokens& tokens, int token,
                                 int key_head) {
  return (tokens.first + token) * dims.key_heads + key_head;
}

__device__ inline int64_t ValueRow(const GdnDims& dims, const GdnTokens& tokens, int token,
                                   int head) {
  return (tokens.first + token) * dims.value_heads + head;
}

__device__ inline float KeyNorm(const GdnDims& dims, const GdnWork& work, int token, int key_head) {
  return work.k_norms[int64_t{token} * dims.key_heads + key_head];
}

__device__ inline float QueryNorm(const GdnDims& dims, const GdnWork& work, int token,
                                  int key_head) {
  return work.q_norms[int64_t{token} * dims.key_heads + key_head];
}

__device__ inline float NormalisedKey(const GdnDims& dims, const GdnWork& work,
                                      const GdnTokens& tokens, int token, int key_head, int c) {
  const int64_t at = KeyRow(dims, tokens, token, key_head) * dims.key_dim + c;
  return __fmul_rn(LoadFloat(dims.input_type, dims.k, at), KeyNorm(dims, work, token, key_head));
}

__device__ inline float NormalisedQuery(const GdnDims& dims, const GdnWork& work,
                                        const GdnTokens& tokens, int token, int key_head, int c) {
  const int64_t at = KeyRow(dims, tokens, token, key_head) * dims.key_dim + c;
  return __fmul_rn(
      __fmul_rn(LoadFloat(dims.input_type, dims.q, at), QueryNorm(dims, work, token, key_head)),
      dims.scale);
}

// A chunk's gates: G, e^G and beta of each of its tokens; by all threads of a block.
struct ChunkGates {
  float sum[kChunk];
  float grown[kChunk];
  float beta[kChunk];

  __device__ void Load(const GdnDims& dims, const GdnTokens& tokens, int first_token, int count,
                       int head) {
    const int i = static_cast<int>(threadIdx.x);
    if (i < kChunk) {
      // Past the end nothing counts, but is read.
      const int64_t at = ValueRow(dims, tokens, first_token + i, head);
      sum[i] = i < count ? LoadFloat(dims.gate_type, dims.g, at) : 0.0f;
      beta[i] = i < count ? LoadFloat(dims.gate_type, dims.beta, at) : 0.0f;
    }
    __syncthreads();
    if (i == 0) {
      float total = sum[0];
      for (int j = 1; j < count; ++j) {
        total = __fadd_rn(total, sum[j]);
        sum[j] = total;
      }
    }
    __syncthreads();
    if (i < kChunk) grown[i] = i < count ? ExpF32(sum[i]) : 0.0f;
    __syncthreads();
  }

  // E[i, j] = exp(G_i - G_j).
  __device__ float Decay(int i, int j) const { return ExpF32(__fsub_rn(sum[i], sum[j])); }
};

// Rows of an ascending chain: acc[r] = fma over x of a[r * a_stride + x] * b[x * b_stride].
template <int kRows>
__device__ inline void ChainRows(const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                                 int length, float (&acc)[kRows]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) acc[r] = 0.0f;
  for (int x = 0; x < length; ++x) {
    const float right = b[x * b_stride];
#pragma unroll
    for (int r = 0; r < kRows; ++r) acc[r] = __fmaf_rn(a[r * a_stride + x], right, acc[r]);
  }
}

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_GDN_DEVICE_CUDA_H_
