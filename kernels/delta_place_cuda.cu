// The scan over a delta's pages.

#include "kernels/cuda_launch.h"
#include "kernels/delta_changes_cuda.h"
#include "kernels/delta_work_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kPagesPerScanThread = kDeltaPagesPerGroup / kDeltaThreads;

__device__ uint64_t SumOverBlock(uint64_t value, uint64_t* scratch) {
  const auto add = [](uint64_t a, uint64_t b) { return a + b; };
  BlockScan(value, add, scratch);
  uint64_t sum = 0;
  for (int w = 0; w < kDeltaWarps; ++w) sum += scratch[w];
  __syncthreads();
  return sum;
}

// A block a group: every page's offsets, and in the last group the totals.
__global__ void __launch_bounds__(kDeltaThreads)
    PlacePages(DeviceDeltaPage* pages, uint64_t page_count, const DeltaPageSums* groups,
               DeltaTotals* totals) {
  __shared__ uint64_t scratch[kDeltaWarps];
  const uint64_t first = blockIdx.x * kDeltaPagesPerGroup + threadIdx.x * kPagesPerScanThread;
  const auto add = [](uint64_t a, uint64_t b) { return a + b; };
  uint64_t all[kDeltaSums];
#pragma unroll
  for (int i = 0; i < kDeltaSums; ++i) {
    uint64_t before = 0;
    for (uint32_t g = threadIdx.x; g < blockIdx.x; g += kDeltaThreads) before += groups[g].of[i];
    before = SumOverBlock(before, scratch);
    uint64_t own = 0;
    for (uint64_t p = first; p < min(page_count, first + kPagesPerScanThread); ++p) {
      own += DeltaSumsOf(pages[p]).of[i];
    }
    uint64_t at = before + BlockScan(own, add, scratch) - own;
    all[i] = before;
    for (int w = 0; w < kDeltaWarps; ++w) all[i] += scratch[w];
    __syncthreads();
    for (uint64_t p = first; p < min(page_count, first + kPagesPerScanThread); ++p) {
      uint64_t& offset = i == 0   ? pages[p].gap_offset
                         : i == 1 ? pages[p].raw_offset
                                  : pages[p].plane_offsets[i - 2];
      const uint64_t share = DeltaSumsOf(pages[p]).of[i];
      offset = at;
      at += share;
    }
  }
  if (blockIdx.x + 1 != gridDim.x || threadIdx.x != 0) return;
  totals->section_bytes[kDeltaHead] = 0;
  totals->section_bytes[kDeltaGaps] = all[0];
  totals->section_bytes[kDeltaRaw] = all[1];
  for (uint32_t b = 0; b < kDeltaPlanes; ++b) {
    totals->section_bytes[kDeltaFirstPlane + b] = all[2 + PlaneClass(b)];
  }
}

}  // namespace

absl::Status LaunchPlacePages(const DeltaWork& work, CudaStream stream) {
  const unsigned groups = DivideUp(static_cast<int64_t>(work.page_count), kDeltaPagesPerGroup);
  return Launch("delta: placing pages", PlacePages, {groups, kDeltaThreads, 0, stream}, work.pages,
                work.page_count, work.groups, work.totals);
}

}  // namespace lockstep::kernels
