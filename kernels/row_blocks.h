#ifndef LOCKSTEP_KERNELS_ROW_BLOCKS_H_
#define LOCKSTEP_KERNELS_ROW_BLOCKS_H_

// What the element-by-element programs share: checks of [rows, columns] operands with row
// strides, and a walk over them in blocks that never cross a row.
//
// Example:
//   absl::Status status = CheckRowOperands("swiglu", rows, columns, {{"gate", gate, stride}});
//   ForEachRowBlock(rows, columns, threads, [&](int64_t row, int64_t begin, int64_t count) {...});

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"

namespace lockstep::kernels {

// Elements of one block: the unit dealt to a thread.
inline constexpr int64_t kRowBlockElements = 4096;

struct RowOperand {
  const char* name;
  const void* data;
  int64_t row_stride;  // elements; 0 means contiguous
};

// InvalidArgument, naming `op` and what does not fit, for rows or columns below 1, a null pointer
// or a stride shorter than its row; FailedPrecondition when the thread's floating-point
// environment is not IEEE's.
absl::Status CheckRowOperands(const char* op, int64_t rows, int64_t columns,
                              absl::Span<const RowOperand> operands);

// Calls `fn(row, begin, count)` for stretches of at most kRowBlockElements that together cover
// every row once, on up to `threads` threads.
void ForEachRowBlock(int64_t rows, int64_t columns, int threads,
                     absl::FunctionRef<void(int64_t row, int64_t begin, int64_t count)> fn);

inline int64_t RowStride(int64_t stride, int64_t columns) { return stride == 0 ? columns : stride; }

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_ROW_BLOCKS_H_
