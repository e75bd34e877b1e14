#include "kernels/box_view.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep::kernels {
namespace {

std::optional<uint64_t> Multiply(uint64_t a, uint64_t b) {
  uint64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

std::string ShapeText(absl::Span<const uint64_t> dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ","), "]");
}

absl::Status CheckShape(const BoxView& view) {
  const size_t rank = view.shape.size();
  if (rank > kMaxBoxRank || view.start.size() != rank || view.extent.size() != rank ||
      view.stride_bytes.size() != rank) {
    return absl::InvalidArgumentError(
        absl::StrCat("view: expected shape, start, extent and stride of one rank of at most ",
                     kMaxBoxRank, ", got ", rank, ", ", view.start.size(), ", ", view.extent.size(),
                     ", ", view.stride_bytes.size()));
  }
  if (view.element_bytes == 0 || view.element_bytes > kMaxElementBytes) {
    return absl::InvalidArgumentError(absl::StrCat("view: expected an element of 1 to ",
                                                   kMaxElementBytes, " bytes, got ",
                                                   view.element_bytes));
  }
  for (size_t d = 0; d < rank; ++d) {
    if (view.start[d] > view.shape[d] || view.extent[d] > view.shape[d] - view.start[d]) {
      return absl::InvalidArgumentError(
          absl::StrCat("view: expected a box inside shape ", ShapeText(view.shape), ", got start ",
                       ShapeText(view.start), " extent ", ShapeText(view.extent)));
    }
  }
  return absl::OkStatus();
}

// Every element's first and last byte must lie in [0, buffer_bytes).
absl::Status CheckLocalBounds(const BoxView& view, uint64_t buffer_bytes) {
  __int128 low = view.offset_bytes;
  __int128 high = static_cast<__int128>(view.offset_bytes) + view.element_bytes;
  for (size_t d = 0; d < view.shape.size(); ++d) {
    const __int128 reach =
        static_cast<__int128>(view.extent[d] - 1) * static_cast<__int128>(view.stride_bytes[d]);
    (reach < 0 ? low : high) += reach;
  }
  if (low < 0 || high > static_cast<__int128>(buffer_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "view: expected every element inside the buffer of ", buffer_bytes, " bytes, got extent ",
        ShapeText(view.extent), " at offset ", view.offset_bytes, " with strides [",
        absl::StrJoin(view.stride_bytes, ","), "]"));
  }
  return absl::OkStatus();
}

// Joins a loop to the one inside it when one longer loop says the same.
void PushLoop(std::vector<RunPlan::Loop>& innermost_first, const RunPlan::Loop& loop) {
  if (loop.extent == 1) return;
  if (!innermost_first.empty()) {
    RunPlan::Loop& inner = innermost_first.back();
    // The extents' product divides the stream's length, which did not overflow; the local
    // product is within the buffer's bounds when it equals a stride that was checked.
    if (loop.stream_stride == inner.stream_stride * inner.extent &&
        static_cast<__int128>(loop.local_stride) ==
            static_cast<__int128>(inner.local_stride) * static_cast<__int128>(inner.extent)) {
      inner.extent *= loop.extent;
      return;
    }
  }
  innermost_first.push_back(loop);
}

bool Overlap(const BoxView& a, const BoxView& b) {
  for (size_t d = 0; d < a.shape.size(); ++d) {
    if (a.start[d] + a.extent[d] <= b.start[d] || b.start[d] + b.extent[d] <= a.start[d]) {
      return false;
    }
  }
  return true;
}

}  // namespace

BoxView WholeTensorView(absl::Span<const uint64_t> shape, uint64_t element_bytes) {
  BoxView view;
  view.shape.assign(shape.begin(), shape.end());
  view.start.assign(shape.size(), 0);
  view.extent = view.shape;
  view.element_bytes = element_bytes;
  view.stride_bytes.resize(shape.size());
  uint64_t stride = element_bytes;
  for (size_t d = shape.size(); d-- > 0;) {
    view.stride_bytes[d] = static_cast<int64_t>(stride);
    stride *= shape[d];
  }
  return view;
}

absl::StatusOr<RunPlan> PlanRuns(const BoxView& view, uint64_t buffer_bytes) {
  if (absl::Status status = CheckShape(view); !status.ok()) return status;
  const size_t rank = view.shape.size();
  const bool empty = std::count(view.extent.begin(), view.extent.end(), 0) > 0;
  RunPlan plan;
  plan.element_bytes = view.element_bytes;
  plan.local_offset = view.offset_bytes;
  std::vector<RunPlan::Loop> loops;  // innermost first
  std::optional<uint64_t> stride = view.element_bytes;
  for (size_t d = rank; d-- > 0;) {
    plan.stream_offset += view.start[d] * *stride;
    if (!empty) PushLoop(loops, {view.extent[d], *stride, view.stride_bytes[d]});
    stride = Multiply(*stride, view.shape[d]);
    if (!stride.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("view: the byte length of shape ",
                                                     ShapeText(view.shape), " overflows 64 bits"));
    }
  }
  plan.stream_bytes = *stride;
  if (empty) return plan;
  if (absl::Status status = CheckLocalBounds(view, buffer_bytes); !status.ok()) return status;
  if (!loops.empty() && loops.front().stream_stride == view.element_bytes) {
    plan.run_elements = loops.front().extent;
    plan.run_local_stride = loops.front().local_stride;
    loops.erase(loops.begin());
  } else {
    plan.run_elements = 1;
    plan.run_local_stride = static_cast<int64_t>(view.element_bytes);
  }
  plan.outer.assign(loops.rbegin(), loops.rend());
  plan.run_count = 1;
  for (const RunPlan::Loop& loop : plan.outer) plan.run_count *= loop.extent;
  return plan;
}

absl::Status CheckBoxesPartition(absl::Span<const BoxView> boxes) {
  if (boxes.empty()) return absl::InvalidArgumentError("plan: expected at least one box");
  uint64_t total = 1;
  for (uint64_t dim : boxes[0].shape) {
    if (__builtin_mul_overflow(total, dim, &total)) {
      return absl::InvalidArgumentError("plan: the shape's element count overflows 64 bits");
    }
  }
  std::vector<const BoxView*> sorted;
  unsigned __int128 covered = 0;
  for (const BoxView& box : boxes) {
    if (absl::Status status = CheckShape(box); !status.ok()) return status;
    if (box.shape != boxes[0].shape) {
      return absl::InvalidArgumentError(absl::StrCat("plan: expected boxes of one shape ",
                                                     ShapeText(boxes[0].shape), ", got ",
                                                     ShapeText(box.shape)));
    }
    uint64_t volume = 1;  // at most `total`, checked above
    for (uint64_t extent : box.extent) volume *= extent;
    covered += volume;
    if (volume > 0) sorted.push_back(&box);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const BoxView* a, const BoxView* b) { return a->start < b->start; });
  for (size_t i = 0; i < sorted.size(); ++i) {
    for (size_t j = i + 1; j < sorted.size(); ++j) {
      const BoxView& a = *sorted[i];
      const BoxView& b = *sorted[j];
      // Sorted by leading start: no later box can reach back over the end of `a`.
      if (!a.shape.empty() && b.start[0] >= a.start[0] + a.extent[0]) break;
      if (Overlap(a, b)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "plan: boxes overlap: start ", ShapeText(a.start), " extent ", ShapeText(a.extent),
            " and start ", ShapeText(b.start), " extent ", ShapeText(b.extent)));
      }
    }
  }
  if (covered != total) {
    return absl::InvalidArgumentError(absl::StrCat("plan: expected all ", total,
                                                   " elements covered once, got ",
                                                   static_cast<uint64_t>(covered), " covered"));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
