// Making a delta: one pass over both versions leaves a bit per element; counts are scanned over the
// pages; then each page writes its shares, reading of the target only what changed.

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda_launch.h"
#include "kernels/delta_changes_cuda.h"
#include "kernels/delta_cuda.h"
#include "kernels/delta_work_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kLoadsInFlight = 4;
constexpr uint64_t kMaxPages = 0x7FFFFFFF;
// Tasks travel as a kernel's parameters, of which there are 4 KiB.
constexpr int kTasksPerLaunch = 64;

struct Task {
  const uint8_t* base;
  const uint8_t* target;
  uint8_t* masks;  // of its first page
  uint64_t bytes;
  uint64_t first_page;  // in the common numbering
  uint32_t first_block;
  bool aligned;  // base and target, to whole vectors
};

struct Tasks {
  Task tasks[kTasksPerLaunch];
  int count;
};
static_assert(sizeof(Tasks) <= 4000);

__device__ const Task& TaskOfBlock(const Tasks& list) {
  int t = 0;
  for (int step = kTasksPerLaunch / 2; step > 0; step /= 2) {
    if (t + step < list.count && list.tasks[t + step].first_block <= blockIdx.x) t += step;
  }
  return list.tasks[t];
}

// A bit for each element of the vectors that differs.
template <class T>
__device__ uint32_t Compare(const uint4& base, const uint4& target) {
  const uint32_t differ[4] = {base.x ^ target.x, base.y ^ target.y, base.z ^ target.z,
                              base.w ^ target.w};
  uint32_t mask = 0;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if constexpr (sizeof(T) == 1) {
      for (int b = 0; b < 4; ++b)
        mask |= ((differ[w] >> (8 * b)) & 0xFF) != 0 ? 1u << (4 * w + b) : 0;
    } else if constexpr (sizeof(T) == 2) {
      mask |= (differ[w] & 0xFFFF) != 0 ? 1u << (2 * w) : 0;
      mask |= (differ[w] >> 16) != 0 ? 2u << (2 * w) : 0;
    } else if constexpr (sizeof(T) == 4) {
      mask |= differ[w] != 0 ? 1u << w : 0;
    } else if (w % 2 == 0) {
      mask |= (differ[w] | differ[w + 1]) != 0 ? 1u << (w / 2) : 0;
    }
  }
  return mask;
}

// The vector at `at` of a page of `length` bytes, zeros past the end; any alignment.
__device__ uint4 LoadAny(const uint8_t* page, uint32_t at, uint32_t length) {
  uint32_t words[4] = {};
  for (uint32_t i = 0; i < kDeltaVectorBytes; ++i) {
    if (at + i < length) words[i / 4] |= static_cast<uint32_t>(page[at + i]) << (8 * (i % 4));
  }
  return {words[0], words[1], words[2], words[3]};
}

// Fills `masks` for one page; returns whether this thread saw a change.
template <class T>
__device__ bool ComparePage(const Task& task, uint64_t offset, uint32_t length,
                            ChangeMask<T>* masks) {
  bool any = false;
  const auto* base = reinterpret_cast<const uint4*>(task.base + offset);
  const auto* target = reinterpret_cast<const uint4*>(task.target + offset);
  for (uint32_t first = threadIdx.x; first < kVectorsOfPage;
       first += kDeltaThreads * kLoadsInFlight) {
    uint4 old_bits[kLoadsInFlight];
    uint4 new_bits[kLoadsInFlight];
    if (task.aligned && length == kPageBytes) {
#pragma unroll
      for (int u = 0; u < kLoadsInFlight; ++u) {
        old_bits[u] = __ldcs(base + first + u * kDeltaThreads);
        new_bits[u] = __ldcs(target + first + u * kDeltaThreads);
      }
    } else {
      for (int u = 0; u < kLoadsInFlight; ++u) {
        const uint32_t at = (first + u * kDeltaThreads) * kDeltaVectorBytes;
        old_bits[u] = LoadAny(task.base + offset, at, length);
        new_bits[u] = LoadAny(task.target + offset, at, length);
      }
    }
#pragma unroll
    for (int u = 0; u < kLoadsInFlight; ++u) {
      const uint32_t mask = Compare<T>(old_bits[u], new_bits[u]);
      masks[first + u * kDeltaThreads] = static_cast<ChangeMask<T>>(mask);
      any = any || mask != 0;
    }
  }
  return any;
}

template <class T>
__global__ void __launch_bounds__(kDeltaThreads)
    CountChanges(const __grid_constant__ Tasks list, DeviceDeltaPage* pages,
                 DeltaPageSums* groups) {
  __shared__ __align__(16) ChangeMask<T> masks[kVectorsOfPage];
  __shared__ ChangeScratch scratch;
  const Task& task = TaskOfBlock(list);
  const uint64_t page_of_task = blockIdx.x - task.first_block;
  const uint64_t offset = page_of_task * kPageBytes;
  const uint32_t length = static_cast<uint32_t>(min(kPageBytes, task.bytes - offset));
  const uint64_t page_index = task.first_page + page_of_task;
  DeviceDeltaPage page = {};
  page.element_bytes = sizeof(T);
  page.length = length;
  if (!__syncthreads_or(ComparePage<T>(task, offset, length, masks))) {
    if (threadIdx.x == 0) pages[page_index] = page;
    return;
  }
  auto* kept = reinterpret_cast<uint4*>(task.masks + page_of_task * DeltaMaskBytes(sizeof(T)));
  for (uint32_t i = threadIdx.x; i < DeltaMaskBytes(sizeof(T)) / 16; i += kDeltaThreads) {
    kept[i] = reinterpret_cast<const uint4*>(masks)[i];
  }
  ChangeBits<T> bits;
  bits.Load(masks);
  const ThreadChanges changes = PlaceChanges(bits, scratch);
  if (threadIdx.x != 0) return;
  page.changed = changes.all_changed;
  page.gap_bytes = changes.all_gap_bytes;
  if (length < page.gap_bytes + page.changed * static_cast<uint32_t>(sizeof(T))) {
    page.changed = kRawDeltaPage;
    page.gap_bytes = 0;
  }
  pages[page_index] = page;
  const DeltaPageSums sums = DeltaSumsOf(page);
  for (int i = 0; i < kDeltaSums; ++i) {
    atomicAdd(
        reinterpret_cast<unsigned long long*>(&groups[page_index / kDeltaPagesPerGroup].of[i]),
        sums.of[i]);
  }
}

__device__ void CopyRaw(const uint8_t* from, uint8_t* to, uint32_t length) {
  const bool aligned =
      (reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) % kDeltaVectorBytes ==
      0;
  const uint32_t vectors = aligned ? length / kDeltaVectorBytes : 0;
  for (uint32_t i = threadIdx.x; i < vectors; i += kDeltaThreads) {
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  }
  for (uint32_t i = vectors * kDeltaVectorBytes + threadIdx.x; i < length; i += kDeltaThreads) {
    to[i] = from[i];
  }
}

template <class T>
__device__ T LoadElement(const uint8_t* page, uint32_t position) {
  if (reinterpret_cast<uintptr_t>(page) % sizeof(T) == 0) {
    return reinterpret_cast<const T*>(page)[position];
  }
  T bits = 0;
  for (uint32_t b = 0; b < sizeof(T); ++b) {
    bits |= static_cast<T>(static_cast<T>(page[position * sizeof(T) + b]) << (8 * b));
  }
  return bits;
}

template <class T>
__global__ void __launch_bounds__(kDeltaThreads)
    WriteChanges(const __grid_constant__ Tasks list, const DeviceDeltaPage* pages,
                 const DeltaTotals* totals, uint8_t* body, uint64_t body_bytes) {
  __shared__ ChangeScratch scratch;
  const Task& task = TaskOfBlock(list);
  const uint64_t page_of_task = blockIdx.x - task.first_block;
  const DeviceDeltaPage& page = pages[task.first_page + page_of_task];
  if (page.changed == 0) return;
  uint64_t offsets[kDeltaSections];
  if (BodyOffsets(totals->section_bytes, offsets) > body_bytes) return;
  const uint8_t* target = task.target + page_of_task * kPageBytes;
  if (page.changed == kRawDeltaPage) {
    CopyRaw(target, body + offsets[kDeltaRaw] + page.raw_offset, page.length);
    return;
  }
  ChangeBits<T> bits;
  bits.Load(reinterpret_cast<const ChangeMask<T>*>(task.masks +
                                                   page_of_task * DeltaMaskBytes(sizeof(T))));
  const ThreadChanges mine = PlaceChanges(bits, scratch);
  uint8_t* gaps = body + offsets[kDeltaGaps] + page.gap_offset + mine.gap_bytes;
  uint8_t* planes[sizeof(T)];
#pragma unroll
  for (uint32_t b = 0; b < sizeof(T); ++b) {
    planes[b] =
        body + offsets[kDeltaFirstPlane + b] + page.plane_offsets[PlaneClass(b)] + mine.rank;
  }
  int32_t before = mine.previous;
  bits.ForEach([&](uint32_t position) {
    const uint32_t gap = static_cast<uint32_t>(static_cast<int32_t>(position) - before - 1);
    before = static_cast<int32_t>(position);
    if (gap < kLongGap) {
      *gaps++ = static_cast<uint8_t>(gap);
    } else {
      *gaps++ = kLongGap;
      *gaps++ = static_cast<uint8_t>(gap);
      *gaps++ = static_cast<uint8_t>(gap >> 8);
    }
    const T value = LoadElement<T>(target, position);
#pragma unroll
    for (uint32_t b = 0; b < sizeof(T); ++b) {
      *planes[b]++ = static_cast<uint8_t>(value >> (8 * b));
    }
  });
}

// ---- host ----

absl::Status CheckSources(absl::Span<const DeviceDeltaSource> sources, uint64_t page_count) {
  std::vector<DeltaTensor> tensors;
  for (const DeviceDeltaSource& source : sources) tensors.push_back(source.tensor);
  if (absl::Status status = CheckDeltaTensors(tensors); !status.ok()) return status;
  if (page_count > kMaxPages) {
    return absl::InvalidArgumentError(absl::StrCat("delta: expected at most ", kMaxPages,
                                                   " pages in all, got ", page_count,
                                                   "; make deltas of fewer tensors at a time"));
  }
  return absl::OkStatus();
}

bool IsAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % kDeltaVectorBytes == 0;
}

// Calls launch(tasks, blocks, element type's zero) for lists of tensors of one element size.
template <class T, class LaunchFn>
absl::Status ForTasks(absl::Span<const DeviceDeltaSource> sources, const DeltaWork& work,
                      LaunchFn launch) {
  Tasks list = {};
  uint32_t blocks = 0;
  uint64_t first_page = 0;
  uint8_t* masks = work.masks;
  const auto flush = [&] {
    if (blocks == 0) return absl::OkStatus();
    const absl::Status launched = launch(list, blocks, T{});
    list.count = 0;
    blocks = 0;
    return launched;
  };
  for (const DeviceDeltaSource& source : sources) {
    const uint64_t pages = DeltaPageCount(source.tensor);
    if (source.tensor.element_bytes == sizeof(T) && pages > 0) {
      list.tasks[list.count++] = {source.base,
                                  source.target,
                                  masks,
                                  source.tensor.bytes,
                                  first_page,
                                  blocks,
                                  IsAligned(source.base) && IsAligned(source.target)};
      blocks += static_cast<uint32_t>(pages);
      if (list.count == kTasksPerLaunch) {
        if (absl::Status s = flush(); !s.ok()) return s;
      }
    }
    first_page += pages;
    masks += pages * DeltaMaskBytes(source.tensor.element_bytes);
  }
  return flush();
}

template <class LaunchFn>
absl::Status ForAllTasks(absl::Span<const DeviceDeltaSource> sources, const DeltaWork& work,
                         LaunchFn launch) {
  if (absl::Status s = ForTasks<uint8_t>(sources, work, launch); !s.ok()) return s;
  if (absl::Status s = ForTasks<uint16_t>(sources, work, launch); !s.ok()) return s;
  if (absl::Status s = ForTasks<uint32_t>(sources, work, launch); !s.ok()) return s;
  return ForTasks<uint64_t>(sources, work, launch);
}

}  // namespace

absl::Status MakeDeltaCuda(absl::Span<const DeviceDeltaSource> sources, void* workspace,
                           uint8_t* body, uint64_t body_bytes, CudaStream stream) {
  const DeltaWork work = LayOutDelta(sources, workspace);
  if (absl::Status s = CheckSources(sources, work.page_count); !s.ok()) return s;
  if (absl::Status s = FillDevice(work.totals, 0, work.cleared_bytes, stream); !s.ok()) return s;
  if (work.page_count == 0) return absl::OkStatus();
  const absl::Status counted =
      ForAllTasks(sources, work, [&](const Tasks& list, uint32_t blocks, auto zero) {
        return Launch("delta: comparing versions", CountChanges<decltype(zero)>,
                      {blocks, kDeltaThreads, 0, stream}, list, work.pages, work.groups);
      });
  if (!counted.ok()) return counted;
  const absl::Status placed = LaunchPlacePages(work, stream);
  if (!placed.ok()) return placed;
  return ForAllTasks(sources, work, [&](const Tasks& list, uint32_t blocks, auto zero) {
    return Launch("delta: writing changes", WriteChanges<decltype(zero)>,
                  {blocks, kDeltaThreads, 0, stream}, list, work.pages, work.totals, body,
                  body_bytes);
  });
}

}  // namespace lockstep::kernels
