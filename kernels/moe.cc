#include "kernels/moe.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "kernels/moe_engine.h"
#include "kernels/row_blocks.h"

namespace lockstep::kernels {

absl::Status CheckMoeLeaf(const MoeLeafParams& p) {
  if (!std::isfinite(p.scale)) {
    return absl::InvalidArgumentError(
        absl::StrCat("moe_leaf: expected a finite scale, got ", p.scale));
  }
  return CheckRowOperands("moe_leaf", p.rows, p.columns,
                          {{"routed", p.routed, p.routed_row_stride},
                           {"shared", p.shared, p.shared_row_stride},
                           {"out", p.out, p.out_row_stride}});
}

absl::Status CheckMoeFold(const MoeFoldParams& p) {
  if (p.contributors < 1 || p.contributors > kMoeFoldMaxContributors) {
    return absl::InvalidArgumentError(absl::StrCat("moe_fold: expected 1 to ",
                                                   kMoeFoldMaxContributors, " contributors, got ",
                                                   p.contributors));
  }
  if (p.contributor_stride < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("moe_fold: expected a contributor stride of 0 (contiguous) or above, got ",
                     p.contributor_stride));
  }
  return CheckRowOperands(
      "moe_fold", p.rows, p.columns,
      {{"partials", p.partials, p.partials_row_stride}, {"out", p.out, p.out_row_stride}});
}

absl::Status MoeLeaf(const MoeLeafParams& p) {
  if (absl::Status status = CheckMoeLeaf(p); !status.ok()) return status;
  const auto* routed = static_cast<const uint16_t*>(p.routed);
  const auto* shared = static_cast<const uint16_t*>(p.shared);
  auto* out = static_cast<uint16_t*>(p.out);
  ForEachRowBlock(p.rows, p.columns, p.threads, [&](int64_t row, int64_t begin, int64_t count) {
    RunMoeLeafStretch({.program = p.program,
                       .scale = p.scale,
                       .count = static_cast<size_t>(count),
                       .routed = routed + row * RowStride(p.routed_row_stride, p.columns) + begin,
                       .shared = shared + row * RowStride(p.shared_row_stride, p.columns) + begin,
                       .out = out + row * RowStride(p.out_row_stride, p.columns) + begin});
  });
  return absl::OkStatus();
}

absl::Status MoeFold(const MoeFoldParams& p) {
  if (absl::Status status = CheckMoeFold(p); !status.ok()) return status;
  const auto* partials = static_cast<const uint16_t*>(p.partials);
  auto* out = static_cast<uint16_t*>(p.out);
  const int64_t row_stride = RowStride(p.partials_row_stride, p.columns);
  const int64_t contributor_stride =
      p.contributor_stride == 0 ? p.rows * row_stride : p.contributor_stride;
  ForEachRowBlock(p.rows, p.columns, p.threads, [&](int64_t row, int64_t begin, int64_t count) {
    RunMoeFoldStretch({.program = p.program,
                       .contributors = static_cast<size_t>(p.contributors),
                       .contributor_stride = static_cast<size_t>(contributor_stride),
                       .count = static_cast<size_t>(count),
                       .first = partials + row * row_stride + begin,
                       .out = out + row * RowStride(p.out_row_stride, p.columns) + begin});
  });
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
