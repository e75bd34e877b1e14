#ifndef LOCKSTEP_KERNELS_GEMM_H_
#define LOCKSTEP_KERNELS_GEMM_H_

// Exact matrix product out = a * b^T: `gemm/k_chain@v1` and `gemm/k_tile@v1`
// (kernels/SPECIFICATION.md, "GEMM"). A result depends on its row of a, its row of b and K alone:
// never on M, N, tiling, instruction set or thread count.
//
// Example:
//   GemmParams p;
//   p.program = GemmProgram::kChain;
//   p.operand_type = p.out_type = FloatType::kBf16;
//   p.m = tokens, p.n = features, p.k = hidden;
//   p.a = x, p.b = weight, p.out = y;
//   LOCKSTEP_RETURN_IF_ERROR(Gemm(p));

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/types.h"

namespace lockstep::kernels {

enum class GemmProgram : uint8_t { kChain, kTile };

inline constexpr char kGemmChainId[] = "gemm/k_chain@v1";
inline constexpr char kGemmTileId[] = "gemm/k_tile@v1";

// Length of one tile of `gemm/k_tile@v1` along K.
inline constexpr int64_t kGemmTileK = 64;

struct GemmParams {
  GemmProgram program = GemmProgram::kChain;
  FloatType operand_type = FloatType::kBf16;  // of a and b: BF16 or F16
  FloatType out_type = FloatType::kBf16;      // the operands', or F32: the sum itself, unrounded
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  const void* a = nullptr;  // [m, k]
  const void* b = nullptr;  // [n, k]
  void* out = nullptr;      // [m, n]; overlaps neither operand
  // Elements between consecutive rows; 0 means contiguous.
  int64_t a_row_stride = 0;
  int64_t b_row_stride = 0;
  int64_t out_row_stride = 0;
  int threads = 1;
};

// InvalidArgument for an unsupported type, a size below 1, a stride shorter than its row or a null
// pointer; FailedPrecondition when the thread's floating-point environment is not IEEE's.
absl::Status Gemm(const GemmParams& params);

// The errors alone, nothing computed; the CUDA twin refuses the same.
absl::Status CheckGemm(const GemmParams& params);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_GEMM_H_
