#ifndef LOCKSTEP_KERNELS_DELTA_WORK_CUDA_H_
#define LOCKSTEP_KERNELS_DELTA_WORK_CUDA_H_

// The workspace in which a delta is made, and the scan over its pages; for the CUDA twins of delta
// alone.
//
// Example:
//   const DeltaWork work = LayOutDelta(sources, workspace);
//   LOCKSTEP_RETURN_IF_ERROR(LaunchPlacePages(work, stream));

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/cuda_support.h"
#include "kernels/delta_body_cuda.h"
#include "kernels/delta_cuda.h"
#include "kernels/hd.h"

namespace lockstep::kernels {

// Pages that the scan sums up before it begins.
inline constexpr uint64_t kDeltaPagesPerGroup = 1024;

// Bytes of a page's change bits, one for each element of its 16-byte vectors: a uint16 a vector for
// elements of one byte, else a byte.
LOCKSTEP_HD constexpr uint64_t DeltaMaskBytes(uint64_t element_bytes) {
  return kPageBytes / 16 * (element_bytes == 1 ? 2 : 1);
}

// What is scanned over the pages: gap bytes, raw bytes, changed elements per plane class.
inline constexpr int kDeltaSums = 2 + kPlaneClasses;
struct DeltaPageSums {
  uint64_t of[kDeltaSums];
};

// The head of the workspace.
struct DeltaTotals {
  uint64_t section_bytes[kDeltaSections];
};

LOCKSTEP_HD inline DeltaPageSums DeltaSumsOf(const DeviceDeltaPage& page) {
  DeltaPageSums sums = {};
  if (page.changed == kRawDeltaPage) {
    sums.of[1] = page.length;
    return sums;
  }
  sums.of[0] = page.gap_bytes;
  for (int c = 0; c <= LastPlaneClass(page.element_bytes); ++c) sums.of[2 + c] = page.changed;
  return sums;
}

struct DeltaWork {
  DeltaTotals* totals;
  DeltaPageSums* groups;
  DeviceDeltaPage* pages;
  uint8_t* masks;  // of each tensor's pages in turn
  uint64_t page_count;
  size_t cleared_bytes;  // totals and groups, which lie first
  size_t bytes;
};

DeltaWork LayOutDelta(absl::Span<const DeviceDeltaSource> sources, void* base);

// Every page's offsets and the totals, from the pages' counts and the groups' sums.
absl::Status LaunchPlacePages(const DeltaWork& work, CudaStream stream);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_DELTA_WORK_CUDA_H_
