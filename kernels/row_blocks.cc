#include "kernels/row_blocks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/fp_environment.h"
#include "kernels/parallel.h"

namespace lockstep::kernels {

absl::Status CheckRowOperands(const char* op, int64_t rows, int64_t columns,
                              absl::Span<const RowOperand> operands) {
  if (rows < 1 || columns < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": expected rows and columns of at least 1, got [", rows, ", ", columns,
                     "]; an empty batch is refused at an exact site"));
  }
  for (const RowOperand& operand : operands) {
    if (operand.data == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(op, ": expected a non-null '", operand.name, "'"));
    }
    if (operand.row_stride != 0 && operand.row_stride < columns) {
      return absl::InvalidArgumentError(
          absl::StrCat(op, ": expected a row stride of 0 (contiguous) or at least ", columns,
                       " elements for '", operand.name, "', got ", operand.row_stride));
    }
  }
  return CheckFpEnvironment();
}

void ForEachRowBlock(int64_t rows, int64_t columns, int threads,
                     absl::FunctionRef<void(int64_t row, int64_t begin, int64_t count)> fn) {
  const int64_t blocks_per_row = (columns + kRowBlockElements - 1) / kRowBlockElements;
  const size_t blocks = static_cast<size_t>(rows * blocks_per_row);
  ParallelFor(blocks, threads, [&](size_t first, size_t last) {
    for (size_t block = first; block < last; ++block) {
      const int64_t row = static_cast<int64_t>(block) / blocks_per_row;
      const int64_t begin = static_cast<int64_t>(block) % blocks_per_row * kRowBlockElements;
      fn(row, begin, std::min(kRowBlockElements, columns - begin));
    }
  });
}

}  // namespace lockstep::kernels
