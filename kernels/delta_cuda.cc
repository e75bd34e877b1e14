#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/delta_work_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr size_t Aligned(size_t bytes) {
  return (bytes + kBodyAlignment - 1) / kBodyAlignment * kBodyAlignment;
}

}  // namespace

DeltaWork LayOutDelta(absl::Span<const DeviceDeltaSource> sources, void* base) {
  DeltaWork work = {};
  uint64_t mask_bytes = 0;
  for (const DeviceDeltaSource& source : sources) {
    work.page_count += DeltaPageCount(source.tensor);
    mask_bytes += DeltaPageCount(source.tensor) * DeltaMaskBytes(source.tensor.element_bytes);
  }
  const uint64_t groups = (work.page_count + kDeltaPagesPerGroup - 1) / kDeltaPagesPerGroup;
  auto* at = static_cast<uint8_t*>(base);
  const auto take = [&](size_t bytes) {
    uint8_t* const piece = at == nullptr ? nullptr : at + work.bytes;
    work.bytes += Aligned(bytes);
    return piece;
  };
  work.totals = reinterpret_cast<DeltaTotals*>(take(sizeof(DeltaTotals)));
  work.groups = reinterpret_cast<DeltaPageSums*>(take(groups * sizeof(DeltaPageSums)));
  work.cleared_bytes = work.bytes;
  work.pages = reinterpret_cast<DeviceDeltaPage*>(take(work.page_count * sizeof(DeviceDeltaPage)));
  work.masks = take(mask_bytes);
  return work;
}

size_t MakeDeltaCudaWorkspaceBytes(absl::Span<const DeviceDeltaSource> sources) {
  return LayOutDelta(sources, nullptr).bytes;
}

uint64_t DeltaBodyBytes(absl::Span<const DeviceDeltaSource> sources) {
  uint64_t bytes = kDeltaSections * kBodyAlignment;
  for (const DeviceDeltaSource& source : sources) bytes += source.tensor.bytes;
  return bytes;
}

absl::StatusOr<DeltaLayout> DownloadDeltaLayout(const DeltaRoots& roots,
                                                absl::Span<const DeviceDeltaSource> sources,
                                                const void* workspace, const uint8_t* body,
                                                uint64_t body_bytes, CudaStream stream) {
  const DeltaWork work = LayOutDelta(sources, const_cast<void*>(workspace));
  DeltaTotals totals;
  std::vector<DeviceDeltaPage> pages(work.page_count);
  absl::Status copied = CopyToHost(&totals, work.totals, sizeof(totals), stream);
  copied.Update(CopyToHost(pages.data(), work.pages, pages.size() * sizeof(pages[0]), stream));
  copied.Update(SynchronizeStream(stream));
  if (!copied.ok()) return copied;
  std::array<uint64_t, kDeltaSections> offsets;
  const uint64_t needed = BodyOffsets(totals.section_bytes, offsets.data());
  if (needed > body_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("delta: the changes need a body of ", needed,
                                                     " bytes, got one of ", body_bytes,
                                                     "; make the delta again into a larger one"));
  }
  DeltaIndex index;
  index.roots = roots;
  for (const DeviceDeltaSource& source : sources) index.tensors.push_back(source.tensor);
  for (const DeviceDeltaPage& page : pages) {
    DeltaPage counts;
    counts.changed = page.changed;
    counts.gap_bytes = page.gap_bytes;
    index.pages.push_back(counts);
  }
  ScanDeltaPages(index);
  DeltaLayout layout;
  layout.sections[kDeltaHead] = WriteDeltaHead(index);
  for (uint64_t s = 1; s < kDeltaSections; ++s) {
    if (index.section_bytes[s] != totals.section_bytes[s]) {
      return absl::InternalError(
          absl::StrCat("delta: section ", s, " has ", totals.section_bytes[s],
                       " bytes where its pages have ", index.section_bytes[s]));
    }
    layout.sections[s].resize(index.section_bytes[s]);
    copied.Update(
        CopyToHost(layout.sections[s].data(), body + offsets[s], index.section_bytes[s], stream));
  }
  copied.Update(SynchronizeStream(stream));
  if (!copied.ok()) return copied;
  return layout;
}

}  // namespace lockstep::kernels
