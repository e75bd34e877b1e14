#ifndef LOCKSTEP_KERNELS_RMSNORM_H_
#define LOCKSTEP_KERNELS_RMSNORM_H_

// Exact root-mean-square norm `rmsnorm/pair_tree@v2` (kernels/SPECIFICATION.md, "RMSNorm"), with
// an optional residual added first. A row depends on no other row, and its bytes on neither
// threads nor the way its sum is split.
//
// Example:
//   RmsNormParams p;
//   p.rows = tokens, p.columns = hidden;
//   p.x = x, p.weight = w, p.out = y;
//   p.eps = 1e-6f;
//   LOCKSTEP_RETURN_IF_ERROR(RmsNorm(p));

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/types.h"

namespace lockstep::kernels {

inline constexpr char kRmsNormId[] = "rmsnorm/pair_tree@v2";

// Up to here every H is a float32.
inline constexpr int64_t kRmsNormMaxColumns = int64_t{1} << 24;

struct RmsNormParams {
  int64_t rows = 0;
  int64_t columns = 0;          // H
  const uint16_t* x = nullptr;  // BF16 [rows, columns]
  const uint16_t* residual =
      nullptr;  // BF16 [rows, columns], optional: the row is round(residual + x)
  uint16_t* residual_out = nullptr;  // optional, with residual only: that row; may be `residual`
  const void* weight = nullptr;      // [columns], optional
  FloatType weight_type = FloatType::kBf16;  // BF16 or F32
  bool zero_centered = false;                // w is 1 + weight; needs a weight
  float eps = 1e-6f;                         // finite, not negative
  uint16_t* out = nullptr;                   // BF16 [rows, columns]; may be x, not residual_out
  // Elements between consecutive rows of x, residual, residual_out and out; 0 means contiguous.
  int64_t row_stride = 0;
  // 0: a row's sum of squares in one pass. A power of two from 2 on: in segments of that many
  // columns, whose sums are then summed. Same bytes; a choice of work division only.
  int64_t split_columns = 0;
  int threads = 1;
};

// InvalidArgument for a missing pointer, a size below 1, an unsupported type or option;
// FailedPrecondition when the thread's floating-point environment is not IEEE's.
absl::Status RmsNorm(const RmsNormParams& params);

// The errors alone, nothing computed; the CUDA twin refuses the same.
absl::Status CheckRmsNorm(const RmsNormParams& params);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_RMSNORM_H_
