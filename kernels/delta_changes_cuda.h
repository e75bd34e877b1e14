#ifndef LOCKSTEP_KERNELS_DELTA_CHANGES_CUDA_H_
#define LOCKSTEP_KERNELS_DELTA_CHANGES_CUDA_H_

// One page's changed elements as bits, and each thread's place among them; for .cu files alone.
//
// Example, by all threads of a block:
//   ChangeBits<uint16_t> bits;
//   bits.Load(page_masks);
//   const ThreadChanges mine = PlaceChanges(bits, scratch);
//   bits.ForEach([&](uint32_t position) { ... });

#include <cstdint>
#include <type_traits>

#include "kernels/delta_layout.h"

namespace lockstep::kernels {

inline constexpr int kDeltaThreads = 256;
inline constexpr int kDeltaWarps = kDeltaThreads / 32;
inline constexpr uint32_t kDeltaVectorBytes = 16;
inline constexpr uint32_t kVectorsOfPage = kPageBytes / kDeltaVectorBytes;
// A thread looks at this many consecutive vectors' bits.
inline constexpr uint32_t kVectorsOfThread = kVectorsOfPage / kDeltaThreads;

// The changed elements of one 16-byte vector, a bit each from the lowest.
template <class T>
using ChangeMask = std::conditional_t<sizeof(T) == 1, uint16_t, uint8_t>;

// The bits of this thread's vectors; T is the element's unsigned twin.
template <class T>
struct ChangeBits {
  static constexpr uint32_t kMaskBits = 8 * sizeof(ChangeMask<T>);
  static constexpr uint32_t kMasksPerWord = 32 / kMaskBits;
  static constexpr uint32_t kWords = kVectorsOfThread / kMasksPerWord;
  static constexpr uint32_t kElementsPerVector = kDeltaVectorBytes / sizeof(T);

  uint32_t words[kWords];

  // `masks` are the whole page's, 16-byte aligned.
  __device__ void Load(const ChangeMask<T>* masks) {
    const auto* from = reinterpret_cast<const uint4*>(masks + threadIdx.x * kVectorsOfThread);
#pragma unroll
    for (uint32_t i = 0; i < kWords / 4; ++i) {
      const uint4 four = from[i];
      words[4 * i] = four.x;
      words[4 * i + 1] = four.y;
      words[4 * i + 2] = four.z;
      words[4 * i + 3] = four.w;
    }
  }

  // Calls fn(position in the page) for each changed element, ascending.
  template <class Fn>
  __device__ void ForEach(Fn fn) const {
#pragma unroll
    for (uint32_t w = 0; w < kWords; ++w) {
      const uint32_t vector = threadIdx.x * kVectorsOfThread + w * kMasksPerWord;
      for (uint32_t left = words[w]; left != 0; left &= left - 1) {
        const uint32_t bit = static_cast<uint32_t>(__ffs(static_cast<int>(left)) - 1);
        fn((vector + bit / kMaskBits) * kElementsPerVector + bit % kMaskBits);
      }
    }
  }
};

struct ThreadChanges {
  int32_t previous;    // the changed position before this thread's first; -1 when there is none
  uint32_t rank;       // changed elements before this thread's
  uint32_t gap_bytes;  // gap code bytes before this thread's
  uint32_t all_changed;
  uint32_t all_gap_bytes;
};

// The inclusive scan of `value` over the block under `join`, from thread 0 on. `scratch` has a
// place for each warp; a barrier is needed before it is used again.
template <class T, class Join>
__device__ T BlockScan(T value, Join join, T* scratch) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  for (unsigned distance = 1; distance < 32; distance *= 2) {
    const T before = __shfl_up_sync(0xFFFFFFFF, value, distance);
    if (lane >= distance) value = join(before, value);
  }
  if (lane == 31) scratch[warp] = value;
  __syncthreads();
  for (unsigned w = 0; w < warp; ++w) {
    // `join` is commutative.
    value = join(scratch[w], value);
  }
  return value;
}

struct ChangeScratch {
  int32_t last[kDeltaWarps];
  uint64_t sums[kDeltaWarps];
  int32_t boundary[kDeltaThreads];
};

// Where this thread's changes stand among the page's. All threads of the block call it.
template <class T>
__device__ ThreadChanges PlaceChanges(const ChangeBits<T>& bits, ChangeScratch& scratch) {
  int32_t last = -1;
  bits.ForEach([&](uint32_t position) { last = static_cast<int32_t>(position); });
  const int32_t last_so_far = BlockScan(
      last, [](int32_t a, int32_t b) { return a > b ? a : b; }, scratch.last);
  scratch.boundary[threadIdx.x] = last_so_far;
  __syncthreads();
  ThreadChanges mine;
  mine.previous = threadIdx.x == 0 ? -1 : scratch.boundary[threadIdx.x - 1];
  uint32_t changed = 0;
  uint32_t gap_bytes = 0;
  int32_t before = mine.previous;
  bits.ForEach([&](uint32_t position) {
    const int32_t gap = static_cast<int32_t>(position) - before - 1;
    gap_bytes += gap < kLongGap ? 1 : 3;
    ++changed;
    before = static_cast<int32_t>(position);
  });
  const uint64_t own = uint64_t{changed} << 32 | gap_bytes;
  const uint64_t sum = BlockScan(
      own, [](uint64_t a, uint64_t b) { return a + b; }, scratch.sums);
  const uint64_t exclusive = sum - own;
  mine.rank = static_cast<uint32_t>(exclusive >> 32);
  mine.gap_bytes = static_cast<uint32_t>(exclusive);
  uint64_t all = 0;
  for (int w = 0; w < kDeltaWarps; ++w) all += scratch.sums[w];
  mine.all_changed = static_cast<uint32_t>(all >> 32);
  mine.all_gap_bytes = static_cast<uint32_t>(all);
  return mine;
}

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_DELTA_CHANGES_CUDA_H_
