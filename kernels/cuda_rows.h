#ifndef LOCKSTEP_KERNELS_CUDA_ROWS_H_
#define LOCKSTEP_KERNELS_CUDA_ROWS_H_

// The walk of an element-by-element program over strided [rows, columns] operands, eight elements
// to a thread at a time; for .cu files alone. A body has
//   Load(place)         -> what it read, in registers
//   Run(place, loaded)  -> writes the results
// for places that together cover every row once. The next place is loaded before the last one is
// run, so that memory is never idle.
//
// Example:
//   __global__ void Kernel(EightGrid grid, Operands operands) {
//     ForEachEight<512, 2>(grid, Body{operands});
//   }
//   ...
//   return ForEachRowChunk(rows, columns, {strides}, [&](int64_t row, int64_t count) {
//     const EightGrid grid(count, columns);
//     return Launch("op", Kernel, {grid.Blocks(512 * 2, limit), 512, 0, stream}, grid,
//                   operands.From(row));
//   });

#include <algorithm>
#include <cstdint>
#include <initializer_list>

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

// Columns that one row may have, and elements that one launch spans: offsets are 32 bits wide.
inline constexpr int64_t kMaxWalkColumns = int64_t{1} << 31;
inline constexpr int64_t kMaxWalkSpan = (int64_t{1} << 32) - 1;
inline constexpr int64_t kMaxWalkVectors = int64_t{1} << 30;

struct EightGrid {
  uint32_t columns;
  uint32_t vectors;  // of all rows
  FastDivide per_row;

  EightGrid(int64_t rows, int64_t column_count)
      : columns(static_cast<uint32_t>(column_count)),
        vectors(static_cast<uint32_t>(rows * ((column_count + kEight - 1) / kEight))),
        per_row(static_cast<uint32_t>((column_count + kEight - 1) / kEight)) {}

  // Blocks of `tile` vectors each, at most `limit`.
  unsigned Blocks(int64_t tile, int64_t limit) const {
    return static_cast<unsigned>(std::min((int64_t{vectors} + tile - 1) / tile, limit));
  }
};

// Calls `launch(first_row, rows)` for runs of rows that one launch can span, until one fails.
template <class LaunchRows>
absl::Status ForEachRowChunk(const char* op, int64_t rows, int64_t columns,
                             std::initializer_list<int64_t> strides, const LaunchRows& launch) {
  if (columns > kMaxWalkColumns) {
    return absl::InvalidArgumentError(absl::StrCat(op, ": expected at most ", kMaxWalkColumns,
                                                   " columns, got ", columns, "; split the rows"));
  }
  const int64_t widest = std::max(strides);
  const int64_t vectors_per_row = (columns + kEight - 1) / kEight;
  const int64_t chunk = std::max<int64_t>(
      1, std::min((kMaxWalkSpan - columns) / widest, kMaxWalkVectors / vectors_per_row));
  for (int64_t row = 0; row < rows; row += chunk) {
    absl::Status status = launch(row, std::min(chunk, rows - row));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// A stretch of `count` (1 to 8) elements of a row.
struct EightPlace {
  uint32_t row, column, count;
};

template <int kThreads, int kUnroll, class Body>
__device__ inline void ForEachEight(const EightGrid& grid, const Body& body) {
  constexpr uint32_t kTile = kThreads * kUnroll;
  using Loaded = decltype(body.Load(EightPlace()));
  const auto place_of = [&](uint32_t vector) {
    const uint32_t row = grid.per_row(vector);
    const uint32_t column = (vector - row * grid.per_row.divisor) * kEight;
    return EightPlace{row, column, min(uint32_t{kEight}, grid.columns - column)};
  };
  EightPlace places[kUnroll];
  Loaded loaded[kUnroll];
  const auto load = [&](uint32_t tile, EightPlace(&to)[kUnroll], Loaded(&into)[kUnroll]) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const uint32_t vector = tile + u * kThreads + threadIdx.x;
      to[u].count = 0;
      if (vector < grid.vectors) {
        to[u] = place_of(vector);
        into[u] = body.Load(to[u]);
      }
    }
  };
  load(blockIdx.x * kTile, places, loaded);
  for (uint32_t tile = blockIdx.x * kTile; tile < grid.vectors; tile += gridDim.x * kTile) {
    EightPlace next_places[kUnroll];
    Loaded next_loaded[kUnroll];
    load(tile + gridDim.x * kTile, next_places, next_loaded);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (places[u].count > 0) body.Run(places[u], loaded[u]);
      places[u] = next_places[u];
      loaded[u] = next_loaded[u];
    }
  }
}

// Whether every row of a strided operand can be read 16 bytes at a time.
inline bool RowsAreAligned(const void* data, int64_t row_stride, int64_t rows) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && (rows == 1 || row_stride % kEight == 0);
}

// An operand of the walk; rows are read 16 bytes at a time where `aligned`.
template <class Pointer>
struct WalkRows {
  Pointer data;
  int64_t stride;
  bool aligned;

  WalkRows(Pointer pointer, int64_t row_stride, int64_t rows)
      : data(pointer), stride(row_stride), aligned(RowsAreAligned(pointer, row_stride, rows)) {}

  // The same from `row` on; alignment was that of all rows.
  WalkRows From(int64_t row) const {
    WalkRows rest = *this;
    rest.data += row * stride;
    return rest;
  }

  __device__ Pointer At(const EightPlace& place) const {
    return data + (place.row * static_cast<uint32_t>(stride) + place.column);
  }

  __device__ uint4 Load(const EightPlace& place) const {
    return aligned && place.count == kEight ? LoadEight(At(place))
                                            : LoadUpToEight(At(place), place.count);
  }

  __device__ void Store(const EightPlace& place, const uint4& packed) const {
    if (aligned && place.count == kEight) {
      StoreEight(At(place), packed);
    } else {
      StoreUpToEight(At(place), packed, place.count);
    }
  }
};

using InRows = WalkRows<const uint16_t*>;
using OutRows = WalkRows<uint16_t*>;

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_CUDA_ROWS_H_
