#include <cstdint>

#include "kernels/cuda_half.h"
#include "kernels/cuda_launch.h"
#include "kernels/cuda_rows.h"
#include "kernels/moe_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kLeafUnroll = 2;
constexpr int kBlocksPerMultiprocessor = 8;

struct LeafOperands {
  InRows routed, shared;
  OutRows out;
  float scale;

  LeafOperands From(int64_t row) const {
    return {routed.From(row), shared.From(row), out.From(row), scale};
  }
};

template <MoeLeafProgram kProgram>
struct LeafBody {
  const LeafOperands& p;

  struct In {
    uint4 routed, shared;
  };

  __device__ In Load(const EightPlace& place) const {
    return {p.routed.Load(place), p.shared.Load(place)};
  }

  __device__ void Run(const EightPlace& place, const In& in) const {
    float routed[kEight], shared[kEight];
    Unpack<Bf16>(in.routed, routed);
    Unpack<Bf16>(in.shared, shared);
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      if constexpr (kProgram == MoeLeafProgram::kBf16Add) {
        routed[i] = Rounded<Bf16>(routed[i] * p.scale) + shared[i];
      } else {
        routed[i] = __fmaf_rn(routed[i], p.scale, shared[i]);
      }
    }
    p.out.Store(place, Pack<Bf16>(routed));
  }
};

template <MoeLeafProgram kProgram>
__global__ void __launch_bounds__(kThreads) LeafKernel(EightGrid grid, LeafOperands operands) {
  ForEachEight<kThreads, kLeafUnroll>(grid, LeafBody<kProgram>{operands});
}

// What a node of each program's tree is.
struct Bf16Node {
  using Value = float;  // holds a BF16
  __device__ static Value FromLeaf(uint16_t bits) { return Bf16::Load(bits); }
  __device__ static Value Add(Value a, Value b) { return Rounded<Bf16>(a + b); }
  __device__ static uint16_t StoreRoot(Value x) { return Bf16::Store(x); }
};

struct F32Node {
  using Value = float;
  __device__ static Value FromLeaf(uint16_t bits) { return Bf16::Load(bits); }
  __device__ static Value Add(Value a, Value b) { return a + b; }
  __device__ static uint16_t StoreRoot(Value x) { return Bf16::Store(x); }
};

struct F64Node {
  using Value = double;
  __device__ static Value FromLeaf(uint16_t bits) { return Bf16::Load(bits); }
  __device__ static Value Add(Value a, Value b) { return a + b; }

  // One rounding: float32 rounded to odd keeps what the rounding to BF16 has to know.
  __device__ static uint16_t StoreRoot(Value x) {
    const float toward_zero = __double2float_rz(x);
    const bool exact = static_cast<double>(toward_zero) == x;
    const uint32_t bits = BitsOf(toward_zero);
    // Infinity and NaN stay what they are; a NaN is canonical at the store.
    const bool finite = (bits & 0x7F800000) != 0x7F800000;
    return Bf16::Store(F32FromBits(exact || !finite ? bits : bits | 1));
  }
};

// Leaves that one thread reads before it adds any of them.
constexpr int kGroup = 8;
constexpr int kGroupLevels = 3;

// The adjacent-pair tree over the first `count` of a group's leaves of element `i`.
template <class Node>
__device__ inline typename Node::Value GroupRoot(const uint4 (&leaves)[kGroup], int i, int count) {
  typename Node::Value nodes[kGroup];
#pragma unroll
  for (int e = 0; e < kGroup; ++e) nodes[e] = Node::FromLeaf(Element(leaves[e], i));
#pragma unroll
  for (int width = kGroup / 2; width >= 1; width /= 2) {
#pragma unroll
    for (int n = 0; n < width; ++n) {
      const bool pair = 2 * n + 1 < count;
      nodes[n] = pair ? Node::Add(nodes[2 * n], nodes[2 * n + 1]) : nodes[2 * n];
    }
    count = (count + 1) / 2;
  }
  return nodes[0];
}

struct FoldOperands {
  InRows first;
  int64_t contributor_stride;
  int64_t contributors;
  OutRows out;

  FoldOperands From(int64_t row) const {
    return {first.From(row), contributor_stride, contributors, out.From(row)};
  }
};

// kStack levels above the groups' roots: enough for 8 * 2^kStack - 1 contributors. A tree of E
// leaves is the tree of its largest complete groups joined from the right, so a stack with one
// pending sum per level, occupied as the bits of the number of groups so far, builds it.
template <class Node, int kStack>
struct FoldBody {
  const FoldOperands& p;

  struct In {};

  __device__ In Load(const EightPlace&) const { return {}; }

  __device__ void LoadGroup(const EightPlace& place, int64_t first, int leaves,
                            uint4 (&group)[kGroup]) const {
    const uint16_t* at = p.first.At(place) + first * p.contributor_stride;
    const bool eight = p.first.aligned && place.count == kEight;
#pragma unroll
    for (int e = 0; e < kGroup; ++e, at += p.contributor_stride) {
      group[e] = make_uint4(0, 0, 0, 0);
      if (e < leaves) group[e] = eight ? LoadEight(at) : LoadUpToEight(at, place.count);
    }
  }

  __device__ void Run(const EightPlace& place, In) const {
    using Value = typename Node::Value;
    Value pending[kStack > 0 ? kStack : 1][kEight];
    const int64_t groups = (p.contributors - 1) / kGroup;  // complete ones before the last
    uint4 group[kGroup];
    for (int64_t g = 0; g < groups; ++g) {
      LoadGroup(place, g * kGroup, kGroup, group);
#pragma unroll
      for (int i = 0; i < kEight; ++i) {
        Value sum = GroupRoot<Node>(group, i, kGroup);
        bool carried = true;
#pragma unroll
        for (int level = 0; level < kStack; ++level) {
          const bool occupied = (g >> level) & 1;
          if (carried && occupied) sum = Node::Add(pending[level][i], sum);
          if (carried && !occupied) pending[level][i] = sum;
          carried = carried && occupied;
        }
      }
    }
    const int rest = static_cast<int>(p.contributors - groups * kGroup);
    LoadGroup(place, groups * kGroup, rest, group);
    uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      Value sum = GroupRoot<Node>(group, i, rest);
#pragma unroll
      for (int level = 0; level < kStack; ++level) {
        if ((groups >> level) & 1) sum = Node::Add(pending[level][i], sum);
      }
      words[i / 2] |= uint32_t{Node::StoreRoot(sum)} << (i % 2 * 16);
    }
    p.out.Store(place, make_uint4(words[0], words[1], words[2], words[3]));
  }
};

template <class Node, int kStack>
__global__ void __launch_bounds__(kThreads) FoldKernel(EightGrid grid, FoldOperands operands) {
  ForEachEight<kThreads, 1>(grid, FoldBody<Node, kStack>{operands});
}

template <class Operands>
absl::Status LaunchWalk(const char* what, void (*kernel)(EightGrid, Operands), int unroll,
                        const EightGrid& grid, const Operands& operands, CudaStream stream) {
  const absl::StatusOr<int> multiprocessors = Multiprocessors();
  if (!multiprocessors.ok()) return multiprocessors.status();
  const int64_t limit = int64_t{*multiprocessors} * kBlocksPerMultiprocessor;
  return Launch(what, kernel, {grid.Blocks(kThreads * unroll, limit), kThreads, 0, stream}, grid,
                operands);
}

// Contributors up to which the last group's tree is all, and up to which three levels do.
constexpr int64_t kOneGroup = kGroup;
constexpr int64_t kOneLevel = 1;
constexpr int64_t kSmallStack = 3;
constexpr int64_t kLargeStack = 20 - kGroupLevels;
static_assert(kMoeFoldMaxContributors <= int64_t{kGroup} << kLargeStack);

template <class Node>
absl::Status Fold(const EightGrid& grid, const FoldOperands& operands, CudaStream stream) {
  if (operands.contributors <= kOneGroup) {
    return LaunchWalk("moe_fold", FoldKernel<Node, 0>, 1, grid, operands, stream);
  }
  if (operands.contributors <= kGroup << kOneLevel) {
    return LaunchWalk("moe_fold", FoldKernel<Node, kOneLevel>, 1, grid, operands, stream);
  }
  if (operands.contributors <= kGroup << kSmallStack) {
    return LaunchWalk("moe_fold", FoldKernel<Node, kSmallStack>, 1, grid, operands, stream);
  }
  return LaunchWalk("moe_fold", FoldKernel<Node, kLargeStack>, 1, grid, operands, stream);
}

absl::Status FoldOf(MoeFoldProgram program, const EightGrid& grid, const FoldOperands& operands,
                    CudaStream stream) {
  switch (program) {
    case MoeFoldProgram::kBf16Tree:
      return Fold<Bf16Node>(grid, operands, stream);
    case MoeFoldProgram::kFp32Tree:
      return Fold<F32Node>(grid, operands, stream);
    case MoeFoldProgram::kFp64Tree:
      return Fold<F64Node>(grid, operands, stream);
  }
  return absl::InternalError("moe_fold: unknown program");
}

const uint16_t* Half(const void* data) { return static_cast<const uint16_t*>(data); }
uint16_t* Half(void* data) { return static_cast<uint16_t*>(data); }
int64_t Stride(int64_t stride, int64_t columns) { return stride == 0 ? columns : stride; }

}  // namespace

absl::Status MoeLeafCuda(const MoeLeafParams& p, CudaStream stream) {
  if (absl::Status s = CheckMoeLeaf(p); !s.ok()) return s;
  const LeafOperands operands = {
      .routed = InRows(Half(p.routed), Stride(p.routed_row_stride, p.columns), p.rows),
      .shared = InRows(Half(p.shared), Stride(p.shared_row_stride, p.columns), p.rows),
      .out = OutRows(Half(p.out), Stride(p.out_row_stride, p.columns), p.rows),
      .scale = p.scale,
  };
  const auto kernel = p.program == MoeLeafProgram::kBf16Add ? LeafKernel<MoeLeafProgram::kBf16Add>
                                                            : LeafKernel<MoeLeafProgram::kFp32Fma>;
  return ForEachRowChunk("moe_leaf", p.rows, p.columns,
                         {operands.routed.stride, operands.shared.stride, operands.out.stride},
                         [&](int64_t row, int64_t rows) {
                           return LaunchWalk("moe_leaf", kernel, kLeafUnroll,
                                             EightGrid(rows, p.columns), operands.From(row),
                                             stream);
                         });
}

absl::Status MoeFoldCuda(const MoeFoldParams& p, CudaStream stream) {
  if (absl::Status s = CheckMoeFold(p); !s.ok()) return s;
  const int64_t row_stride = Stride(p.partials_row_stride, p.columns);
  FoldOperands operands = {
      .first = InRows(Half(p.partials), row_stride, p.rows),
      .contributor_stride = p.contributor_stride == 0 ? p.rows * row_stride : p.contributor_stride,
      .contributors = p.contributors,
      .out = OutRows(Half(p.out), Stride(p.out_row_stride, p.columns), p.rows),
  };
  if (p.contributors > 1 && operands.contributor_stride % kEight != 0) {
    operands.first.aligned = false;
  }
  return ForEachRowChunk("moe_fold", p.rows, p.columns, {row_stride, operands.out.stride},
                         [&](int64_t row, int64_t rows) {
                           return FoldOf(p.program, EightGrid(rows, p.columns), operands.From(row),
                                         stream);
                         });
}

}  // namespace lockstep::kernels
