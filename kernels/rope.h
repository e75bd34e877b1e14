#ifndef LOCKSTEP_KERNELS_ROPE_H_
#define LOCKSTEP_KERNELS_ROPE_H_

// Exact rotary position embedding `rope/neox@v1` (kernels/SPECIFICATION.md, "RoPE"): a table of
// cosines and sines, made once on the host and the same on every device, and its application.
//
// Example:
//   RopeTableParams t;
//   t.theta = 1e7f, t.rotary_dim = 64, t.positions = 4096;
//   t.cos = cos, t.sin = sin;   // [4096, 32] each
//   LOCKSTEP_RETURN_IF_ERROR(MakeRopeTable(t));
//   RopeParams p;
//   p.rows = tokens, p.heads = heads, p.head_dim = 256, p.rotary_dim = 64;
//   p.x = q, p.positions = positions, p.out = q_rotated;
//   p.cos = cos, p.sin = sin, p.table_positions = 4096;
//   LOCKSTEP_RETURN_IF_ERROR(RopeNeox(p));

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/types.h"

namespace lockstep::kernels {

inline constexpr char kRopeNeoxId[] = "rope/neox@v1";

// Every position below is a float32 and every angle within the exact reduction.
inline constexpr int64_t kRopeMaxPositions = int64_t{1} << 24;
inline constexpr int64_t kRopeMaxRotaryDim = int64_t{1} << 16;

struct RopeTableParams {
  float theta = 10000.0f;  // finite, at least 1
  int64_t rotary_dim = 0;  // even
  int64_t positions = 0;   // the table covers [0, positions)
  float* cos = nullptr;    // [positions, rotary_dim / 2]
  float* sin = nullptr;    // [positions, rotary_dim / 2]
  int threads = 1;
};

// InvalidArgument for a size, theta or pointer out of range.
absl::Status MakeRopeTable(const RopeTableParams& params);

struct RopeParams {
  FloatType type = FloatType::kBf16;  // of x and out: BF16 or F16
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;              // even, at most head_dim; the rest of a head passes through
  const void* x = nullptr;             // [rows, heads, head_dim]
  const int64_t* positions = nullptr;  // [rows], each in [0, table_positions)
  const float* cos = nullptr;          // MakeRopeTable's
  const float* sin = nullptr;
  int64_t table_positions = 0;
  void* out = nullptr;  // [rows, heads, head_dim]; may be x
  // Elements between consecutive rows; 0 means contiguous.
  int64_t x_row_stride = 0;
  int64_t out_row_stride = 0;
  int threads = 1;
};

// InvalidArgument for an unsupported type, a size, position, stride or pointer out of range.
absl::Status RopeNeox(const RopeParams& params);

// The errors alone, but for those of the positions' values; the CUDA twin refuses the same.
absl::Status CheckRopeNeox(const RopeParams& params);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_ROPE_H_
