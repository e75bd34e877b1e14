#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/delta.h"
#include "kernels/parallel.h"

namespace lockstep::kernels {
namespace {

// One checked page, overwritten in place.
void ApplyPage(const DeltaLayout& layout, const DeltaPage& page, uint32_t element_bytes,
               absl::Span<uint8_t> target) {
  if (page.changed == kRawDeltaPage) {
    memcpy(target.data(), layout.sections[kDeltaRaw].data() + page.raw_offset, target.size());
    return;
  }
  const uint8_t* gaps = layout.sections[kDeltaGaps].data() + page.gap_offset;
  uint64_t element = 0;
  for (uint32_t i = 0; i < page.changed; ++i) {
    uint64_t gap = *gaps++;
    if (gap == kLongGap) {
      gap = gaps[0] | uint64_t{gaps[1]} << 8;
      gaps += 2;
    }
    element += gap;
    for (uint32_t b = 0; b < element_bytes; ++b) {
      target[element * element_bytes + b] =
          layout.sections[kDeltaFirstPlane + b][page.plane_offsets[b] + i];
    }
    ++element;
  }
}

}  // namespace

absl::StatusOr<DeltaPatch> DeltaPatch::FromLayout(DeltaLayout layout,
                                                  absl::Span<const DeltaTensor> installed,
                                                  const Digest256& installed_root) {
  absl::StatusOr<DeltaIndex> index = IndexDeltaHead(layout.sections[kDeltaHead], installed);
  if (!index.ok()) return index.status();
  if (absl::Status status = CheckDeltaSections(layout, *index, 1); !status.ok()) return status;
  if (index->roots.base != installed_root) {
    return absl::FailedPreconditionError(
        "delta: expected a patch on the installed version, got one whose base manifest root "
        "differs from the installed one; ask for the full tensors");
  }
  return DeltaPatch(std::move(layout), *std::move(index));
}

absl::StatusOr<DeltaPatch> DeltaPatch::Open(absl::Span<const uint8_t> patch,
                                            absl::Span<const DeltaTensor> installed,
                                            const Digest256& installed_root) {
  absl::StatusOr<DeltaLayout> layout = UnpackDelta(patch, installed);
  if (!layout.ok()) return layout.status();
  return FromLayout(*std::move(layout), installed, installed_root);
}

absl::Status DeltaPatch::Apply(absl::Span<const absl::Span<uint8_t>> buffers, int threads) const {
  if (buffers.size() != index_.tensors.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("delta: expected ", index_.tensors.size(), " buffers, got ", buffers.size()));
  }
  for (size_t t = 0; t < buffers.size(); ++t) {
    if (buffers[t].size() != index_.tensors[t].bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("delta: tensor '", index_.tensors[t].name, "': expected a buffer of ",
                       index_.tensors[t].bytes, " bytes, got one of ", buffers[t].size()));
    }
  }
  ParallelFor(index_.pages.size(), threads, [&](size_t begin, size_t end) {
    size_t t = std::upper_bound(index_.first_pages.begin(), index_.first_pages.end(), begin) -
               index_.first_pages.begin() - 1;
    for (size_t i = begin; i < end; ++i) {
      while (i >= index_.first_pages[t + 1]) ++t;
      const uint64_t page = i - index_.first_pages[t];
      ApplyPage(layout_, index_.pages[i], index_.tensors[t].element_bytes,
                buffers[t].subspan(page * kPageBytes, DeltaPageLength(index_.tensors[t], page)));
    }
  });
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
