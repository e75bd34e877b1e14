// Maps of the state: of a chunk, of chunks one after another, and their use.

#include "kernels/cuda_launch.h"
#include "kernels/gdn_device_cuda.h"
#include "kernels/gdn_work_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kColumns = 32;
constexpr int kRowGroups = 8;
constexpr int kRows = 4;  // of one thread at a time

// Where element (row, column) of M | b lies in a map: M [K, K], then b [K, V].
__device__ int64_t PlaceInMap(const GdnDims& dims, int row, int column) {
  if (column < dims.key_dim) return int64_t{row} * dims.key_dim + column;
  return int64_t{dims.key_dim} * dims.key_dim + int64_t{row} * dims.value_dim + column -
         dims.key_dim;
}

// Row r + 8 * i of the thread's `kRows`, or one inside when that is past the end.
__device__ int RowOf(int first, int i, int rows) { return min(first + i * kRowGroups, rows - 1); }

// Block (32, 8), grid (heads, columns of M | b, chunks).
__global__ void __launch_bounds__(kColumns* kRowGroups)
    ChunkMaps(const GdnDims dims, const GdnTokens tokens, const GdnWork work) {
  const int head = static_cast<int>(blockIdx.x);
  const int column = static_cast<int>(blockIdx.y * kColumns + threadIdx.x);
  const int chunk = static_cast<int>(blockIdx.z);
  const int count = tokens.ChunkCount(chunk);
  if (column >= dims.key_dim + dims.value_dim) return;
  const GdnSlot slot = work.Slot(dims, chunk, head);
  float* map = work.Map(dims, chunk, head);
  const bool in_m = column < dims.key_dim;
  const int width = in_m ? dims.key_dim : dims.value_dim;
  const float* right = in_m ? slot.w + column : slot.u + column - dims.key_dim;
  for (int first = threadIdx.y; first < dims.key_dim; first += kRows * kRowGroups) {
    float acc[kRows] = {};
    for (int i = 0; i < count; ++i) {
      const float x = right[i * width];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int row = RowOf(first, r, dims.key_dim);
        acc[r] = __fmaf_rn(slot.k_end[i * dims.key_dim + row], x, acc[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = first + r * kRowGroups;
      if (row >= dims.key_dim) continue;
      const float start = row == column ? *slot.growth : 0.0f;
      map[PlaceInMap(dims, row, column)] = in_m ? __fsub_rn(start, acc[r]) : acc[r];
    }
  }
}

// to = M * from (+ b): one column, all rows of this thread. Columns have strides `from_stride`.
__device__ void ApplyMap(const GdnDims& dims, const float* m, const float* b, int64_t b_stride,
                         const float* from, float* to, int64_t stride, bool store) {
  for (int first = threadIdx.y; first < dims.key_dim; first += kRows * kRowGroups) {
    float acc[kRows] = {};
    for (int x = 0; x < dims.key_dim; ++x) {
      const float right = from[x * stride];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int row = RowOf(first, r, dims.key_dim);
        acc[r] = __fmaf_rn(m[int64_t{row} * dims.key_dim + x], right, acc[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = first + r * kRowGroups;
      if (row >= dims.key_dim) continue;
      const float sum = b == nullptr ? acc[r] : __fadd_rn(acc[r], b[row * b_stride]);
      to[row * stride] = store ? F32::Store(sum) : sum;
    }
  }
}

// Block (32, 8), grid (heads, columns of M | b): this block's columns through all chunks, to and
// fro between `maps` and `spare`; they end in `maps`.
__global__ void __launch_bounds__(kColumns* kRowGroups)
    Compose(const GdnDims dims, const GdnTokens tokens, const GdnWork work, bool more, float* maps,
            float* spare) {
  const int head = static_cast<int>(blockIdx.x);
  const int column = static_cast<int>(blockIdx.y * kColumns + threadIdx.x);
  const bool inside = column < dims.key_dim + dims.value_dim;
  const bool in_m = column < dims.key_dim;
  const int64_t stride = in_m ? dims.key_dim : dims.value_dim;
  const int64_t at = int64_t{head} * work.map_floats + PlaceInMap(dims, 0, inside ? column : 0);
  float* from = maps + at;
  float* to = spare + at;
  for (int chunk = 0; chunk < tokens.Chunks(); ++chunk) {
    const float* m = work.Map(dims, chunk, head);
    const float* own = m + PlaceInMap(dims, 0, inside ? column : 0);
    if (inside && chunk == 0 && !more) {
      for (int row = threadIdx.y; row < dims.key_dim; row += kRowGroups) {
        to[row * stride] = own[row * stride];
      }
    } else if (inside) {
      ApplyMap(dims, m, in_m ? nullptr : own, stride, from, to, stride, false);
    }
    float* const written = to;
    to = from;
    from = written;
    __syncthreads();
  }
  if (!inside) return;
  float* const result = maps + at;
  for (int row = threadIdx.y; row < dims.key_dim; row += kRowGroups) {
    result[row * stride] = F32::Store(from[row * stride]);
  }
}

// Block (32, 8), grid (heads, columns of the state).
__global__ void __launch_bounds__(kColumns* kRowGroups)
    Advance(const GdnDims dims, const float* maps, const float* from, float* to) {
  const int head = static_cast<int>(blockIdx.x);
  const int v = static_cast<int>(blockIdx.y * kColumns + threadIdx.x);
  if (v >= dims.value_dim) return;
  const int64_t map_floats = int64_t{dims.key_dim} * (dims.key_dim + dims.value_dim);
  const float* m = maps + head * map_floats;
  const int64_t at = int64_t{head} * dims.key_dim * dims.value_dim + v;
  ApplyMap(dims, m, m + int64_t{dims.key_dim} * dims.key_dim + v, dims.value_dim, from + at,
           to + at, dims.value_dim, true);
}

}  // namespace

absl::Status LaunchGdnChunkMaps(const GdnDims& dims, const GdnTokens& tokens, const GdnWork& work,
                                CudaStream stream) {
  const dim3 blocks(static_cast<unsigned>(dims.value_heads),
                    DivideUp(dims.key_dim + dims.value_dim, kColumns),
                    static_cast<unsigned>(tokens.Chunks()));
  return Launch("gdn: chunk maps", ChunkMaps, {blocks, dim3(kColumns, kRowGroups), 0, stream}, dims,
                tokens, work);
}

absl::Status LaunchGdnCompose(const GdnDims& dims, const GdnTokens& tokens, const GdnWork& work,
                              bool more, float* maps, float* spare, CudaStream stream) {
  const dim3 blocks(static_cast<unsigned>(dims.value_heads),
                    DivideUp(dims.key_dim + dims.value_dim, kColumns));
  return Launch("gdn: composing maps", Compose, {blocks, dim3(kColumns, kRowGroups), 0, stream},
                dims, tokens, work, more, maps, spare);
}

absl::Status LaunchGdnAdvance(const GdnDims& dims, const float* maps, const float* from, float* to,
                              CudaStream stream) {
  const dim3 blocks(static_cast<unsigned>(dims.value_heads), DivideUp(dims.value_dim, kColumns));
  return Launch("gdn: advancing a state", Advance, {blocks, dim3(kColumns, kRowGroups), 0, stream},
                dims, maps, from, to);
}

}  // namespace lockstep::kernels
