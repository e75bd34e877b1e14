#ifndef LOCKSTEP_KERNELS_DIGEST_LANES_H_
#define LOCKSTEP_KERNELS_DIGEST_LANES_H_

// The inner sums of `digest/paged@v1`, vectorised by Highway with run-time dispatch. Integer
// arithmetic mod 2^64, so every target and every split gives the same sums.
//
// Example:
//   LaneSums sums = SumUnits(keys.words(), page, kUnitsPerPage);

#include <cstddef>
#include <cstdint>

namespace lockstep::kernels {

struct LaneSums {
  uint64_t lane0 = 0;  // sum of keys[i] * m[i]
  uint64_t lane1 = 0;  // sum of keys[i + 1] * m[i]
  uint64_t nans = 0;   // elements that are NaN, when asked for
};

// How to recognise a NaN in the stream; kNone costs nothing.
enum class NanFormat : uint8_t { kNone, kBf16, kF16, kF32, kF64 };

// Sums `units` little-endian uint32 at `from` (any alignment). `keys` points at the key of the
// first unit and has units + 1 words and PageKeys::kPaddingWords behind them. Reads each byte
// once.
LaneSums SumUnits(const uint32_t* keys, const uint8_t* from, size_t units);

// The same and copies to `to` (not overlapping `from`; nullptr copies nothing) and counts NaN
// elements, all in the one pass. `bypass_cache` uses non-temporal stores when `to` is aligned to
// a vector: for copies much larger than the cache. units * 4 is a multiple of the element size.
LaneSums SumUnitsFused(const uint32_t* keys, const uint8_t* from, uint8_t* to, size_t units,
                       NanFormat nan_format, bool bypass_cache);

// NaN elements among `bytes` bytes at `from`; for tails, scalar.
uint64_t CountNans(const uint8_t* from, size_t bytes, NanFormat nan_format);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_DIGEST_LANES_H_
