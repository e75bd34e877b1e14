// Chains over k for operands of any type and layout, in batches and under causal limits.

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
constexpr int kTileRows = 64;  // of a and of b
constexpr int kTileDepth = 16;
constexpr int kPerThread = 4;  // rows and columns of one thread
constexpr int kThreadRows = kTileRows / kPerThread;
static_assert(kGemmTileK % kTileDepth == 0);

__device__ inline float LoadElement(const void* data, FloatType type, int64_t at) {
  if (type == FloatType::kF32) return __ldg(static_cast<const float*>(data) + at);
  const uint16_t bits = __ldg(static_cast<const uint16_t*>(data) + at);
  return type == FloatType::kBf16 ? LoadHalf<Bf16>(bits) : LoadHalf<F16>(bits);
}

// Not through the read-only cache: the base may be what is written.
__device__ inline float LoadBase(const void* data, FloatType type, int64_t at) {
  return type == FloatType::kF32 ? static_cast<const float*>(data)[at]
                                 : LoadHalf<Bf16>(static_cast<const uint16_t*>(data)[at]);
}

__device__ inline const void* Moved(const void* data, FloatType type, int64_t elements) {
  return static_cast<const char*>(data) + elements * static_cast<int64_t>(SizeOf(type));
}

using SharedTile = float[kTileDepth][kTileRows + kPerThread];

// Neighbouring threads read along the operand's unit stride. Row i is read up to `row_limit` + i;
// what lies outside is 0 and is never part of a chain whose output is stored.
__device__ inline void FillTile(const ChainOperand& x, const void* data, int64_t row_begin,
                                int64_t rows, int64_t k_begin, int64_t depth, int64_t row_limit,
                                SharedTile& tile) {
  const int64_t row_stride = static_cast<int64_t>(x.row_stride);
  const int64_t k_stride = static_cast<int64_t>(x.k_stride);
  const bool along_k = k_stride == 1;
#pragma unroll
  for (int i = 0; i < kTileRows * kTileDepth / kThreads; ++i) {
    const int index = i * kThreads + static_cast<int>(threadIdx.x);
    const int k = along_k ? index % kTileDepth : index / kTileRows;
    const int row = along_k ? index / kTileDepth : index % kTileRows;
    float value = 0.0f;
    if (row_begin + row < rows && k_begin + k < min(depth, row_limit + row)) {
      value = LoadElement(data, x.type, (row_begin + row) * row_stride + (k_begin + k) * k_stride);
    }
    tile[k][row] = value;
  }
}

template <bool kTiles>
__global__ void __launch_bounds__(kThreads) StridedKernel(CudaChainProduct p, int64_t row_tiles) {
  __shared__ __align__(16) SharedTile a_tile;
  __shared__ __align__(16) SharedTile b_tile;
  const int64_t row_begin = blockIdx.x % row_tiles * kTileRows;
  const int64_t column_begin = blockIdx.x / row_tiles * kTileRows;
  const int64_t batch = blockIdx.z;
  const int64_t last_row = min(row_begin + kTileRows, p.m) - 1;
  if (p.causal == Causal::kColumns && column_begin > p.causal_first + last_row) return;
  const void* a = Moved(p.a.data, p.a.type, batch * p.a_batch_stride);
  const void* b = Moved(p.b.data, p.b.type, batch / p.b_share * p.b_batch_stride);
  const bool limited = p.causal == Causal::kDepth;
  const int64_t depth = limited ? min(p.k, p.causal_first + last_row + 1) : p.k;

  const int thread_row = static_cast<int>(threadIdx.x) / kThreadRows * kPerThread;
  const int thread_column = static_cast<int>(threadIdx.x) % kThreadRows * kPerThread;
  // Steps that every row of this block takes part in.
  const int64_t first_limit = limited ? p.causal_first + row_begin + 1 : depth;
  const int64_t common = min(depth, first_limit);
  Sum<kTiles> sums[kPerThread][kPerThread];
  for (int64_t k = 0; k < depth; k += kTileDepth) {
    FillTile(p.a, a, row_begin, p.m, k, depth, first_limit, a_tile);
    FillTile(p.b, b, column_begin, p.n, k, depth, depth, b_tile);
    __syncthreads();
    if (kTiles && k % kGemmTileK == 0 && k > 0) {
#pragma unroll
      for (int i = 0; i < kPerThread * kPerThread; ++i) {
        sums[i / kPerThread][i % kPerThread].EndTile(k == kGemmTileK);
      }
    }
    const auto step = [&](int at, bool all_rows) {
      const float4 x = *reinterpret_cast<const float4*>(&a_tile[at][thread_row]);
      const float4 y = *reinterpret_cast<const float4*>(&b_tile[at][thread_column]);
      const float xs[kPerThread] = {x.x, x.y, x.z, x.w};
      const float ys[kPerThread] = {y.x, y.y, y.z, y.w};
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
        if (!all_rows && k + at > p.causal_first + row_begin + thread_row + i) continue;
#pragma unroll
        for (int j = 0; j < kPerThread; ++j) {
          sums[i][j].chain = __fmaf_rn(xs[i], ys[j], sums[i][j].chain);
        }
      }
    };
    if (k + kTileDepth <= common) {
#pragma unroll
      for (int at = 0; at < kTileDepth; ++at) step(at, true);
    } else {
      const int count = static_cast<int>(min(int64_t{kTileDepth}, depth - k));
      for (int at = 0; at < count; ++at) step(at, !limited);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int64_t row = row_begin + thread_row + i;
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      const int64_t column = column_begin + thread_column + j;
      if (row >= p.m || column >= p.n) continue;
      float value = p.scale * sums[i][j].Total(depth > kGemmTileK);
      if (p.base != nullptr) {
        value = LoadBase(p.base, p.base_type, row * p.base_row_stride + column) + value;
      }
      StoreSum(p.out, p.out_type, batch * p.out_batch_stride + row * p.out_row_stride + column,
               value);
    }
  }
}

}  // namespace

absl::Status internal::EnqueueStrided(const CudaChainProduct& p, CudaStream stream) {
  constexpr int64_t kMaxBatches = 65535;
  const int64_t row_tiles = DivideUp(p.m, kTileRows);
  const int64_t tiles = row_tiles * DivideUp(p.n, kTileRows);
  if (p.batches > kMaxBatches || tiles > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("gemm: a product [", p.m, ", ", p.n, "] x ",
                                                   p.batches,
                                                   " is larger than one launch; split its rows"));
  }
  const LaunchShape shape = {
      dim3(static_cast<unsigned>(tiles), 1, static_cast<unsigned>(p.batches)), kThreads, 0, stream};
  return p.tiles ? Launch("gemm", StridedKernel<true>, shape, p, row_tiles)
                 : Launch("gemm", StridedKernel<false>, shape, p, row_tiles);
}

}  // namespace lockstep::kernels
