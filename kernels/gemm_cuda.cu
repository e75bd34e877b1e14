#include <algorithm>
#include <cstdint>

#include "kernels/gemm_cuda.h"
#include "kernels/gemm_engine_cuda.h"

namespace lockstep::kernels {
namespace {

// 16-byte reads along k in every row.
bool HasVectorRows(const ChainOperand& x, int64_t rows) {
  constexpr size_t kVector = 8;
  return (x.type == FloatType::kBf16 || x.type == FloatType::kF16) && x.k_stride == 1 &&
         reinterpret_cast<uintptr_t>(x.data) % 16 == 0 &&
         (rows == 1 || x.row_stride % kVector == 0);
}

ChainOperand Operand(const void* data, FloatType type, int64_t stride, int64_t columns) {
  return {data, type, static_cast<size_t>(stride == 0 ? columns : stride), 1};
}

}  // namespace

absl::Status EnqueueChainProduct(const CudaChainProduct& p, CudaStream stream) {
  const bool plain = p.batches == 1 && p.causal == Causal::kNone && p.base == nullptr &&
                     p.scale == 1.0f && p.a.type == p.b.type && HasVectorRows(p.a, p.m) &&
                     HasVectorRows(p.b, p.n);
  if (!plain) return internal::EnqueueStrided(p, stream);
  if (std::min(p.m, p.n) <= internal::kSkinnyRows) return internal::EnqueueSkinny(p, stream);
  return internal::EnqueueTiled(p, stream);
}

absl::Status GemmCuda(const GemmParams& p, CudaStream stream) {
  if (absl::Status status = CheckGemm(p); !status.ok()) return status;
  CudaChainProduct product;
  product.a = Operand(p.a, p.operand_type, p.a_row_stride, p.k);
  product.b = Operand(p.b, p.operand_type, p.b_row_stride, p.k);
  product.m = p.m, product.n = p.n, product.k = p.k;
  product.tiles = p.program == GemmProgram::kTile;
  product.out = p.out, product.out_type = p.out_type;
  product.out_row_stride = p.out_row_stride == 0 ? p.n : p.out_row_stride;
  return EnqueueChainProduct(product, stream);
}

}  // namespace lockstep::kernels
