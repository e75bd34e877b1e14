#include <algorithm>

#include "kernels/cuda_launch.h"
#include "kernels/digest_columns_cuda.h"
#include "kernels/digest_sums_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 256;
constexpr uint64_t kWarps = kThreads / kWarpLanes;
constexpr uint32_t kGrainBytes = 16;
// Bytes of the stream that a lane walks; lanes side by side in memory.
constexpr uint64_t kWalkBytes = 1024;
constexpr uint64_t kMaxBlocks = 0x7FFFFFFF;

struct Loop {
  uint64_t extent;
  uint64_t stream_stride;
  int64_t local_stride;
};

// The loop over neighbours in memory (`across`), the run, and the loops around both.
struct ColumnPlan {
  const uint8_t* local;
  uint64_t stream_offset;
  Loop across;
  uint64_t run_bytes;
  int64_t run_stride;  // in memory, from one element of the run to the next
  uint64_t walks;      // of a run
  uint64_t warps_across;
  uint64_t warps;
  int outer_count;
  Loop outer[kMaxBoxRank];  // innermost first
};

// A grain of the stream from elements that lie apart.
template <class T>
__device__ uint4 GatherGrain(const uint8_t* from, int64_t stride) {
  constexpr int kElements = kGrainBytes / sizeof(T);
  T elements[kElements];
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    elements[i] = __ldcs(reinterpret_cast<const T*>(from + i * stride));
  }
  uint32_t words[4] = {};
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const int bit = 8 * static_cast<int>(sizeof(T)) * i;
    if constexpr (sizeof(T) == 8) {
      words[2 * i] = static_cast<uint32_t>(elements[i]);
      words[2 * i + 1] = static_cast<uint32_t>(elements[i] >> 32);
    } else {
      words[bit / 32] |= static_cast<uint32_t>(elements[i]) << (bit % 32);
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    SumColumns(const __grid_constant__ ColumnPlan plan, const uint32_t* keys, PageSum* sums) {
  uint64_t warp = uint64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpLanes;
  if (warp >= plan.warps) return;
  const uint64_t walk = warp % plan.walks;
  warp /= plan.walks;
  const uint64_t column = warp % plan.warps_across * kWarpLanes + threadIdx.x % kWarpLanes;
  warp /= plan.warps_across;
  if (column >= plan.across.extent) return;
  uint64_t stream = plan.stream_offset + column * plan.across.stream_stride + walk * kWalkBytes;
  const uint8_t* local = plan.local + static_cast<int64_t>(column) * plan.across.local_stride +
                         static_cast<int64_t>(walk * (kWalkBytes / sizeof(T))) * plan.run_stride;
  for (int d = 0; d < plan.outer_count; ++d) {
    const uint64_t index = warp % plan.outer[d].extent;
    warp /= plan.outer[d].extent;
    stream += index * plan.outer[d].stream_stride;
    local += static_cast<int64_t>(index) * plan.outer[d].local_stride;
  }
  const uint64_t bytes = min(kWalkBytes, plan.run_bytes - walk * kWalkBytes);
  const int64_t step = plan.run_stride * static_cast<int64_t>(kGrainBytes / sizeof(T));
  uint64_t page = stream / kPageBytes;
  PartialSum sum;
#pragma unroll 2
  for (uint64_t done = 0; done < bytes; done += kGrainBytes) {
    const uint4 grain = GatherGrain<T>(local, plan.run_stride);
    if (stream / kPageBytes != page) {
      AddToPage(sums[page], sum);
      sum = {};
      page = stream / kPageBytes;
    }
    AddGrain(sum, keys, static_cast<uint32_t>(stream % kPageBytes), grain);
    sum.covered += kGrainBytes;
    stream += kGrainBytes;
    local += step;
  }
  AddToPage(sums[page], sum);
}

// Which outer loop lies densest in memory; the number of loops when none does.
size_t LoopAcross(const RunPlan& plan) {
  for (size_t d = plan.outer.size(); d-- > 0;) {
    if (plan.outer[d].local_stride == static_cast<int64_t>(plan.element_bytes) &&
        plan.outer[d].extent >= kWarpLanes / 2) {
      return d;
    }
  }
  return plan.outer.size();
}

ColumnPlan PlanColumns(const RunPlan& plan, const uint8_t* buffer) {
  ColumnPlan columns = {};
  columns.local = buffer + plan.local_offset;
  columns.stream_offset = plan.stream_offset;
  columns.run_bytes = plan.run_bytes();
  columns.run_stride = plan.run_local_stride;
  columns.walks = (columns.run_bytes + kWalkBytes - 1) / kWalkBytes;
  columns.warps = columns.walks;
  const size_t across = LoopAcross(plan);
  for (size_t d = plan.outer.size(); d-- > 0;) {
    const Loop loop = {plan.outer[d].extent, plan.outer[d].stream_stride,
                       plan.outer[d].local_stride};
    if (d == across) {
      columns.across = loop;
      columns.warps_across = (loop.extent + kWarpLanes - 1) / kWarpLanes;
      columns.warps *= columns.warps_across;
    } else {
      columns.outer[columns.outer_count++] = loop;
      columns.warps *= loop.extent;
    }
  }
  return columns;
}

}  // namespace

bool FitsDigestColumns(const RunPlan& plan, const uint8_t* buffer) {
  const uint64_t size = plan.element_bytes;
  if (size > 8 || (size & (size - 1)) != 0) return false;
  if (plan.run_local_stride == static_cast<int64_t>(size)) return false;
  if (LoopAcross(plan) == plan.outer.size()) return false;
  uint64_t stream = plan.stream_offset | plan.run_bytes();
  uint64_t local = reinterpret_cast<uintptr_t>(buffer + plan.local_offset) |
                   static_cast<uint64_t>(plan.run_local_stride);
  for (const RunPlan::Loop& loop : plan.outer) {
    stream |= loop.stream_stride;
    local |= static_cast<uint64_t>(loop.local_stride);
  }
  return stream % kGrainBytes == 0 && local % size == 0 &&
         PlanColumns(plan, buffer).warps <= kMaxBlocks * kWarps;
}

absl::Status LaunchDigestColumns(const RunPlan& plan, const uint8_t* buffer, const uint32_t* keys,
                                 PageSum* sums, CudaStream stream) {
  const ColumnPlan columns = PlanColumns(plan, buffer);
  const LaunchShape shape = {static_cast<unsigned>((columns.warps + kWarps - 1) / kWarps), kThreads,
                             0, stream};
  constexpr char kWhat[] = "digest of a transposed view";
  switch (plan.element_bytes) {
    case 1:
      return Launch(kWhat, SumColumns<uint8_t>, shape, columns, keys, sums);
    case 2:
      return Launch(kWhat, SumColumns<uint16_t>, shape, columns, keys, sums);
    case 4:
      return Launch(kWhat, SumColumns<uint32_t>, shape, columns, keys, sums);
    default:
      return Launch(kWhat, SumColumns<unsigned long long>, shape, columns, keys, sums);
  }
}

}  // namespace lockstep::kernels
