#ifndef LOCKSTEP_KERNELS_MOE_H_
#define LOCKSTEP_KERNELS_MOE_H_

// Exact local partials of a mixture of experts (kernels/SPECIFICATION.md, "Mixture of experts"):
// the leaf of one contributor and the fold over contributors, BF16. A fold's bytes depend on the
// leaves in ordinal order alone: never on chunks of rows or columns, arrival order, threads or
// how many physical ranks held the leaves.
//
// Example, `local-partial v3`:
//   MoeLeafParams leaf;
//   leaf.program = MoeLeafProgram::kFp32Fma;
//   leaf.rows = tokens, leaf.columns = hidden, leaf.scale = routed_scaling_factor;
//   leaf.routed = routed, leaf.shared = shared, leaf.out = partials + ordinal * tokens * hidden;
//   absl::Status status = MoeLeaf(leaf);
//   ...
//   MoeFoldParams fold;
//   fold.program = MoeFoldProgram::kFp64Tree;
//   fold.contributors = ordinals, fold.rows = tokens, fold.columns = hidden;
//   fold.partials = partials, fold.out = out;
//   status = MoeFold(fold);

#include <cstdint>

#include "absl/status/status.h"

namespace lockstep::kernels {

enum class MoeLeafProgram : uint8_t { kBf16Add, kFp32Fma };
enum class MoeFoldProgram : uint8_t { kBf16Tree, kFp32Tree, kFp64Tree };

inline constexpr char kMoeLeafBf16AddId[] = "moe_leaf/bf16_add@v1";
inline constexpr char kMoeLeafFp32FmaId[] = "moe_leaf/fp32_fma@v1";
inline constexpr char kMoeFoldBf16TreeId[] = "moe_fold/bf16_tree@v1";
inline constexpr char kMoeFoldFp32TreeId[] = "moe_fold/fp32_tree@v2";
inline constexpr char kMoeFoldFp64TreeId[] = "moe_fold/fp64_tree@v3";

// More contributors than this are refused: the fold keeps one partial sum per level of its tree.
inline constexpr int64_t kMoeFoldMaxContributors = int64_t{1} << 20;

struct MoeLeafParams {
  MoeLeafProgram program = MoeLeafProgram::kFp32Fma;
  int64_t rows = 0;
  int64_t columns = 0;
  const void* routed = nullptr;  // [rows, columns] BF16
  const void* shared = nullptr;  // [rows, columns] BF16
  void* out = nullptr;           // [rows, columns] BF16; overlaps neither operand
  // Elements between consecutive rows; 0 means contiguous.
  int64_t routed_row_stride = 0;
  int64_t shared_row_stride = 0;
  int64_t out_row_stride = 0;
  float scale = 1;  // of the routed part; finite
  int threads = 1;
};

// InvalidArgument for a size below 1, a stride shorter than its row, a null pointer or a scale
// that is not finite; FailedPrecondition when the thread's floating-point environment is not
// IEEE's.
absl::Status MoeLeaf(const MoeLeafParams& params);

// The errors alone, nothing computed; the CUDA twin refuses the same.
absl::Status CheckMoeLeaf(const MoeLeafParams& params);

struct MoeFoldParams {
  MoeFoldProgram program = MoeFoldProgram::kFp64Tree;
  int64_t contributors = 0;  // E
  int64_t rows = 0;
  int64_t columns = 0;
  const void* partials = nullptr;  // [contributors, rows, columns] BF16, in ordinal order
  void* out = nullptr;             // [rows, columns] BF16; does not overlap the partials
  // Elements between consecutive contributors and rows; 0 means contiguous (contributors:
  // rows * row stride). Contributors may lie at any distance, also interleaved with rows.
  int64_t contributor_stride = 0;
  int64_t partials_row_stride = 0;
  int64_t out_row_stride = 0;
  int threads = 1;
};

// InvalidArgument as for MoeLeaf, for fewer contributors than 1 or more than
// kMoeFoldMaxContributors and for a negative contributor stride.
absl::Status MoeFold(const MoeFoldParams& params);
absl::Status CheckMoeFold(const MoeFoldParams& params);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_MOE_H_
