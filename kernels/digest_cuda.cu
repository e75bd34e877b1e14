// Whole streams, a block a page: digest, copy and NaN count in one pass.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda_launch.h"
#include "kernels/digest_cuda.h"
#include "kernels/digest_sums_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpLanes;
constexpr uint32_t kVectorBytes = 16;
constexpr uint32_t kVectorsPerPage = kPageBytes / kVectorBytes;
constexpr int kLoadsInFlight = 4;
static_assert(kVectorsPerPage % (kThreads * kLoadsInFlight) == 0);

// Tasks travel as a kernel's parameters, of which there are 4 KiB.
constexpr int kTasksPerLaunch = 64;
constexpr uint64_t kMaxBlocks = 0x7FFFFFFF;

struct Task {
  const uint8_t* from;
  uint8_t* to;  // nullptr: digest only
  uint64_t bytes;
  uint32_t first_block;
  NanFormat nan_format;
  bool aligned;  // `from` and `to` to whole vectors
};

struct Tasks {
  Task tasks[kTasksPerLaunch];
  int count;
};
static_assert(sizeof(Tasks) <= 4000);

template <class T>
__device__ uint32_t IsNan(T bits, T infinity) {
  constexpr T kMagnitude = static_cast<T>(~T{0}) >> 1;
  return static_cast<T>(bits & kMagnitude) > infinity ? 1 : 0;
}

__device__ uint32_t NansOf(const uint4& v, NanFormat format) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
  uint32_t count = 0;
  switch (format) {
    case NanFormat::kNone:
      break;
    case NanFormat::kBf16:
    case NanFormat::kF16: {
      const uint16_t infinity = format == NanFormat::kBf16 ? 0x7F80 : 0x7C00;
      for (const uint32_t word : words) {
        count += IsNan(static_cast<uint16_t>(word), infinity);
        count += IsNan(static_cast<uint16_t>(word >> 16), infinity);
      }
      break;
    }
    case NanFormat::kF32:
      for (const uint32_t word : words) count += IsNan(word, 0x7F800000u);
      break;
    case NanFormat::kF64:
      for (int i = 0; i < 4; i += 2) {
        count +=
            IsNan(uint64_t{words[i]} | uint64_t{words[i + 1]} << 32, uint64_t{0x7FF0000000000000});
      }
      break;
  }
  return count;
}

// Whole elements among `bytes` bytes, any alignment.
template <class T>
__device__ uint32_t NansAmong(const uint8_t* from, uint32_t bytes, T infinity) {
  uint32_t count = 0;
  for (uint32_t e = threadIdx.x; e < bytes / sizeof(T); e += kThreads) {
    T bits = 0;
    for (uint32_t i = 0; i < sizeof(T); ++i) {
      bits |= static_cast<T>(static_cast<T>(from[e * sizeof(T) + i]) << (8 * i));
    }
    count += IsNan(bits, infinity);
  }
  return count;
}

__device__ uint32_t NansAmong(const uint8_t* from, uint32_t bytes, NanFormat format) {
  switch (format) {
    case NanFormat::kBf16:
      return NansAmong<uint16_t>(from, bytes, 0x7F80);
    case NanFormat::kF16:
      return NansAmong<uint16_t>(from, bytes, 0x7C00);
    case NanFormat::kF32:
      return NansAmong<uint32_t>(from, bytes, 0x7F800000);
    case NanFormat::kF64:
      return NansAmong<uint64_t>(from, bytes, 0x7FF0000000000000);
    case NanFormat::kNone:
      break;
  }
  return 0;
}

// A full page at 16-byte aligned addresses.
__device__ void SumAlignedPage(const uint32_t* keys, const uint8_t* from, uint8_t* to,
                               NanFormat format, PartialSum& sum) {
  const auto* vectors = reinterpret_cast<const uint4*>(from);
  const auto* key_vectors = reinterpret_cast<const uint4*>(keys);
  const bool last_lane = threadIdx.x % kWarpLanes == kWarpLanes - 1;
  for (uint32_t first = threadIdx.x; first < kVectorsPerPage; first += kThreads * kLoadsInFlight) {
    uint4 v[kLoadsInFlight];
#pragma unroll
    for (int u = 0; u < kLoadsInFlight; ++u) v[u] = __ldcs(vectors + first + u * kThreads);
#pragma unroll
    for (int u = 0; u < kLoadsInFlight; ++u) {
      const uint32_t at = first + u * kThreads;
      const uint4 k = __ldg(key_vectors + at);
      // The next lane's first key is this lane's fifth.
      uint32_t after = __shfl_down_sync(kFullWarp, k.x, 1);
      if (last_lane) after = __ldg(keys + 4 * at + 4);
      sum.AddUnit(v[u].x, k.x, k.y);
      sum.AddUnit(v[u].y, k.y, k.z);
      sum.AddUnit(v[u].z, k.z, k.w);
      sum.AddUnit(v[u].w, k.w, after);
      sum.covered += kVectorBytes;
      if (to != nullptr) __stcs(reinterpret_cast<uint4*>(to) + at, v[u]);
      if (format != NanFormat::kNone) sum.AddNans(NansOf(v[u], format));
    }
  }
}

// Any page: short, or at any address.
__device__ void SumAnyPage(const uint32_t* keys, const uint8_t* from, uint8_t* to, uint32_t length,
                           NanFormat format, PartialSum& sum) {
  for (uint32_t at = threadIdx.x * kUnitBytes; at < length; at += kThreads * kUnitBytes) {
    const uint32_t count = min(static_cast<uint32_t>(kUnitBytes), length - at);
    const uint32_t m = LoadUnitBytes(from + at, count);
    const uint32_t unit = at / kUnitBytes;
    sum.AddUnit(m, __ldg(keys + unit), __ldg(keys + unit + 1));
    sum.covered += count;
    if (to == nullptr) continue;
    for (uint32_t i = 0; i < count; ++i) to[at + i] = static_cast<uint8_t>(m >> (8 * i));
  }
  sum.AddNans(NansAmong(from, length, format));
}

__global__ void __launch_bounds__(kThreads)
    DigestPages(const __grid_constant__ Tasks list, const uint32_t* keys, PageSum* sums,
                uint64_t* nan_counts) {
  __shared__ PartialSum warps[kWarps];
  int t = 0;
  for (int step = kTasksPerLaunch / 2; step > 0; step /= 2) {
    if (t + step < list.count && list.tasks[t + step].first_block <= blockIdx.x) t += step;
  }
  const Task& task = list.tasks[t];
  const uint64_t offset = uint64_t{blockIdx.x - task.first_block} * kPageBytes;
  const uint64_t left = task.bytes - offset;
  const uint32_t length = static_cast<uint32_t>(left < kPageBytes ? left : kPageBytes);
  uint8_t* const to = task.to == nullptr ? nullptr : task.to + offset;
  PartialSum sum;
  if (task.aligned && length == kPageBytes) {
    SumAlignedPage(keys, task.from + offset, to, task.nan_format, sum);
  } else {
    SumAnyPage(keys, task.from + offset, to, length, task.nan_format, sum);
  }
  sum = WarpSum(sum);
  if (threadIdx.x % kWarpLanes == 0) warps[threadIdx.x / kWarpLanes] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kWarps; ++w) {
    sum.lane0 += warps[w].lane0;
    sum.lane1 += warps[w].lane1;
    sum.covered += warps[w].covered;
  }
  sums[blockIdx.x] = {sum.lane0, sum.lane1, static_cast<uint32_t>(sum.covered)};
  const uint32_t nans = static_cast<uint32_t>(sum.covered >> 32);
  if (nans > 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(nan_counts + t), uint64_t{nans});
  }
}

bool IsAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % kVectorBytes == 0;
}

}  // namespace

absl::Status ClearPageSumsCuda(PageSum* sums, uint64_t stream_bytes, CudaStream stream) {
  return FillDevice(sums, 0, PagesOf(stream_bytes) * sizeof(PageSum), stream);
}

absl::Status CopyAndDigestCuda(const DevicePageKeys& keys, absl::Span<const DigestTask> tasks,
                               PageSum* sums, uint64_t* nan_counts, CudaStream stream) {
  const absl::Status cleared = FillDevice(nan_counts, 0, tasks.size() * sizeof(uint64_t), stream);
  if (!cleared.ok()) return cleared;
  while (!tasks.empty()) {
    Tasks list = {};
    uint64_t blocks = 0;
    size_t taken = 0;
    for (; taken < tasks.size() && list.count < kTasksPerLaunch; ++taken) {
      const DigestTask& task = tasks[taken];
      const uint64_t pages = PagesOf(task.bytes);
      if (pages > kMaxBlocks) {
        return absl::InvalidArgumentError(absl::StrCat("digest: expected a tensor of at most ",
                                                       kMaxBlocks, " pages, got one of ",
                                                       task.bytes, " bytes"));
      }
      if (blocks + pages > kMaxBlocks) break;
      uint8_t* const to = task.destination == task.source ? nullptr : task.destination;
      list.tasks[list.count++] = {task.source,     to,
                                  task.bytes,      static_cast<uint32_t>(blocks),
                                  task.nan_format, IsAligned(task.source) && IsAligned(to)};
      blocks += pages;
    }
    if (blocks > 0) {
      const LaunchShape shape = {static_cast<unsigned>(blocks), kThreads, 0, stream};
      const absl::Status launched =
          Launch("digest", DigestPages, shape, list, keys.words(), sums, nan_counts);
      if (!launched.ok()) return launched;
    }
    sums += blocks;
    nan_counts += taken;
    tasks.remove_prefix(taken);
  }
  return absl::OkStatus();
}

absl::StatusOr<PageTable> DownloadPageTable(const PageSum* sums, uint64_t stream_bytes,
                                            CudaStream stream) {
  PageTable table(stream_bytes);
  const absl::Span<PageSum> pages = table.mutable_pages();
  if (pages.empty()) return table;
  if (absl::Status s = CopyToHost(pages.data(), sums, pages.size() * sizeof(PageSum), stream);
      !s.ok()) {
    return s;
  }
  if (absl::Status s = SynchronizeStream(stream); !s.ok()) return s;
  return table;
}

}  // namespace lockstep::kernels
