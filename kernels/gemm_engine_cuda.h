#ifndef LOCKSTEP_KERNELS_GEMM_ENGINE_CUDA_H_
#define LOCKSTEP_KERNELS_GEMM_ENGINE_CUDA_H_

// The CUDA side of gemm_engine.h: chains of fused multiply-adds over k on operands of any type and
// layout, one product or a batch of them, also under a causal limit. GemmCuda() is the validated
// door for the published programs; adapters and attention use it directly.
//
// Example (dx = dy * W, W stored [N, K]):
//   CudaChainProduct p;
//   p.a = {dy, FloatType::kBf16, n, 1};
//   p.b = {w, FloatType::kBf16, 1, k};
//   p.m = tokens, p.n = k, p.k = n;
//   p.out = dx, p.out_type = FloatType::kBf16, p.out_row_stride = k;
//   LOCKSTEP_RETURN_IF_ERROR(EnqueueChainProduct(p, stream));

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda_support.h"
#include "kernels/gemm_engine.h"
#include "kernels/types.h"

namespace lockstep::kernels {

// What row i of a sees under a causal limit: `causal_first` + i + 1 keys.
enum class Causal : uint8_t {
  kNone,
  kColumns,  // outputs beyond the limit are not needed and may be left unwritten
  kDepth,    // the chain of row i ends there
};

struct CudaChainProduct {
  ChainOperand a;  // m rows
  ChainOperand b;  // n rows
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool tiles = false;  // `gemm/k_tile@v1`: chains of kGemmTileK, their sums added in order
  void* out = nullptr;
  FloatType out_type = FloatType::kF32;
  int64_t out_row_stride = 0;
  // Product i of a batch: a and out move by i, b by i / b_share of these elements.
  int64_t batches = 1;
  int64_t a_batch_stride = 0;
  int64_t b_batch_stride = 0;
  int64_t out_batch_stride = 0;
  int64_t b_share = 1;
  Causal causal = Causal::kNone;
  int64_t causal_first = 0;
  // What is stored: round(scale * sum), and with a base [m, n] round(base + scale * sum), one
  // multiplication and one addition. `base` may be `out`. Not for batches.
  float scale = 1.0f;
  const void* base = nullptr;
  FloatType base_type = FloatType::kBf16;  // BF16 or F32
  int64_t base_row_stride = 0;
};

// Unchecked but for sizes beyond a launch: sizes are positive, pointers valid.
absl::Status EnqueueChainProduct(const CudaChainProduct& product, CudaStream stream);

namespace internal {

// The three ways; each computes any product that it is fit for.

// At most this many rows of one operand: read the other once, at memory speed.
inline constexpr int64_t kSkinnyRows = 64;
absl::Status EnqueueSkinny(const CudaChainProduct& product, CudaStream stream);

// Large products of aligned 16-bit rows.
absl::Status EnqueueTiled(const CudaChainProduct& product, CudaStream stream);

// Any type, layout, batch and limit.
absl::Status EnqueueStrided(const CudaChainProduct& product, CudaStream stream);

}  // namespace internal

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_GEMM_ENGINE_CUDA_H_
