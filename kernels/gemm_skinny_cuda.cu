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
constexpr int kStageDepth = 128;
constexpr int kStageEights = kStageDepth / kEight;
constexpr int kStageSlots = kWarp * kStageEights;
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

// What eight steps of a thread's chains read.
template <int kRows>
struct EightSteps {
  uint4 many;
  float4 few[kRows][2];
};

constexpr size_t SharedBytes(int block_rows) {
  const size_t many = size_t{kStages} * kStageSlots * sizeof(uint4);
  return many + size_t{2} * static_cast<size_t>(block_rows) * kStageDepth * sizeof(float);
}

// A block of kWarps warps, each with kRows small rows against the same 32 large ones.
template <class Format, int kRows, int kWarps, bool kTiles>
class SkinnyBlock {
 public:
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kBlockRows = kWarps * kRows;

  __device__ SkinnyBlock(const SkinnyOperands& operands, uint4* shared)
      : p_(operands),
        many_stages_(shared),
        few_stages_(reinterpret_cast<float*>(shared + kStages * kStageSlots)),
        lane_(static_cast<int>(threadIdx.x) % kWarp),
        warp_(static_cast<int>(threadIdx.x) / kWarp),
        few_begin_(int64_t{blockIdx.x} % operands.few_blocks * kBlockRows),
        many_begin_(int64_t{blockIdx.x} / operands.few_blocks * kWarp),
        whole_(operands.k / kEight * kEight) {
    const int eight = static_cast<int>(threadIdx.x) % kStageEights;
    // Rows past the end repeat the last one; their outputs are not stored.
#pragma unroll
    for (int c = 0; c < kCopies; ++c) {
      const int64_t row = min(many_begin_ + CopyRow(c), p_.many_rows - 1);
      many_from_[c] = p_.many + row * p_.many_stride + eight * kEight;
    }
#pragma unroll
    for (int n = 0; n < kNext; ++n) {
      const int64_t row =
          min(few_begin_ + (n * kThreads + static_cast<int>(threadIdx.x)) / kStageEights,
              p_.few_rows - 1);
      few_from_[n] = p_.few + row * p_.few_stride + eight * kEight;
    }
  }

  __device__ void Run() {
    const int count = static_cast<int>((whole_ + kStageDepth - 1) / kStageDepth);
#pragma unroll
    for (int s = 0; s < kStages - 1; ++s) FetchMany(s);
    FetchFew(0);
    for (int stage = 0; stage < count; ++stage) {
      StoreFew(stage);
      __pipeline_wait_prior(kStages - 2);
      __syncthreads();
      FetchMany(stage + kStages - 1);
      FetchFew(stage + 1);
      const int64_t rest = whole_ - int64_t{stage} * kStageDepth;
      if (rest >= kStageDepth) {
        Stage(stage);
      } else {
        PartOfStage(stage, static_cast<int>(rest) / kEight);
      }
    }
    Finish();
  }

 private:
  static constexpr int kCopies = kStageSlots / kThreads;  // large eights that a thread fetches
  static constexpr int kNext = (kRows + 1) / 2;           // small eights, of which
  static constexpr bool kHalfFetch = kRows % 2 == 1;      // half of the threads has one

  __device__ int CopyRow(int c) const {
    return static_cast<int>(threadIdx.x) / kStageEights + c * (kThreads / kStageEights);
  }

  __device__ void FetchMany(int stage) const {
    const int eight = static_cast<int>(threadIdx.x) % kStageEights;
    const int64_t k = int64_t{stage} * kStageDepth;
    if (k + eight * kEight < whole_) {
      uint4* to = many_stages_ + stage % kStages * kStageSlots;
#pragma unroll
      for (int c = 0; c < kCopies; ++c) {
        __pipeline_memcpy_async(to + Slot(CopyRow(c), eight), many_from_[c] + k, sizeof(uint4));
      }
    }
    __pipeline_commit();
  }

  __device__ bool HasNext() const {
    return !kHalfFetch || static_cast<int>(threadIdx.x) < kThreads / 2;
  }

  __device__ void FetchFew(int stage) {
    const int64_t k = int64_t{stage} * kStageDepth;
    if (!HasNext() || k + static_cast<int>(threadIdx.x) % kStageEights * kEight >= whole_) return;
#pragma unroll
    for (int n = 0; n < kNext; ++n) {
      next_[n] = __ldg(reinterpret_cast<const uint4*>(few_from_[n] + k));
    }
  }

  __device__ void StoreFew(int stage) const {
    if (!HasNext()) return;
#pragma unroll
    for (int n = 0; n < kNext; ++n) {
      float x[kEight];
      Unpack<Format>(next_[n], x);
      const int i = n * kThreads + static_cast<int>(threadIdx.x);
      float4* to = reinterpret_cast<float4*>(few_stages_ + stage % 2 * (kBlockRows * kStageDepth) +
                                             i * kEight);
      to[0] = make_float4(x[0], x[1], x[2], x[3]);
      to[1] = make_float4(x[4], x[5], x[6], x[7]);
    }
  }

  __device__ EightSteps<kRows> Read(int stage, int eight) const {
    EightSteps<kRows> steps;
    steps.many = many_stages_[stage % kStages * kStageSlots + Slot(lane_, eight)];
    const float* few =
        few_stages_ + (stage % 2 * kBlockRows + warp_ * kRows) * kStageDepth + eight * kEight;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float4* from = reinterpret_cast<const float4*>(few + r * kStageDepth);
      steps.few[r][0] = from[0];
      steps.few[r][1] = from[1];
    }
    return steps;
  }

  __device__ void Advance(const EightSteps<kRows>& steps) {
    float y[kEight];
    Unpack<Format>(steps.many, y);
    float x[kRows][kEight];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float4 low = steps.few[r][0], high = steps.few[r][1];
      x[r][0] = low.x, x[r][1] = low.y, x[r][2] = low.z, x[r][3] = low.w;
      x[r][4] = high.x, x[r][5] = high.y, x[r][6] = high.z, x[r][7] = high.w;
    }
#pragma unroll
    for (int j = 0; j < kEight; ++j) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums_[r].chain = __fmaf_rn(x[r][j], y[j], sums_[r].chain);
    }
  }

  __device__ void EndTiles(int64_t k) {
    if constexpr (kTiles) {
      if (k % kGemmTileK != 0 || k == 0) return;
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums_[r].EndTile(k == kGemmTileK);
    }
  }

  // Shared memory is read one eight ahead of the chains, which wait for nothing else.
  __device__ void Stage(int stage) {
    EightSteps<kRows> steps = Read(stage, 0);
#pragma unroll
    for (int eight = 0; eight < kStageEights; ++eight) {
      EightSteps<kRows> ahead;
      if (eight + 1 < kStageEights) ahead = Read(stage, eight + 1);
      if (eight % (kGemmTileK / kEight) == 0)
        EndTiles(int64_t{stage} * kStageDepth + eight * kEight);
      Advance(steps);
      steps = ahead;
    }
  }

  __device__ void PartOfStage(int stage, int eights) {
    for (int eight = 0; eight < eights; ++eight) {
      EndTiles(int64_t{stage} * kStageDepth + eight * kEight);
      Advance(Read(stage, eight));
    }
  }

  // The last elements of a row that is no multiple of eight, and the outputs.
  __device__ void Finish() {
    const int64_t many_row = many_begin_ + lane_;
    if (many_row >= p_.many_rows) return;
    for (int64_t k = whole_; k < p_.k; ++k) {
      if (k == whole_) EndTiles(k);
      const float y = LoadHalf<Format>(p_.many[many_row * p_.many_stride + k]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int64_t row = min(few_begin_ + warp_ * kRows + r, p_.few_rows - 1);
        sums_[r].chain =
            __fmaf_rn(LoadHalf<Format>(p_.few[row * p_.few_stride + k]), y, sums_[r].chain);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = few_begin_ + warp_ * kRows + r;
      if (row >= p_.few_rows) continue;
      StoreSum(p_.out, p_.out_type, row * p_.out_few_stride + many_row * p_.out_many_stride,
               sums_[r].Total(p_.k > kGemmTileK));
    }
  }

  const SkinnyOperands& p_;
  uint4* const many_stages_;  // [kStages][kWarp][kStageEights], the large rows as they are
  float* const few_stages_;   // [2][kBlockRows][kStageDepth], the small ones as float32
  const int lane_, warp_;
  const int64_t few_begin_, many_begin_;
  const int64_t whole_;  // elements of a row that are read by eights
  const uint16_t* many_from_[kCopies];
  const uint16_t* few_from_[kNext];
  uint4 next_[kNext];
  Sum<kTiles> sums_[kRows];
};

template <class Format, int kRows, int kWarps, bool kTiles>
__global__ void __launch_bounds__(kWarps* kWarp) SkinnyKernel(SkinnyOperands p) {
  extern __shared__ uint4 shared[];
  SkinnyBlock<Format, kRows, kWarps, kTiles>(p, shared).Run();
}

template <class Format, int kRows, int kWarps>
absl::Status OfRows(SkinnyOperands operands, bool tiles, CudaStream stream) {
  using Block = SkinnyBlock<Format, kRows, kWarps, false>;
  operands.few_blocks = DivideUp(operands.few_rows, Block::kBlockRows);
  const int64_t blocks = operands.few_blocks * DivideUp(operands.many_rows, kWarp);
  if (blocks > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("gemm: a product with ", operands.many_rows,
                     " rows of one operand is larger than one launch; split them"));
  }
  const LaunchShape shape = {static_cast<unsigned>(blocks), Block::kThreads,
                             SharedBytes(Block::kBlockRows), stream};
  return tiles ? Launch("gemm", SkinnyKernel<Format, kRows, kWarps, true>, shape, operands)
               : Launch("gemm", SkinnyKernel<Format, kRows, kWarps, false>, shape, operands);
}

// Small rows of one thread and warps of one block: few enough chains to a thread that they end in
// the time the memory takes.
template <class Format>
absl::Status OfFormat(const SkinnyOperands& operands, bool tiles, CudaStream stream) {
  if (operands.few_rows == 1) return OfRows<Format, 1, 1>(operands, tiles, stream);
  if (operands.few_rows <= 4) return OfRows<Format, 2, 2>(operands, tiles, stream);
  if (operands.few_rows <= 8) return OfRows<Format, 4, 2>(operands, tiles, stream);
  return OfRows<Format, 4, 4>(operands, tiles, stream);
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
