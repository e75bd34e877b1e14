// Boxes: any view of a shard, added to the page sums.

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda_launch.h"
#include "kernels/digest_columns_cuda.h"
#include "kernels/digest_cuda.h"
#include "kernels/digest_sums_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpLanes;
constexpr int kGrainsInFlight = 4;
constexpr int kMaxLoops = kMaxBoxRank + 2;
constexpr uint64_t kMaxGrainBytes = 16;

// A box as a nest of loops over grains: pieces of 1, 2, 4, 8 or 16 bytes that are dense and
// aligned in the stream and in the buffer.
struct GrainPlan {
  const uint8_t* local;
  uint64_t stream_offset;
  uint64_t grains;
  int loop_count;  // at least 1
  struct {
    uint64_t extent;
    uint64_t stream_stride;
    int64_t local_stride;
  } loops[kMaxLoops];  // innermost first
};

template <int kBytes>
struct Grain;
template <>
struct Grain<1> {
  using Type = uint8_t;
};
template <>
struct Grain<2> {
  using Type = uint16_t;
};
template <>
struct Grain<4> {
  using Type = uint32_t;
};
template <>
struct Grain<8> {
  using Type = uint2;
};
template <>
struct Grain<16> {
  using Type = uint4;
};

struct Place {
  uint64_t stream;
  const uint8_t* local;
  uint64_t index;  // in the innermost loop
};

// Index is uint32_t when the grains' number fits, which divides faster.
template <class Index>
__device__ Place PlaceOf(const GrainPlan& plan, Index grain) {
  Place place{plan.stream_offset, plan.local, 0};
  for (int d = 0; d < plan.loop_count; ++d) {
    Index index = grain;
    if (d + 1 < plan.loop_count) {
      const Index extent = static_cast<Index>(plan.loops[d].extent);
      grain = index / extent;
      index -= grain * extent;
    }
    if (d == 0) place.index = index;
    place.stream += index * plan.loops[d].stream_stride;
    place.local += static_cast<int64_t>(index) * plan.loops[d].local_stride;
  }
  return place;
}

__device__ void AddGrain(PartialSum& sum, const uint32_t* keys, uint32_t in_page, uint8_t x) {
  const uint32_t unit = in_page / 4;
  sum.AddUnit(uint32_t{x} << (8 * (in_page % 4)), __ldg(keys + unit), __ldg(keys + unit + 1));
}

__device__ void AddGrain(PartialSum& sum, const uint32_t* keys, uint32_t in_page, uint16_t x) {
  const uint32_t unit = in_page / 4;
  sum.AddUnit(uint32_t{x} << (8 * (in_page % 4)), __ldg(keys + unit), __ldg(keys + unit + 1));
}

__device__ void AddGrain(PartialSum& sum, const uint32_t* keys, uint32_t in_page, uint32_t x) {
  const uint32_t unit = in_page / 4;
  sum.AddUnit(x, __ldg(keys + unit), __ldg(keys + unit + 1));
}

__device__ void AddGrain(PartialSum& sum, const uint32_t* keys, uint32_t in_page, const uint2& x) {
  const uint32_t unit = in_page / 4;
  const uint2 k = __ldg(reinterpret_cast<const uint2*>(keys + unit));
  sum.AddUnit(x.x, k.x, k.y);
  sum.AddUnit(x.y, k.y, __ldg(keys + unit + 2));
}

// What a warp has summed of the page it is in. All lanes call every function together.
struct WarpPage {
  uint64_t page;
  PartialSum sum;

  __device__ void Flush(PageSum* sums) {
    const PartialSum total = WarpSum(sum);
    if (threadIdx.x % kWarpLanes == 0) AddToPage(sums[page], total);
    sum = {};
  }

  // Grains of one page are summed in registers; a lane in another page than its warp adds its
  // grain to memory itself.
  template <class T>
  __device__ void Add(const uint32_t* keys, uint64_t stream, const T& x, bool valid,
                      PageSum* sums) {
    const uint64_t mine = valid ? stream / kPageBytes : page;
    if (!__all_sync(kFullWarp, mine == page)) {
      Flush(sums);
      const unsigned lanes = __ballot_sync(kFullWarp, valid);
      page = __shfl_sync(kFullWarp, mine, __ffs(lanes) - 1);
    }
    if (!valid) return;
    const uint32_t in_page = static_cast<uint32_t>(stream % kPageBytes);
    if (mine == page) {
      AddGrain(sum, keys, in_page, x);
      sum.covered += sizeof(T);
    } else {
      PartialSum alone;
      AddGrain(alone, keys, in_page, x);
      alone.covered = sizeof(T);
      AddToPage(sums[mine], alone);
    }
  }
};

// Whether the warp's next grains lie one after another in one run and one page, as most do; then
// only the first's place is worked out.
template <int kBytes>
__device__ bool AreDense(const GrainPlan& plan, uint64_t first, uint64_t end, const Place& place) {
  constexpr uint64_t kGrains = uint64_t{kWarpLanes} * kGrainsInFlight;
  const auto& run = plan.loops[0];
  return run.stream_stride == kBytes && run.local_stride == kBytes && first + kGrains <= end &&
         place.index + kGrains <= run.extent &&
         place.stream % kPageBytes + kGrains * kBytes <= kPageBytes;
}

// Each warp sums a contiguous run of `warp_grains` grains.
template <int kBytes, class Index>
__global__ void __launch_bounds__(kThreads)
    SumGrains(const __grid_constant__ GrainPlan plan, Index warp_grains, const uint32_t* keys,
              PageSum* sums) {
  using T = typename Grain<kBytes>::Type;
  const uint64_t warp = uint64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpLanes;
  const uint64_t begin = warp * warp_grains;
  if (begin >= plan.grains) return;
  const uint64_t end = min(plan.grains, begin + warp_grains);
  const uint64_t lane = threadIdx.x % kWarpLanes;
  WarpPage work = {PlaceOf<Index>(plan, static_cast<Index>(begin)).stream / kPageBytes, {}};
  for (uint64_t first = begin; first < end; first += kWarpLanes * kGrainsInFlight) {
    Place places[kGrainsInFlight];
    T values[kGrainsInFlight] = {};
    const Place start = PlaceOf<Index>(plan, static_cast<Index>(first));
    if (AreDense<kBytes>(plan, first, end, start)) {
      const T* from = reinterpret_cast<const T*>(start.local) + lane;
#pragma unroll
      for (int i = 0; i < kGrainsInFlight; ++i) values[i] = __ldcs(from + i * kWarpLanes);
      if (start.stream / kPageBytes != work.page) {
        work.Flush(sums);
        work.page = start.stream / kPageBytes;
      }
      const uint32_t in_page =
          static_cast<uint32_t>(start.stream % kPageBytes) + static_cast<uint32_t>(lane) * kBytes;
#pragma unroll
      for (int i = 0; i < kGrainsInFlight; ++i) {
        AddGrain(work.sum, keys, in_page + i * kWarpLanes * kBytes, values[i]);
        work.sum.covered += kBytes;
      }
      continue;
    }
#pragma unroll
    for (int i = 0; i < kGrainsInFlight; ++i) {
      const uint64_t grain = first + i * kWarpLanes + lane;
      places[i] = PlaceOf<Index>(plan, static_cast<Index>(grain < end ? grain : begin));
      if (grain < end) values[i] = __ldcs(reinterpret_cast<const T*>(places[i].local));
    }
#pragma unroll
    for (int i = 0; i < kGrainsInFlight; ++i) {
      const uint64_t row = first + i * kWarpLanes;
      if (row < end) work.Add(keys, places[i].stream, values[i], row + lane < end, sums);
    }
  }
  work.Flush(sums);
}

template <int kBytes>
absl::Status LaunchGrains(const GrainPlan& plan, const uint32_t* keys, PageSum* sums,
                          CudaStream stream) {
  // 16 KiB a warp: few atomics a page, and enough warps for any real tensor. Small grains take
  // longer. More where the grid would not hold them.
  constexpr uint64_t kUsualWarpGrains = (kBytes >= 4 ? 16384 : 4096) / kBytes;
  constexpr uint64_t kMostBlocks = uint64_t{1} << 30;
  uint64_t warp_grains = kUsualWarpGrains;
  while (plan.grains / (warp_grains * kWarps) >= kMostBlocks) warp_grains *= 2;
  const uint64_t per_block = warp_grains * kWarps;
  const LaunchShape shape = {static_cast<unsigned>((plan.grains + per_block - 1) / per_block),
                             kThreads, 0, stream};
  // Also `first + lanes` past the last grain must not wrap around.
  if (plan.grains < (uint64_t{1} << 31)) {
    return Launch("digest of a view", SumGrains<kBytes, uint32_t>, shape, plan,
                  static_cast<uint32_t>(warp_grains), keys, sums);
  }
  return Launch("digest of a view", SumGrains<kBytes, uint64_t>, shape, plan, warp_grains, keys,
                sums);
}

// The largest grain that all places of the plan allow.
uint64_t GrainBytes(const RunPlan& plan, const uint8_t* local) {
  const bool dense = plan.run_local_stride == static_cast<int64_t>(plan.element_bytes);
  uint64_t all = kMaxGrainBytes | plan.stream_offset | reinterpret_cast<uintptr_t>(local);
  all |=
      dense ? plan.run_bytes() : plan.element_bytes | static_cast<uint64_t>(plan.run_local_stride);
  for (const RunPlan::Loop& loop : plan.outer) {
    all |= loop.stream_stride | static_cast<uint64_t>(loop.local_stride);
  }
  return all & (~all + 1);  // lowest set bit
}

GrainPlan Grains(const RunPlan& plan, const uint8_t* local, uint64_t grain) {
  GrainPlan grains = {};
  grains.local = local;
  grains.stream_offset = plan.stream_offset;
  grains.grains = plan.covered_bytes() / grain;
  const auto push = [&](uint64_t extent, uint64_t stream_stride, int64_t local_stride) {
    if (extent > 1) grains.loops[grains.loop_count++] = {extent, stream_stride, local_stride};
  };
  if (plan.run_local_stride == static_cast<int64_t>(plan.element_bytes)) {
    push(plan.run_bytes() / grain, grain, static_cast<int64_t>(grain));
  } else {
    push(plan.element_bytes / grain, grain, static_cast<int64_t>(grain));
    push(plan.run_elements, plan.element_bytes, plan.run_local_stride);
  }
  for (size_t d = plan.outer.size(); d-- > 0;) {
    push(plan.outer[d].extent, plan.outer[d].stream_stride, plan.outer[d].local_stride);
  }
  if (grains.loop_count == 0) grains.loops[grains.loop_count++] = {1, 0, 0};
  return grains;
}

absl::Status AddPlan(const DevicePageKeys& keys, const RunPlan& plan, const uint8_t* buffer,
                     PageSum* sums, CudaStream stream) {
  if (plan.covered_bytes() == 0) return absl::OkStatus();
  if (FitsDigestColumns(plan, buffer)) {
    return LaunchDigestColumns(plan, buffer, keys.words(), sums, stream);
  }
  const uint8_t* local = buffer + plan.local_offset;
  const uint64_t grain = GrainBytes(plan, local);
  const GrainPlan grains = Grains(plan, local, grain);
  switch (grain) {
    case 1:
      return LaunchGrains<1>(grains, keys.words(), sums, stream);
    case 2:
      return LaunchGrains<2>(grains, keys.words(), sums, stream);
    case 4:
      return LaunchGrains<4>(grains, keys.words(), sums, stream);
    case 8:
      return LaunchGrains<8>(grains, keys.words(), sums, stream);
    default:
      return LaunchGrains<16>(grains, keys.words(), sums, stream);
  }
}

}  // namespace

absl::Status AddBytesCuda(const DevicePageKeys& keys, uint64_t stream_offset, const uint8_t* bytes,
                          uint64_t count, uint64_t stream_bytes, PageSum* sums, CudaStream stream) {
  if (stream_offset > stream_bytes || count > stream_bytes - stream_offset) {
    return absl::OutOfRangeError(absl::StrCat("digest: expected bytes inside a stream of ",
                                              stream_bytes, " bytes, got ", count, " at offset ",
                                              stream_offset));
  }
  // An unaligned head and tail are apart, so that the middle goes in whole vectors where stream
  // and memory are out of step by the same.
  const uint64_t head =
      std::min(count, (kMaxGrainBytes - stream_offset % kMaxGrainBytes) % kMaxGrainBytes);
  const uint64_t middle = (count - head) / kMaxGrainBytes * kMaxGrainBytes;
  const uint64_t ends[] = {0, head, head + middle, count};
  for (int part = 0; part < 3; ++part) {
    RunPlan plan;
    plan.stream_bytes = stream_bytes;
    plan.stream_offset = stream_offset + ends[part];
    plan.local_offset = ends[part];
    plan.element_bytes = 1;
    plan.run_elements = ends[part + 1] - ends[part];
    plan.run_local_stride = 1;
    plan.run_count = 1;
    if (absl::Status s = AddPlan(keys, plan, bytes, sums, stream); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status AddViewCuda(const DevicePageKeys& keys, const BoxView& view, const uint8_t* buffer,
                         uint64_t buffer_bytes, uint64_t stream_bytes, PageSum* sums,
                         CudaStream stream) {
  const absl::StatusOr<RunPlan> plan = PlanRuns(view, buffer_bytes);
  if (!plan.ok()) return plan.status();
  if (plan->stream_bytes != stream_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("digest: expected a view of a stream of ",
                                                   stream_bytes, " bytes, got one of ",
                                                   plan->stream_bytes));
  }
  return AddPlan(keys, *plan, buffer, sums, stream);
}

}  // namespace lockstep::kernels
