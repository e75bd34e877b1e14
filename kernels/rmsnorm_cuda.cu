// A row's squares are the leaves of a tree that is padded with +0 to a power of two: squares and
// their sums are never -0, so adding +0 leaves every node as it is and the padded tree gives the
// bytes of the one that passes its odd tails up.

#include <algorithm>
#include <cstdint>

#include "kernels/cuda_half.h"
#include "kernels/cuda_launch.h"
#include "kernels/cuda_rows.h"
#include "kernels/rmsnorm_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kWarp = 32;

// A row's eights that a thread keeps in registers; a longer row is read again for its output.
constexpr int kMaxHeld = 4;
constexpr int kMaxThreads = 1024;
constexpr int64_t kMaxEights = kRmsNormMaxColumns / kEight;
// Sums of passes over the row that shared memory has room for.
constexpr int kMaxPasses = static_cast<int>(kMaxEights / kMaxThreads);

enum class Weight : uint8_t { kNone, kBf16, kF32 };

struct NormOperands {
  InRows x, residual;
  OutRows residual_out, out;
  bool has_residual, keeps_residual;
  const void* weight;
  bool weight_aligned;
  float offset;  // 1 for a zero-centered weight and -0 otherwise: adding -0 changes no value
  float eps;
  int64_t rows, columns;
};

// Elements [column, column + 8) of the row that is normed; beyond its end +0.
__device__ inline uint4 NormedEight(const NormOperands& p, int64_t row, int64_t column) {
  const int64_t rest = p.columns - column;
  if (rest <= 0) return make_uint4(0, 0, 0, 0);
  const int count = rest < kEight ? static_cast<int>(rest) : kEight;
  const uint4 x = p.x.Load(row, column, count);
  if (!p.has_residual) return x;
  float sum[kEight], addend[kEight];
  Unpack<Bf16>(p.residual.Load(row, column, count), sum);
  Unpack<Bf16>(x, addend);
#pragma unroll
  for (int i = 0; i < kEight; ++i) sum[i] = sum[i] + addend[i];
  return Pack<Bf16>(sum);
}

// The node of level 3 over eight squares.
__device__ inline float SquaresNode(const uint4& eight) {
  float q[kEight];
  Unpack<Bf16>(eight, q);
#pragma unroll
  for (int i = 0; i < kEight; ++i) q[i] = q[i] * q[i];
  return ((q[0] + q[1]) + (q[2] + q[3])) + ((q[4] + q[5]) + (q[6] + q[7]));
}

// The tree over one node of each lane of a group of `width` lanes, a power of two; all get it.
__device__ inline float LanesTree(float node, int width) {
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    if (step < width) node = node + __shfl_xor_sync(0xFFFFFFFF, node, step);
  }
  return node;
}

__device__ inline void WeightEight(const NormOperands& p, Weight kind, int64_t column, int count,
                                   float (&w)[kEight]) {
  if (kind == Weight::kBf16) {
    const uint16_t* at = static_cast<const uint16_t*>(p.weight) + column;
    const bool eight = p.weight_aligned && count == kEight;
    Unpack<Bf16>(eight ? __ldg(reinterpret_cast<const uint4*>(at)) : LoadUpToEight(at, count), w);
  } else {
    const float* at = static_cast<const float*>(p.weight) + column;
    if (p.weight_aligned && count == kEight) {
      const float4 low = __ldg(reinterpret_cast<const float4*>(at));
      const float4 high = __ldg(reinterpret_cast<const float4*>(at) + 1);
      w[0] = low.x, w[1] = low.y, w[2] = low.z, w[3] = low.w;
      w[4] = high.x, w[5] = high.y, w[6] = high.z, w[7] = high.w;
    } else {
#pragma unroll
      for (int i = 0; i < kEight; ++i) w[i] = i < count ? at[i] : 0.0f;
    }
  }
#pragma unroll
  for (int i = 0; i < kEight; ++i) w[i] = w[i] + p.offset;
}

template <Weight kWeight>
__device__ inline void WriteEight(const NormOperands& p, int64_t row, int64_t column, float inv,
                                  const uint4& normed) {
  const int64_t rest = p.columns - column;
  if (rest <= 0) return;
  const int count = rest < kEight ? static_cast<int>(rest) : kEight;
  if (p.keeps_residual) p.residual_out.Store(row, column, count, normed);
  float y[kEight];
  Unpack<Bf16>(normed, y);
#pragma unroll
  for (int i = 0; i < kEight; ++i) y[i] = y[i] * inv;
  if constexpr (kWeight != Weight::kNone) {
    float w[kEight];
    WeightEight(p, kWeight, column, count, w);
#pragma unroll
    for (int i = 0; i < kEight; ++i) y[i] = y[i] * w[i];
  }
  p.out.Store(row, column, count, Pack<Bf16>(y));
}

__device__ inline float Inverse(const NormOperands& p, float sum) {
  const float mean = __fdiv_rn(sum, static_cast<float>(p.columns));
  return __fdiv_rn(1.0f, __fsqrt_rn(mean + p.eps));
}

// Rows of up to kHeld eights to a thread. `row_threads` threads, a power of two, share a row; a
// block holds blockDim.x / row_threads rows.
template <Weight kWeight, int kHeld>
__global__ void __launch_bounds__(kMaxThreads) HeldKernel(NormOperands p, int row_threads) {
  __shared__ float warp_sums[kHeld][kWarp];
  const int thread = static_cast<int>(threadIdx.x) % row_threads;
  const int64_t row = int64_t{blockIdx.x} * (blockDim.x / row_threads) + threadIdx.x / row_threads;
  // A block of several rows may have too few of them left; such threads repeat the last one.
  const bool in_range = row < p.rows;
  const int64_t loaded_row = in_range ? row : p.rows - 1;
  uint4 held[kHeld];
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    held[h] = NormedEight(p, loaded_row, int64_t{h * row_threads + thread} * kEight);
  }
  float sums[kHeld];
#pragma unroll
  for (int h = 0; h < kHeld; ++h) sums[h] = LanesTree(SquaresNode(held[h]), row_threads);
  if (row_threads > kWarp) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warps = row_threads / kWarp;
    const int first_warp = warp / warps * warps;
    if (lane == 0) {
#pragma unroll
      for (int h = 0; h < kHeld; ++h) warp_sums[h][warp] = sums[h];
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      sums[h] = LanesTree(lane < warps ? warp_sums[h][first_warp + lane] : 0.0f, kWarp);
    }
  }
#pragma unroll
  for (int width = kHeld / 2; width >= 1; width /= 2) {
#pragma unroll
    for (int i = 0; i < width; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  }
  const float inv = Inverse(p, sums[0]);
  if (!in_range) return;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    WriteEight<kWeight>(p, row, int64_t{h * row_threads + thread} * kEight, inv, held[h]);
  }
}

// Rows of any length, a block each: the sums of passes of kMaxThreads eights meet in shared memory.
template <Weight kWeight>
__global__ void __launch_bounds__(kMaxThreads) LongKernel(NormOperands p) {
  __shared__ float pass_sums[kMaxPasses];
  __shared__ float warp_sums[kWarp];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = blockIdx.x;
  const int64_t pass_columns = int64_t{kMaxThreads} * kEight;
  const int passes = static_cast<int>((p.columns + pass_columns - 1) / pass_columns);
  for (int pass = 0; pass < passes; ++pass) {
    const int64_t column = pass * pass_columns + int64_t{threadIdx.x} * kEight;
    const float sum = LanesTree(SquaresNode(NormedEight(p, row, column)), kWarp);
    if (lane == 0) warp_sums[warp] = sum;
    __syncthreads();
    if (warp == 0) {
      const float total = LanesTree(warp_sums[lane], kWarp);
      if (lane == 0) pass_sums[pass] = total;
    }
    __syncthreads();
  }
  for (int count = passes; count > 1; count = (count + 1) / 2) {
    // All of a level is read before any of the next is written.
    const int i = static_cast<int>(threadIdx.x);
    float node = 0.0f;
    if (2 * i < count) node = pass_sums[2 * i];
    if (2 * i + 1 < count) node = node + pass_sums[2 * i + 1];
    __syncthreads();
    if (2 * i < count) pass_sums[i] = node;
    __syncthreads();
  }
  const float inv = Inverse(p, pass_sums[0]);
  for (int pass = 0; pass < passes; ++pass) {
    const int64_t column = pass * pass_columns + int64_t{threadIdx.x} * kEight;
    WriteEight<kWeight>(p, row, column, inv, NormedEight(p, row, column));
  }
}
static_assert(kMaxPasses <= 2 * kMaxThreads);

template <Weight kWeight, int kHeld>
absl::Status LaunchHeld(const NormOperands& p, int row_threads, CudaStream stream) {
  // Short rows share a block.
  constexpr int kBlockThreads = 256;
  const int threads = std::max(row_threads, kBlockThreads);
  return Launch("rmsnorm", HeldKernel<kWeight, kHeld>,
                {DivideUp(p.rows, threads / row_threads), threads, 0, stream}, p, row_threads);
}

template <Weight kWeight>
absl::Status Norm(const NormOperands& p, CudaStream stream) {
  const int64_t eights = (p.columns + kEight - 1) / kEight;
  if (eights > int64_t{kMaxHeld} * kMaxThreads) {
    return Launch("rmsnorm", LongKernel<kWeight>,
                  {static_cast<unsigned>(p.rows), kMaxThreads, 0, stream}, p);
  }
  // The padded tree's leaves in eights.
  int64_t padded = 1;
  while (padded < eights) padded *= 2;
  constexpr int64_t kOneHeld = 32;
  constexpr int64_t kTwoHeld = 512;
  if (padded <= kOneHeld) return LaunchHeld<kWeight, 1>(p, static_cast<int>(padded), stream);
  if (padded <= kTwoHeld) return LaunchHeld<kWeight, 2>(p, static_cast<int>(padded / 2), stream);
  return LaunchHeld<kWeight, 4>(p, static_cast<int>(padded / 4), stream);
}

}  // namespace

absl::Status RmsNormCuda(const RmsNormParams& p, CudaStream stream) {
  if (absl::Status status = CheckRmsNorm(p); !status.ok()) return status;
  const int64_t stride = p.row_stride == 0 ? p.columns : p.row_stride;
  const uint16_t* residual = p.residual != nullptr ? p.residual : p.x;
  NormOperands operands = {
      .x = InRows(p.x, stride, p.rows),
      .residual = InRows(residual, stride, p.rows),
      .residual_out = OutRows(p.residual_out, stride, p.rows),
      .out = OutRows(p.out, stride, p.rows),
      .has_residual = p.residual != nullptr,
      .keeps_residual = p.residual_out != nullptr,
      .weight = p.weight,
      .weight_aligned = reinterpret_cast<uintptr_t>(p.weight) % 16 == 0,
      .offset = p.zero_centered ? 1.0f : -0.0f,
      .eps = p.eps,
      .rows = p.rows,
      .columns = p.columns,
  };
  if (p.weight == nullptr) return Norm<Weight::kNone>(operands, stream);
  return p.weight_type == FloatType::kBf16 ? Norm<Weight::kBf16>(operands, stream)
                                           : Norm<Weight::kF32>(operands, stream);
}

}  // namespace lockstep::kernels
