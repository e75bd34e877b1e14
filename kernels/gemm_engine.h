#ifndef LOCKSTEP_KERNELS_GEMM_ENGINE_H_
#define LOCKSTEP_KERNELS_GEMM_ENGINE_H_

// The one implementation of "every output is an ascending chain of fused multiply-adds over k",
// on operands of any type and layout. Gemm() is its validated door for the published programs;
// the LoRA backward uses it with float32 and transposed operands.
//
// Example (dx = dy * W, W stored [N, K]):
//   ChainProduct p;
//   p.a = {dy, FloatType::kBf16, n, 1};
//   p.b = {w, FloatType::kBf16, 1, k};   // row h of the operand is column h of W
//   p.m = tokens, p.n = k, p.k = n;
//   p.out = dx, p.out_type = FloatType::kBf16, p.out_row_stride = k;
//   RunChainProduct(p);

#include <cstddef>
#include <cstdint>

#include "kernels/types.h"

namespace lockstep::kernels {

// A matrix whose element (row, k) is data[row * row_stride + k * k_stride].
struct ChainOperand {
  const void* data = nullptr;
  FloatType type = FloatType::kBf16;  // BF16, F16 or F32
  size_t row_stride = 0;
  size_t k_stride = 1;
};

struct ChainProduct {
  ChainOperand a;  // m rows
  ChainOperand b;  // n rows
  size_t m = 0;
  size_t n = 0;
  size_t k = 0;       // at least 1
  size_t tile_k = 0;  // 0: one chain; otherwise chains of this length, their sums added in order
  // The sums go on from those in out (float32, no tiles) instead of +0: a chain in two calls.
  bool continues = false;
  void* out = nullptr;
  FloatType out_type = FloatType::kF32;
  size_t out_row_stride = 0;
  int threads = 1;
};

// Unchecked: sizes are positive, pointers valid, tile_k divides kChainBlockK.
void RunChainProduct(const ChainProduct& product);

// K is walked in blocks of this length; sums stay float32 across blocks, so it changes no byte.
inline constexpr size_t kChainBlockK = 256;

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_GEMM_ENGINE_H_
