#ifndef LOCKSTEP_KERNELS_DELTA_H_
#define LOCKSTEP_KERNELS_DELTA_H_

// `delta/overwrite@v1`: the elements that differ between two versions, as (position, new bits).
// Overwrites, so applying twice is harmless (kernels/SPECIFICATION.md, "Delta"; the layout is in
// delta_layout.h). One patch holds any list of tensors, one tensor included.
//
// Example, sender:
//   absl::StatusOr<std::vector<uint8_t>> patch =
//       MakeDelta({.base = root4, .target = root5}, sources, kDeltaLevel, threads);
// Receiver, whose installed bytes have the public manifest root `installed`:
//   absl::StatusOr<DeltaPatch> patch = DeltaPatch::Open(bytes, tensors, installed);
//   if (!patch.ok()) return AskForFullTensors(patch.status());
//   RETURN_IF_ERROR(patch->Apply(buffers, threads));
//   // then digest the installed bytes and compare with patch->roots().target

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/delta_layout.h"
#include "kernels/types.h"

namespace lockstep::kernels {

// zstd level of the last stage: on real steps level 1 packs as small as 19
// (kernels/PERFORMANCE.md).
inline constexpr int kDeltaLevel = 1;

// Two versions of one tensor's logical stream, both of tensor.bytes bytes.
struct DeltaSource {
  DeltaTensor tensor;
  absl::Span<const uint8_t> base;
  absl::Span<const uint8_t> target;
};

// The layout before zstd; CPU and CUDA produce the same bytes. InvalidArgument when a tensor's
// element size is not 1, 2, 4 or 8, its length is not whole elements, or its two versions have
// other lengths than it says.
absl::StatusOr<DeltaLayout> MakeDeltaLayout(const DeltaRoots& roots,
                                            absl::Span<const DeltaSource> sources, int threads);

// The last stage: compresses each section and seals the whole with a checksum.
absl::StatusOr<std::vector<uint8_t>> PackDelta(const DeltaLayout& layout, int level, int threads);

// MakeDeltaLayout, then PackDelta.
absl::StatusOr<std::vector<uint8_t>> MakeDelta(const DeltaRoots& roots,
                                               absl::Span<const DeltaSource> sources, int level,
                                               int threads);

// The inverse of PackDelta; memory is bounded by `installed`, whatever the bytes say. DataLoss
// when the bytes are damaged, InvalidArgument when they are for other tensors.
absl::StatusOr<DeltaLayout> UnpackDelta(absl::Span<const uint8_t> patch,
                                        absl::Span<const DeltaTensor> installed);

// A patch that has been checked whole; applying it cannot fail half-way.
class DeltaPatch {
 public:
  // FailedPrecondition when the patch was made against another base than `installed_root`: ask
  // for the full tensors. Otherwise errors as UnpackDelta.
  static absl::StatusOr<DeltaPatch> Open(absl::Span<const uint8_t> patch,
                                         absl::Span<const DeltaTensor> installed,
                                         const Digest256& installed_root);

  // The same from a layout, for a device or a test that skips zstd.
  static absl::StatusOr<DeltaPatch> FromLayout(DeltaLayout layout,
                                               absl::Span<const DeltaTensor> installed,
                                               const Digest256& installed_root);

  // For a device that applies it itself.
  const DeltaLayout& layout() const { return layout_; }
  const DeltaIndex& index() const { return index_; }

  const DeltaRoots& roots() const { return index_.roots; }
  uint64_t changed_elements() const { return index_.changed_elements; }
  uint64_t raw_pages() const { return index_.raw_pages; }

  // Overwrites `buffers`, parallel to the tensors of Open and of their lengths, in place.
  // InvalidArgument, and nothing written, when a length differs.
  absl::Status Apply(absl::Span<const absl::Span<uint8_t>> buffers, int threads) const;

 private:
  DeltaPatch(DeltaLayout layout, DeltaIndex index)
      : layout_(std::move(layout)), index_(std::move(index)) {}

  DeltaLayout layout_;
  DeltaIndex index_;
};

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_DELTA_H_
