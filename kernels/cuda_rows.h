#ifndef LOCKSTEP_KERNELS_CUDA_ROWS_H_
#define LOCKSTEP_KERNELS_CUDA_ROWS_H_

// The walk of an element-by-element program over strided [rows, columns] operands, eight elements
// to a thread at a time; for .cu files alone. A body has
//   Load(row, column, count)            -> what it read, in registers
//   Run(row, column, count, loaded)     -> writes the results
// for stretches of `count` (1 to 8) elements that together cover every row once.
//
// Example:
//   __global__ void Kernel(EightGrid grid, Body body) { ForEachEight<512, 2>(grid, body); }
//   ...
//   const EightGrid grid(rows, columns);
//   return Launch("op", Kernel, {grid.Blocks(512 * 2, multiprocessors * 2), 512, 0, stream}, ...);

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda_half.h"

namespace lockstep::kernels {

// n / divisor for n below 2^31 by a multiplication and a shift.
struct FastDivide {
  uint32_t divisor = 1;
  uint32_t multiplier = 1;
  uint32_t shift = 0;

  // `by` from 1 to 2^31.
  explicit FastDivide(uint32_t by) : divisor(by) {
    while ((uint64_t{1} << shift) < by) ++shift;
    const uint64_t rest = (uint64_t{1} << shift) - by;
    multiplier = static_cast<uint32_t>((rest << 32) / by + 1);
  }

  __device__ uint32_t operator()(uint32_t n) const {
    return (__umulhi(n, multiplier) + n) >> shift;
  }
};

// Columns that one row may have: the walk counts a row's vectors in 31 bits.
inline constexpr int64_t kMaxWalkColumns = int64_t{1} << 33;

inline absl::Status CheckWalkColumns(const char* op, int64_t columns) {
  if (columns <= kMaxWalkColumns) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(op, ": expected at most ", kMaxWalkColumns,
                                                 " columns, got ", columns, "; split the rows"));
}

struct EightGrid {
  int64_t rows;
  int64_t columns;
  int64_t vectors_per_row;
  FastDivide divide;

  EightGrid(int64_t row_count, int64_t column_count)
      : rows(row_count),
        columns(column_count),
        vectors_per_row((column_count + kEight - 1) / kEight),
        divide(static_cast<uint32_t>(vectors_per_row)) {}

  // Blocks of `tile` vectors each, at most `limit`.
  unsigned Blocks(int64_t tile, int64_t limit) const {
    return static_cast<unsigned>(std::min((rows * vectors_per_row + tile - 1) / tile, limit));
  }
};

// Whether every row of a strided operand can be read 16 bytes at a time.
inline bool RowsAreAligned(const void* data, int64_t row_stride, int64_t rows) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && (rows == 1 || row_stride % kEight == 0);
}

template <int kThreads, int kUnroll, class Body>
__device__ inline void ForEachEight(const EightGrid& grid, const Body& body) {
  constexpr int64_t kTile = int64_t{kThreads} * kUnroll;
  const int64_t step = kTile * gridDim.x;
  const int64_t step_rows = step / grid.vectors_per_row;
  const uint32_t step_columns = static_cast<uint32_t>(step % grid.vectors_per_row);
  const int64_t first = kTile * blockIdx.x;
  int64_t tile_row = first / grid.vectors_per_row;
  // The tile's first vector within its row.
  uint32_t tile_column = static_cast<uint32_t>(first % grid.vectors_per_row);
  while (tile_row < grid.rows) {
    decltype(body.Load(0, 0, 0)) loaded[kUnroll];
    int64_t row[kUnroll];
    int64_t column[kUnroll];
    int count[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const uint32_t vector = tile_column + threadIdx.x + u * kThreads;
      const uint32_t rows_on = grid.divide(vector);
      row[u] = tile_row + rows_on;
      column[u] = int64_t{vector - rows_on * grid.divide.divisor} * kEight;
      const int64_t rest = grid.columns - column[u];
      count[u] = rest < kEight ? static_cast<int>(rest) : kEight;
      if (row[u] < grid.rows) loaded[u] = body.Load(row[u], column[u], count[u]);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (row[u] < grid.rows) body.Run(row[u], column[u], count[u], loaded[u]);
    }
    tile_row += step_rows;
    tile_column += step_columns;
    if (tile_column >= grid.divide.divisor) {
      tile_column -= grid.divide.divisor;
      ++tile_row;
    }
  }
}

// An operand of the walk; rows are read 16 bytes at a time where `aligned`.
template <class Pointer>
struct WalkRows {
  Pointer data;
  int64_t stride;
  bool aligned;

  WalkRows(Pointer pointer, int64_t row_stride, int64_t rows)
      : data(pointer), stride(row_stride), aligned(RowsAreAligned(pointer, row_stride, rows)) {}

  __device__ uint4 Load(int64_t row, int64_t column, int count) const {
    const uint16_t* at = data + row * stride + column;
    return aligned && count == kEight ? LoadEight(at) : LoadUpToEight(at, count);
  }

  __device__ void Store(int64_t row, int64_t column, int count, const uint4& packed) const {
    uint16_t* at = data + row * stride + column;
    if (aligned && count == kEight) {
      StoreEight(at, packed);
    } else {
      StoreUpToEight(at, packed, count);
    }
  }
};

using InRows = WalkRows<const uint16_t*>;
using OutRows = WalkRows<uint16_t*>;

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_CUDA_ROWS_H_
