// Chains over k where one operand has few rows (a decode step, an adapter's rank): the other is
// read once, at memory speed. A lane owns one row of the large operand, a warp kRows rows of the
// small one; the large rows pass through a ring of shared-memory stages that asynchronous copies
// fill.

#include <cuda_pipeline.h>

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

constexpr int kWarp = 32;  // large rows of a block
constexpr int kMaxWarps = 4;
constexpr int kStageDepth = 128;
constexpr int kStageEights = kStageDepth / kEight;
constexpr int kStages = 4;
static_assert(kStageDepth % kGemmTileK == 0);

struct SkinnyOperands {
  const uint16_t* few;   // [few_rows, k]
  const uint16_t* many;  // [many_rows, k]
  int64_t few_stride, many_stride;
  int64_t few_rows, many_rows, k;
  void* out;
  FloatType out_type;
  int64_t out_few_stride, out_many_stride;
  int64_t few_blocks;
};

// Eights of a row are rotated by the row, so that lanes reading one column of them hit all banks.
__device__ inline int Slot(int row, int eight) { return row * kStageEights + (eight ^ (row % 8)); }

// A block's stages: the large rows as they are, the small ones as float32.
struct Stages {
  uint4* many;  // [kStages][kWarp * kStageEights]
  float* few;   // [2][rows of the block][kStageDepth]
};

template <class Format, int kRows, bool kTiles>
struct SkinnyBlock {
  static constexpr int kNext = (kRows + 1) / 2;  // eights of the small rows that a thread loads

  const SkinnyOperands& p;
  const Stages stages;
  const int64_t few_begin, many_begin;
  const int block_rows;  // of the small operand
  const int64_t whole;   // elements of a row that can be read by eights
  uint4 next[kNext];

  __device__ void FetchMany(int64_t stage) const {
    if (stage * kStageDepth < whole) {
      uint4* to = stages.many + stage % kStages * (kWarp * kStageEights);
      for (int i = static_cast<int>(threadIdx.x); i < kWarp * kStageEights;
           i += static_cast<int>(blockDim.x)) {
        const int row = i / kStageEights;
        const int eight = i % kStageEights;
        const int64_t k = stage * kStageDepth + eight * kEight;
        // Rows past the end repeat the last one; their outputs are not stored.
        const int64_t from = min(many_begin + row, p.many_rows - 1);
        if (k < whole) {
          __pipeline_memcpy_async(to + Slot(row, eight), p.many + from * p.many_stride + k,
                                  sizeof(uint4));
        }
      }
    }
    __pipeline_commit();
  }

  __device__ void FetchFew(int64_t stage) {
#pragma unroll
    for (int n = 0; n < kNext; ++n) {
      const int i = n * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
      const int64_t k = stage * kStageDepth + i % kStageEights * kEight;
      const int64_t row = min(few_begin + i / kStageEights, p.few_rows - 1);
      if (i < block_rows * kStageEights && k < whole) {
        next[n] = __ldg(reinterpret_cast<const uint4*>(p.few + row * p.few_stride + k));
      }
    }
  }

  __device__ float* FewAt(int64_t stage) const {
    return stages.few + stage % 2 * (block_rows * kStageDepth);
  }

  __device__ void StoreFew(int64_t stage) const {
#pragma unroll
    for (int n = 0; n < kNext; ++n) {
      const int i = n * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
      if (i >= block_rows * kStageEights) continue;
      float x[kEight];
      Unpack<Format>(next[n], x);
      float4* to = reinterpret_cast<float4*>(FewAt(stage) + i * kEight);
      to[0] = make_float4(x[0], x[1], x[2], x[3]);
      to[1] = make_float4(x[4], x[5], x[6], x[7]);
    }
  }

  // Eight steps of every chain of this thread.
  __device__ void Step(int64_t stage, int eight, Sum<kTiles> (&sums)[kRows]) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const uint4* many = stages.many + stage % kStages * (kWarp * kStageEights);
    float y[kEight];
    Unpack<Format>(many[Slot(lane, eight)], y);
    float x[kRows][kEight];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float4* from = reinterpret_cast<const float4*>(
          FewAt(stage) + (warp * kRows + r) * kStageDepth + eight * kEight);
      const float4 low = from[0], high = from[1];
      x[r][0] = low.x, x[r][1] = low.y, x[r][2] = low.z, x[r][3] = low.w;
      x[r][4] = high.x, x[r][5] = high.y, x[r][6] = high.z, x[r][7] = high.w;
    }
#pragma unroll
    for (int j = 0; j < kEight; ++j) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r].chain = __fmaf_rn(x[r][j], y[j], sums[r].chain);
    }
  }

  __device__ void EndTiles(int64_t k, Sum<kTiles> (&sums)[kRows]) const {
    if constexpr (kTiles) {
      if (k % kGemmTileK != 0 || k == 0) return;
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r].EndTile(k == kGemmTileK);
    }
  }

  __device__ void Run() {
    Sum<kTiles> sums[kRows];
    for (int s = 0; s < kStages - 1; ++s) FetchMany(s);
    FetchFew(0);
    const int64_t count = (whole + kStageDepth - 1) / kStageDepth;
    for (int64_t stage = 0; stage < count; ++stage) {
      StoreFew(stage);
      __pipeline_wait_prior(kStages - 2);
      __syncthreads();
      FetchMany(stage + kStages - 1);
      FetchFew(stage + 1);
      const int64_t k = stage * kStageDepth;
      if (k + kStageDepth <= whole) {
#pragma unroll 4
        for (int eight = 0; eight < kStageEights; ++eight) {
          EndTiles(k + eight * kEight, sums);
          Step(stage, eight, sums);
        }
      } else {
        for (int eight = 0; k + eight * kEight < whole; ++eight) {
          EndTiles(k + eight * kEight, sums);
          Step(stage, eight, sums);
        }
      }
    }
    Finish(sums);
  }

  // The last elements of a row that is no multiple of eight, and the outputs.
  __device__ void Finish(Sum<kTiles> (&sums)[kRows]) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int64_t many_row = many_begin + lane;
    if (many_row >= p.many_rows) return;
    for (int64_t k = whole; k < p.k; ++k) {
      if (k == whole) EndTiles(k, sums);
      const float y = LoadHalf<Format>(p.many[many_row * p.many_stride + k]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int64_t row = min(few_begin + warp * kRows + r, p.few_rows - 1);
        sums[r].chain =
            __fmaf_rn(LoadHalf<Format>(p.few[row * p.few_stride + k]), y, sums[r].chain);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = few_begin + warp * kRows + r;
      if (row >= p.few_rows) continue;
      StoreSum(p.out, p.out_type, row * p.out_few_stride + many_row * p.out_many_stride,
               sums[r].Total(p.k > kGemmTileK));
    }
  }
};

constexpr size_t kManyBytes = size_t{kStages} * kWarp * kStageEights * sizeof(uint4);

template <class Format, int kRows, bool kTiles>
__global__ void __launch_bounds__(kWarp* kMaxWarps) SkinnyKernel(SkinnyOperands p) {
  extern __shared__ uint4 shared[];
  const int block_rows = static_cast<int>(blockDim.x) / kWarp * kRows;
  SkinnyBlock<Format, kRows, kTiles> block = {
      p,
      {shared, reinterpret_cast<float*>(shared) + kManyBytes / sizeof(float)},
      int64_t{blockIdx.x} % p.few_blocks * block_rows,
      int64_t{blockIdx.x} / p.few_blocks * kWarp,
      block_rows,
      p.k / kEight * kEight,
      {}};
  block.Run();
}

template <class Format, int kRows>
absl::Status OfRows(SkinnyOperands operands, bool tiles, CudaStream stream) {
  const int warps = std::min<int>(kMaxWarps, static_cast<int>(DivideUp(operands.few_rows, kRows)));
  operands.few_blocks = DivideUp(operands.few_rows, int64_t{warps} * kRows);
  const int64_t blocks = operands.few_blocks * DivideUp(operands.many_rows, kWarp);
  if (blocks > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("gemm: a product with ", operands.many_rows,
                     " rows of one operand is larger than one launch; split them"));
  }
  const size_t shared_bytes = kManyBytes + size_t{2} * warps * kRows * kStageDepth * sizeof(float);
  const LaunchShape shape = {static_cast<unsigned>(blocks), static_cast<unsigned>(warps * kWarp),
                             shared_bytes, stream};
  return tiles ? Launch("gemm", SkinnyKernel<Format, kRows, true>, shape, operands)
               : Launch("gemm", SkinnyKernel<Format, kRows, false>, shape, operands);
}

// Rows of the small operand for one thread: one chain each, as many as keep the multiply-adds of
// all warps ahead of the memory.
template <class Format>
absl::Status OfFormat(const SkinnyOperands& operands, bool tiles, CudaStream stream) {
  if (operands.few_rows == 1) return OfRows<Format, 1>(operands, tiles, stream);
  if (operands.few_rows <= 4) return OfRows<Format, 2>(operands, tiles, stream);
  return OfRows<Format, 4>(operands, tiles, stream);
}

}  // namespace

absl::Status internal::EnqueueSkinny(const CudaChainProduct& p, CudaStream stream) {
  const bool few_is_a = p.m <= p.n;
  const ChainOperand& few = few_is_a ? p.a : p.b;
  const ChainOperand& many = few_is_a ? p.b : p.a;
  SkinnyOperands operands = {};
  operands.few = static_cast<const uint16_t*>(few.data);
  operands.many = static_cast<const uint16_t*>(many.data);
  operands.few_stride = static_cast<int64_t>(few.row_stride);
  operands.many_stride = static_cast<int64_t>(many.row_stride);
  operands.few_rows = few_is_a ? p.m : p.n;
  operands.many_rows = few_is_a ? p.n : p.m;
  operands.k = p.k;
  operands.out = p.out, operands.out_type = p.out_type;
  operands.out_few_stride = few_is_a ? p.out_row_stride : 1;
  operands.out_many_stride = few_is_a ? 1 : p.out_row_stride;
  return p.a.type == FloatType::kBf16 ? OfFormat<Bf16>(operands, p.tiles, stream)
                                      : OfFormat<F16>(operands, p.tiles, stream);
}

}  // namespace lockstep::kernels
