#ifndef LOCKSTEP_KERNELS_BOX_VIEW_H_
#define LOCKSTEP_KERNELS_BOX_VIEW_H_

// Says where a box of a tensor's full, unsharded shape lies in a local buffer: a shard, a piece
// of a fused parameter, a transposed copy. The logical stream of a tensor is its elements in
// row-major order of the full shape.
//
// Example: rows 4..7 of a BF16 [8, 16] tensor, kept as the second half of a fused buffer:
//   BoxView view;
//   view.shape = {8, 16};
//   view.start = {4, 0};
//   view.extent = {4, 16};
//   view.element_bytes = 2;
//   view.offset_bytes = 128;
//   view.stride_bytes = {32, 2};
//   absl::StatusOr<RunPlan> plan = PlanRuns(view, buffer.size());

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lockstep::kernels {

inline constexpr uint64_t kMaxBoxRank = 16;
inline constexpr uint64_t kMaxElementBytes = 16;

struct BoxView {
  std::vector<uint64_t> shape;        // full and unsharded; empty for a scalar
  std::vector<uint64_t> start;        // first index of the box, per dimension
  std::vector<uint64_t> extent;       // size of the box, per dimension
  uint64_t element_bytes = 0;         // 1, 2, 4, ...
  uint64_t offset_bytes = 0;          // of the box's first element in the local buffer
  std::vector<int64_t> stride_bytes;  // in the local buffer, per dimension
};

// The view of a whole tensor that lies row-major and dense from the buffer's start.
BoxView WholeTensorView(absl::Span<const uint64_t> shape, uint64_t element_bytes);

// A box as runs, each contiguous in the logical stream, in ascending stream order. The strides
// are those of a nest of `outer` loops around a run of `run_elements` elements.
struct RunPlan {
  struct Loop {
    uint64_t extent;
    uint64_t stream_stride;  // bytes
    int64_t local_stride;    // bytes
  };
  uint64_t stream_bytes = 0;   // of the whole tensor
  uint64_t stream_offset = 0;  // bytes, of the box's first element in the stream
  uint64_t local_offset = 0;   // bytes, of the same in the buffer
  uint64_t element_bytes = 0;
  uint64_t run_elements = 0;     // 0 for an empty box
  int64_t run_local_stride = 0;  // bytes; equal to element_bytes when a run is dense locally
  std::vector<Loop> outer;       // outermost first
  uint64_t run_count = 0;

  uint64_t run_bytes() const { return run_elements * element_bytes; }
  uint64_t covered_bytes() const { return run_count * run_bytes(); }
};

// InvalidArgument when ranks differ, the box leaves the shape, sizes overflow, or an element of
// the box lies outside a buffer of `buffer_bytes` bytes.
absl::StatusOr<RunPlan> PlanRuns(const BoxView& view, uint64_t buffer_bytes);

// OK when the boxes (start and extent of each, all of the same shape) cover every element of the
// shape exactly once; InvalidArgument names a pair that overlaps or says how much is missing.
// Boxes are compared pairwise within the same leading index: near n log n for shards.
absl::Status CheckBoxesPartition(absl::Span<const BoxView> boxes);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_BOX_VIEW_H_
