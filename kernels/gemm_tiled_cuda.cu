// Chains over k for large products of aligned 16-bit rows. A block makes a tile of 128 x 128
// outputs, a thread 8 x 8 of them: 64 independent chains hide the latency of the multiply-add, and
// each float read from shared memory serves 8 of them.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/cuda_half.h"
#include "kernels/cuda_launch.h"
#include "kernels/gemm.h"
#include "kernels/gemm_chain_cuda.h"
#include "kernels/gemm_engine_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kTileRows = 128;  // of a and of b; one thread loads one row of either
constexpr int kTileDepth = 16;
constexpr int kPerThread = 8;
// Row tiles whose blocks run together, so that they share columns in the cache.
constexpr int kGroupTiles = 8;
static_assert(kGemmTileK % kTileDepth == 0 && kThreads == 2 * kTileRows);

struct TiledOperands {
  const uint16_t* a;
  const uint16_t* b;
  int64_t a_stride, b_stride, out_stride;
  int64_t m, n, k;
  void* out;
  FloatType out_type;
  int64_t row_tiles, column_tiles;
};

using SharedTile = float[kTileDepth][kTileRows];

// This thread's row of the next tile of a or b, on its way to shared memory.
template <class Format>
struct RowStage {
  const uint16_t* row;
  int64_t depth;
  uint4 eights[2];

  __device__ void Load(int64_t k) {
    if (k + kTileDepth <= depth) {
      eights[0] = __ldg(reinterpret_cast<const uint4*>(row + k));
      eights[1] = __ldg(reinterpret_cast<const uint4*>(row + k + kEight));
    } else {
      eights[0] = LoadUpToEight(row + k, depth - k);
      eights[1] = LoadUpToEight(row + k + kEight, depth - k - kEight);
    }
  }

  __device__ void Store(SharedTile& tile, int column) const {
#pragma unroll
    for (int i = 0; i < kTileDepth; ++i) {
      tile[i][column] = LoadHalf<Format>(Element(eights[i / kEight], i % kEight));
    }
  }
};

// Where this thread's outputs lie in the tile: rows and columns come in two groups of four, so
// that a warp reads shared memory without bank conflicts.
struct Place {
  int row, column;

  __device__ Place() {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    row = warp % 4 * 32 + lane / 8 * 4;
    column = warp / 4 * 64 + lane % 8 * 4;
  }

  __device__ int Row(int i) const { return row + i / 4 * 16 + i % 4; }
  __device__ int Column(int j) const { return column + j / 4 * 32 + j % 4; }
};

using Chains = float[kPerThread][kPerThread];

__device__ inline void Step(const SharedTile& a, const SharedTile& b, int k, const Place& place,
                            Chains& chains) {
  const float4 a0 = *reinterpret_cast<const float4*>(&a[k][place.Row(0)]);
  const float4 a1 = *reinterpret_cast<const float4*>(&a[k][place.Row(4)]);
  const float4 b0 = *reinterpret_cast<const float4*>(&b[k][place.Column(0)]);
  const float4 b1 = *reinterpret_cast<const float4*>(&b[k][place.Column(4)]);
  const float x[kPerThread] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w};
  const float y[kPerThread] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      chains[i][j] = __fmaf_rn(x[i], y[j], chains[i][j]);
    }
  }
}

// Totals of `gemm/k_tile@v1` wait in shared memory, 64 a thread, for the ends of tiles: registers
// for them would halve the blocks that run together.
constexpr size_t kTotalsBytes = size_t{kPerThread} * kPerThread * kThreads * sizeof(float);

__device__ inline float* TotalAt(float* totals, int i, int j) {
  return totals + (i * kPerThread + j) * kThreads + threadIdx.x;
}

// The first tile's sum is the total.
__device__ inline void EndTile(bool first, float* totals, Chains& chains) {
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      float* total = TotalAt(totals, i, j);
      *total = first ? chains[i][j] : *total + chains[i][j];
      chains[i][j] = 0.0f;
    }
  }
}

template <bool kTiles>
__device__ inline void StoreTile(const TiledOperands& p, int64_t row_begin, int64_t column_begin,
                                 const Place& place, float* totals, const Chains& chains) {
  const bool has_total = kTiles && p.k > kGemmTileK;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int64_t row = row_begin + place.Row(i);
    if (row >= p.m) continue;
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      const int64_t column = column_begin + place.Column(j);
      if (column >= p.n) continue;
      const float sum = has_total ? *TotalAt(totals, i, j) + chains[i][j] : chains[i][j];
      StoreSum(p.out, p.out_type, row * p.out_stride + column, sum);
    }
  }
}

template <class Format, bool kTiles>
__global__ void __launch_bounds__(kThreads, 2) TiledKernel(TiledOperands p) {
  extern __shared__ float totals[];
  __shared__ __align__(16) SharedTile a_tiles[2];
  __shared__ __align__(16) SharedTile b_tiles[2];
  const int64_t group = blockIdx.x / (kGroupTiles * p.column_tiles);
  const int64_t group_rows = min(int64_t{kGroupTiles}, p.row_tiles - group * kGroupTiles);
  const int64_t in_group = blockIdx.x - group * kGroupTiles * p.column_tiles;
  const int64_t row_begin = (group * kGroupTiles + in_group % group_rows) * kTileRows;
  const int64_t column_begin = in_group / group_rows * kTileRows;

  const bool loads_a = threadIdx.x < kTileRows;
  const int loaded_row = static_cast<int>(threadIdx.x) % kTileRows;
  // Rows past the end repeat the last one; their outputs are not stored.
  RowStage<Format> stage;
  stage.row = loads_a ? p.a + min(row_begin + loaded_row, p.m - 1) * p.a_stride
                      : p.b + min(column_begin + loaded_row, p.n - 1) * p.b_stride;
  stage.depth = p.k;
  stage.Load(0);
  stage.Store(loads_a ? a_tiles[0] : b_tiles[0], loaded_row);
  __syncthreads();

  const Place place;
  Chains chains = {};
  int buffer = 0;
  for (int64_t k = 0; k < p.k; k += kTileDepth, buffer ^= 1) {
    const bool more = k + kTileDepth < p.k;
    if (more) stage.Load(k + kTileDepth);
    if (kTiles && k % kGemmTileK == 0 && k > 0) EndTile(k == kGemmTileK, totals, chains);
    if (k + kTileDepth <= p.k) {
#pragma unroll
      for (int at = 0; at < kTileDepth; ++at) {
        Step(a_tiles[buffer], b_tiles[buffer], at, place, chains);
      }
    } else {
      for (int at = 0; at < static_cast<int>(p.k - k); ++at) {
        Step(a_tiles[buffer], b_tiles[buffer], at, place, chains);
      }
    }
    if (more) stage.Store(loads_a ? a_tiles[buffer ^ 1] : b_tiles[buffer ^ 1], loaded_row);
    __syncthreads();
  }
  StoreTile<kTiles>(p, row_begin, column_begin, place, totals, chains);
}

template <class Format>
absl::Status OfFormat(const TiledOperands& operands, bool tiles, LaunchShape shape) {
  if (tiles) shape.shared_bytes = kTotalsBytes;
  return tiles ? Launch("gemm", TiledKernel<Format, true>, shape, operands)
               : Launch("gemm", TiledKernel<Format, false>, shape, operands);
}

}  // namespace

absl::Status internal::EnqueueTiled(const CudaChainProduct& p, CudaStream stream) {
  if (p.tiles) {
    const absl::StatusOr<int> block_shared = BlockSharedBytes();
    if (!block_shared.ok()) return block_shared.status();
    // Cards with little shared memory have no room for the totals.
    if (static_cast<size_t>(*block_shared) < kTotalsBytes + 4 * sizeof(SharedTile)) {
      return EnqueueStrided(p, stream);
    }
  }
  TiledOperands operands = {};
  operands.a = static_cast<const uint16_t*>(p.a.data);
  operands.b = static_cast<const uint16_t*>(p.b.data);
  operands.a_stride = static_cast<int64_t>(p.a.row_stride);
  operands.b_stride = static_cast<int64_t>(p.b.row_stride);
  operands.out_stride = p.out_row_stride;
  operands.m = p.m, operands.n = p.n, operands.k = p.k;
  operands.out = p.out, operands.out_type = p.out_type;
  operands.row_tiles = DivideUp(p.m, kTileRows);
  operands.column_tiles = DivideUp(p.n, kTileRows);
  const int64_t tiles = operands.row_tiles * operands.column_tiles;
  if (tiles > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("gemm: a product [", p.m, ", ", p.n,
                                                   "] is larger than one launch; split its rows"));
  }
  const LaunchShape shape = {static_cast<unsigned>(tiles), kThreads, 0, stream};
  return p.a.type == FloatType::kBf16 ? OfFormat<Bf16>(operands, p.tiles, shape)
                                      : OfFormat<F16>(operands, p.tiles, shape);
}

}  // namespace lockstep::kernels
