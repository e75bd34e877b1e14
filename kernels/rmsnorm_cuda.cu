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
constexpr int kBlockThreads = 256;  // short rows share a block of these
constexpr int kWideThreads = 512;   // a long row's block
constexpr int kLongThreads = 1024;  // of a row that is read twice
constexpr int64_t kMaxEights = kRmsNormMaxColumns / kEight;
// Sums of passes over the row that shared memory has room for.
constexpr int kMaxPasses = static_cast<int>(kMaxEights / kLongThreads);

enum class Weight : uint8_t { kNone, kBf16, kF32 };

// An operand whose rows may lie anywhere.
template <class Pointer>
struct NormRows {
  Pointer data;
  int64_t stride;
  bool aligned;

  NormRows(Pointer pointer, int64_t row_stride, int64_t rows)
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

struct NormOperands {
  NormRows<const uint16_t*> x, residual;
  NormRows<uint16_t*> residual_out, out;
  bool keeps_residual;
  const void* weight;
  bool weight_aligned;
  float offset;  // 1 for a zero-centered weight and -0 otherwise: adding -0 changes no value
  float eps;
  int64_t rows, columns;
};

// What eight columns of a row are made of.
template <bool kResidual>
struct RawEight {
  uint4 x, residual;
};

template <>
struct RawEight<false> {
  uint4 x;
};

// Elements [column, column + 8) of a row; beyond its end +0.
template <bool kResidual>
__device__ inline RawEight<kResidual> LoadRaw(const NormOperands& p, int64_t row, int64_t column) {
  RawEight<kResidual> raw = {};
  const int64_t rest = p.columns - column;
  if (rest <= 0) return raw;
  const int count = rest < kEight ? static_cast<int>(rest) : kEight;
  raw.x = p.x.Load(row, column, count);
  if constexpr (kResidual) raw.residual = p.residual.Load(row, column, count);
  return raw;
}

// The row that is normed.
template <bool kResidual>
__device__ inline uint4 Normed(const RawEight<kResidual>& raw) {
  if constexpr (!kResidual) {
    return raw.x;
  } else {
    float sum[kEight], addend[kEight];
    Unpack<Bf16>(raw.residual, sum);
    Unpack<Bf16>(raw.x, addend);
#pragma unroll
    for (int i = 0; i < kEight; ++i) sum[i] = sum[i] + addend[i];
    return Pack<Bf16>(sum);
  }
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

// Eight columns' weights: BF16 ones stay in registers over all rows, float32 ones are read again.
template <Weight kWeight>
struct WeightEight {
  __device__ void Keep(const NormOperands&, int64_t) {}
  __device__ void Get(const NormOperands& p, int64_t column, int count, float (&w)[kEight]) const {
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
};

template <>
struct WeightEight<Weight::kBf16> {
  uint4 kept;

  __device__ void Keep(const NormOperands& p, int64_t column) {
    const int64_t rest = p.columns - column;
    if (rest <= 0) return;
    const uint16_t* at = static_cast<const uint16_t*>(p.weight) + column;
    const bool eight = p.weight_aligned && rest >= kEight;
    kept = eight ? __ldg(reinterpret_cast<const uint4*>(at)) : LoadUpToEight(at, rest);
  }
  __device__ void Get(const NormOperands&, int64_t, int, float (&w)[kEight]) const {
    Unpack<Bf16>(kept, w);
  }
};

template <Weight kWeight>
__device__ inline void WriteEight(const NormOperands& p, int64_t row, int64_t column, float inv,
                                  const uint4& normed, const WeightEight<kWeight>& weight) {
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
    weight.Get(p, column, count, w);
#pragma unroll
    for (int i = 0; i < kEight; ++i) y[i] = y[i] * (w[i] + p.offset);
  }
  p.out.Store(row, column, count, Pack<Bf16>(y));
}

__device__ inline float Inverse(const NormOperands& p, float sum) {
  const float mean = __fdiv_rn(sum, static_cast<float>(p.columns));
  return __fdiv_rn(1.0f, __fsqrt_rn(mean + p.eps));
}

// The tree over the nodes that a row's threads hold: first over the threads, then over the held
// eights. `warp_sums` is not in use by any other row of the block.
template <int kHeld>
__device__ inline float RowSum(const uint4 (&held)[kHeld], int row_threads,
                               float (&warp_sums)[kHeld][kWarp]) {
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
  return sums[0];
}

// Blocks of one multiprocessor, as registers allow.
template <int kHeld, int kThreads>
constexpr int kResident = (kHeld > 2 ? 512 : 1024) / kThreads;

// Rows of up to kHeld eights to a thread. `row_threads` threads, a power of two, share a row; a
// block holds blockDim.x / row_threads rows at a time and loads the next ones before it sums up
// the last, so that memory is never idle.
template <Weight kWeight, bool kResidual, int kHeld, int kThreads>
__global__ void __launch_bounds__(kThreads, kResident<kHeld, kThreads>)
    HeldKernel(NormOperands p, int row_threads) {
  __shared__ float warp_sums[2][kHeld][kWarp];
  const int thread = static_cast<int>(threadIdx.x) % row_threads;
  const int64_t block_rows = kThreads / row_threads;
  const int64_t own = static_cast<int>(threadIdx.x) / row_threads;
  const auto column = [&](int h) { return int64_t{h * row_threads + thread} * kEight; };
  // A block may have too few rows left; its other threads repeat the last one.
  const auto load = [&](int64_t first, RawEight<kResidual>(&raw)[kHeld]) {
    const int64_t row = min(first + own, p.rows - 1);
#pragma unroll
    for (int h = 0; h < kHeld; ++h) raw[h] = LoadRaw<kResidual>(p, row, column(h));
  };
  WeightEight<kWeight> weight[kHeld];
#pragma unroll
  for (int h = 0; h < kHeld; ++h) weight[h].Keep(p, column(h));
  RawEight<kResidual> raw[kHeld];
  int64_t first = int64_t{blockIdx.x} * block_rows;
  const int64_t step = int64_t{gridDim.x} * block_rows;
  if (first < p.rows) load(first, raw);
  for (int turn = 0; first < p.rows; first += step, turn ^= 1) {
    uint4 held[kHeld];
#pragma unroll
    for (int h = 0; h < kHeld; ++h) held[h] = Normed<kResidual>(raw[h]);
    if (first + step < p.rows) load(first + step, raw);
    const float inv = Inverse(p, RowSum<kHeld>(held, row_threads, warp_sums[turn]));
    if (first + own >= p.rows) continue;
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      WriteEight<kWeight>(p, first + own, column(h), inv, held[h], weight[h]);
    }
  }
}

// Rows of any length, a block each: the sums of passes of kLongThreads eights meet in shared
// memory.
template <Weight kWeight, bool kResidual>
__global__ void __launch_bounds__(kLongThreads) LongKernel(NormOperands p) {
  __shared__ float pass_sums[kMaxPasses];
  __shared__ float warp_sums[kWarp];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = blockIdx.x;
  const int64_t pass_columns = int64_t{kLongThreads} * kEight;
  const int passes = static_cast<int>((p.columns + pass_columns - 1) / pass_columns);
  const auto normed = [&](int64_t column) {
    return Normed<kResidual>(LoadRaw<kResidual>(p, row, column));
  };
  for (int pass = 0; pass < passes; ++pass) {
    const int64_t column = pass * pass_columns + int64_t{threadIdx.x} * kEight;
    const float sum = LanesTree(SquaresNode(normed(column)), kWarp);
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
    WeightEight<kWeight> weight;
    weight.Keep(p, column);
    WriteEight<kWeight>(p, row, column, inv, normed(column), weight);
  }
}
static_assert(kMaxPasses <= 2 * kLongThreads);

template <Weight kWeight, bool kResidual, int kHeld, int kThreads>
absl::Status LaunchHeld(const NormOperands& p, int64_t row_threads, CudaStream stream) {
  const absl::StatusOr<int> multiprocessors = Multiprocessors();
  if (!multiprocessors.ok()) return multiprocessors.status();
  const int64_t blocks = (p.rows * row_threads + kThreads - 1) / kThreads;
  const int64_t limit = int64_t{*multiprocessors} * kResident<kHeld, kThreads>;
  return Launch("rmsnorm", HeldKernel<kWeight, kResidual, kHeld, kThreads>,
                {static_cast<unsigned>(std::min(blocks, limit)), kThreads, 0, stream}, p,
                static_cast<int>(row_threads));
}

template <Weight kWeight, bool kResidual>
absl::Status Norm(const NormOperands& p, CudaStream stream) {
  // The padded tree's leaves in eights.
  int64_t padded = 1;
  while (padded * kEight < p.columns) padded *= 2;
  if (padded <= kWarp) {
    return LaunchHeld<kWeight, kResidual, 1, kBlockThreads>(p, padded, stream);
  }
  if (padded <= 2 * kBlockThreads) {
    return LaunchHeld<kWeight, kResidual, 2, kBlockThreads>(p, padded / 2, stream);
  }
  if (padded <= kMaxHeld * kBlockThreads) {
    return LaunchHeld<kWeight, kResidual, kMaxHeld, kBlockThreads>(p, padded / kMaxHeld, stream);
  }
  if (padded <= kMaxHeld * kWideThreads) {
    return LaunchHeld<kWeight, kResidual, kMaxHeld, kWideThreads>(p, padded / kMaxHeld, stream);
  }
  return Launch("rmsnorm", LongKernel<kWeight, kResidual>,
                {static_cast<unsigned>(p.rows), kLongThreads, 0, stream}, p);
}

template <bool kResidual>
absl::Status NormWith(const NormOperands& p, FloatType weight_type, CudaStream stream) {
  if (p.weight == nullptr) return Norm<Weight::kNone, kResidual>(p, stream);
  return weight_type == FloatType::kBf16 ? Norm<Weight::kBf16, kResidual>(p, stream)
                                         : Norm<Weight::kF32, kResidual>(p, stream);
}

}  // namespace

absl::Status RmsNormCuda(const RmsNormParams& p, CudaStream stream) {
  if (absl::Status status = CheckRmsNorm(p); !status.ok()) return status;
  const int64_t stride = p.row_stride == 0 ? p.columns : p.row_stride;
  const uint16_t* residual = p.residual != nullptr ? p.residual : p.x;
  NormOperands operands = {
      .x = NormRows<const uint16_t*>(p.x, stride, p.rows),
      .residual = NormRows<const uint16_t*>(residual, stride, p.rows),
      .residual_out = NormRows<uint16_t*>(p.residual_out, stride, p.rows),
      .out = NormRows<uint16_t*>(p.out, stride, p.rows),
      .keeps_residual = p.residual_out != nullptr,
      .weight = p.weight,
      .weight_aligned = reinterpret_cast<uintptr_t>(p.weight) % 16 == 0,
      .offset = p.zero_centered ? 1.0f : -0.0f,
      .eps = p.eps,
      .rows = p.rows,
      .columns = p.columns,
  };
  return p.residual != nullptr ? NormWith<true>(operands, p.weight_type, stream)
                               : NormWith<false>(operands, p.weight_type, stream);
}

}  // namespace lockstep::kernels
