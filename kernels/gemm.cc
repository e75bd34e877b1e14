#include "kernels/gemm.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/fp_environment.h"
#include "kernels/gemm_engine.h"

namespace lockstep::kernels {
namespace {

size_t StrideOr(int64_t stride, int64_t columns) {
  return static_cast<size_t>(stride == 0 ? columns : stride);
}

}  // namespace

absl::Status CheckGemm(const GemmParams& p) {
  if (p.operand_type != FloatType::kBf16 && p.operand_type != FloatType::kF16) {
    return absl::InvalidArgumentError(
        absl::StrCat("gemm: expected a and b as BF16 or F16, got ", Name(p.operand_type)));
  }
  if (p.out_type != p.operand_type && p.out_type != FloatType::kF32) {
    return absl::InvalidArgumentError(absl::StrCat("gemm: expected out as ", Name(p.operand_type),
                                                   " like its operands, or F32, got ",
                                                   Name(p.out_type)));
  }
  if (p.m < 1 || p.n < 1 || p.k < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gemm: expected a [M,K] and b [N,K] with M, N and K of at least 1, got M=", p.m, " N=", p.n,
        " K=", p.k));
  }
  if (p.a == nullptr || p.b == nullptr || p.out == nullptr) {
    return absl::InvalidArgumentError("gemm: expected non-null a, b and out");
  }
  const auto fits = [](int64_t stride, int64_t columns) {
    return stride == 0 || stride >= columns;
  };
  if (!fits(p.a_row_stride, p.k) || !fits(p.b_row_stride, p.k) || !fits(p.out_row_stride, p.n)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gemm: expected row strides of 0 or at least K=", p.k, " (a, b) and N=", p.n,
        " (out), got ", p.a_row_stride, ", ", p.b_row_stride, " and ", p.out_row_stride));
  }
  return CheckFpEnvironment();
}

absl::Status Gemm(const GemmParams& p) {
  if (absl::Status status = CheckGemm(p); !status.ok()) return status;
  ChainProduct product;
  product.a = {p.a, p.operand_type, StrideOr(p.a_row_stride, p.k), 1};
  product.b = {p.b, p.operand_type, StrideOr(p.b_row_stride, p.k), 1};
  product.m = static_cast<size_t>(p.m);
  product.n = static_cast<size_t>(p.n);
  product.k = static_cast<size_t>(p.k);
  product.tile_k = p.program == GemmProgram::kTile ? kGemmTileK : 0;
  product.out = p.out;
  product.out_type = p.out_type;
  product.out_row_stride = StrideOr(p.out_row_stride, p.n);
  product.threads = p.threads;
  RunChainProduct(product);
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
