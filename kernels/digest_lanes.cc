#include "kernels/digest_lanes.h"

#include <cstring>
#include <limits>

#include "hwy/cache_control.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/digest_lanes.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR
// Adds to `counts` (lanes of T, negative counts) the lanes of `bytes` that are NaN: an exponent of
// ones and a mantissa that is not 0, so a magnitude above infinity's.
template <class T, T kInfinity, class D32, class V32, class DT, class VT>
HWY_INLINE VT CountNanLanes(D32, V32 bits, DT dt, VT counts) {
  constexpr T kMagnitude = static_cast<T>(~(T{1} << (sizeof(T) * 8 - 1)));
  const auto magnitude = hn::And(hn::BitCast(dt, bits), hn::Set(dt, kMagnitude));
  const auto is_nan = hn::Gt(magnitude, hn::Set(dt, kInfinity));
  return hn::Add(counts, hn::VecFromMask(dt, is_nan));
}

template <class T, class DT, class VT>
HWY_INLINE uint64_t NegatedSum(DT dt, VT counts) {
  HWY_ALIGN T lanes[hn::MaxLanes(DT())];
  hn::Store(counts, dt, lanes);
  uint64_t total = 0;
  for (size_t i = 0; i < hn::Lanes(dt); ++i) total += static_cast<uint64_t>(-lanes[i]);
  return total;
}
#endif

// How far ahead of the loop memory is asked for: the processor's own prefetch stops at each 4 KiB
// page. A prefetch past the end is harmless.
constexpr size_t kPrefetchBytes = 1'024;

// T is the element's signed integer twin. A 16-bit lane counts at most kUnitsPerPage / Lanes
// elements a call, which fits: callers pass a page at most.
template <class T, T kInfinity, bool kCountNans, bool kCopy, bool kBypass>
LaneSums SumLoop(const uint32_t* HWY_RESTRICT keys, const uint8_t* HWY_RESTRICT from,
                 uint8_t* HWY_RESTRICT to, size_t units) {
  LaneSums sums;
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR  // which has no pairs of lanes; the tail below does it all
  const hn::ScalableTag<uint32_t> d32;
  const hn::ScalableTag<uint64_t> d64;
  const hn::ScalableTag<T> dt;
  const size_t lanes = hn::Lanes(d32);
  auto even0 = hn::Zero(d64);
  auto odd0 = hn::Zero(d64);
  auto even1 = hn::Zero(d64);
  auto odd1 = hn::Zero(d64);
  auto nan_counts = hn::Zero(dt);
  for (; i + lanes <= units; i += lanes) {
    hwy::Prefetch(from + i * sizeof(uint32_t) + kPrefetchBytes);
    const auto m = hn::LoadU(d32, reinterpret_cast<const uint32_t*>(from) + i);
    if constexpr (kCopy) {
      auto* target = reinterpret_cast<uint32_t*>(to) + i;
      if constexpr (kBypass) {
        hn::Stream(m, d32, target);
      } else {
        hn::StoreU(m, d32, target);
      }
    }
    if constexpr (kCountNans) nan_counts = CountNanLanes<T, kInfinity>(d32, m, dt, nan_counts);
    // MulEven multiplies lanes 0, 2, ...: the odd units and their keys are shifted down, and the
    // keys of the odd units are lane1's keys of the even ones.
    const auto k = hn::LoadU(d32, keys + i);
    const auto k_after = hn::LoadU(d32, keys + i + 2);
    const auto m_odd = hn::BitCast(d32, hn::ShiftRight<32>(hn::BitCast(d64, m)));
    const auto k_odd = hn::BitCast(d32, hn::ShiftRight<32>(hn::BitCast(d64, k)));
    even0 = hn::Add(even0, hn::MulEven(m, k));
    odd0 = hn::Add(odd0, hn::MulEven(m_odd, k_odd));
    even1 = hn::Add(even1, hn::MulEven(m, k_odd));
    odd1 = hn::Add(odd1, hn::MulEven(m_odd, k_after));
  }
  sums.lane0 = hn::GetLane(hn::SumOfLanes(d64, hn::Add(even0, odd0)));
  sums.lane1 = hn::GetLane(hn::SumOfLanes(d64, hn::Add(even1, odd1)));
  if constexpr (kCountNans) sums.nans = NegatedSum<T>(dt, nan_counts);
#endif
  const size_t vector_bytes = i * sizeof(uint32_t);
  const size_t tail_bytes = (units - i) * sizeof(uint32_t);
  for (; i < units; ++i) {
    uint32_t m;
    memcpy(&m, from + i * sizeof(uint32_t), sizeof(m));
    sums.lane0 += uint64_t{keys[i]} * m;
    sums.lane1 += uint64_t{keys[i + 1]} * m;
  }
  if constexpr (kCopy) memcpy(to + vector_bytes, from + vector_bytes, tail_bytes);
  if constexpr (kCountNans) {
    for (size_t at = 0; at + sizeof(T) <= tail_bytes; at += sizeof(T)) {
      T bits;
      memcpy(&bits, from + vector_bytes + at, sizeof(T));
      constexpr T kMagnitude = static_cast<T>(~(T{1} << (sizeof(T) * 8 - 1)));
      sums.nans += (bits & kMagnitude) > kInfinity ? 1 : 0;
    }
  }
  return sums;
}

LaneSums SumOnly(const uint32_t* keys, const uint8_t* from, size_t units) {
  return SumLoop<int32_t, 0, false, false, false>(keys, from, nullptr, units);
}

template <class T, T kInfinity, bool kCountNans>
LaneSums SumFusedAs(const uint32_t* keys, const uint8_t* from, uint8_t* to, size_t units,
                    bool bypass_cache) {
  if (to == nullptr) {
    return SumLoop<T, kInfinity, kCountNans, false, false>(keys, from, nullptr, units);
  }
  const size_t vector_bytes = hn::Lanes(hn::ScalableTag<uint8_t>());
  if (bypass_cache && reinterpret_cast<uintptr_t>(to) % vector_bytes == 0) {
    const LaneSums sums = SumLoop<T, kInfinity, kCountNans, true, true>(keys, from, to, units);
    hwy::FlushStream();
    return sums;
  }
  return SumLoop<T, kInfinity, kCountNans, true, false>(keys, from, to, units);
}

LaneSums SumFused(const uint32_t* keys, const uint8_t* from, uint8_t* to, size_t units,
                  NanFormat nan_format, bool bypass_cache) {
  switch (nan_format) {
    case NanFormat::kBf16:
      return SumFusedAs<int16_t, 0x7F80, true>(keys, from, to, units, bypass_cache);
    case NanFormat::kF16:
      return SumFusedAs<int16_t, 0x7C00, true>(keys, from, to, units, bypass_cache);
    case NanFormat::kF32:
      return SumFusedAs<int32_t, 0x7F800000, true>(keys, from, to, units, bypass_cache);
    case NanFormat::kF64:
      return SumFusedAs<int64_t, 0x7FF0000000000000, true>(keys, from, to, units, bypass_cache);
    case NanFormat::kNone:
      break;
  }
  return SumFusedAs<int32_t, 0, false>(keys, from, to, units, bypass_cache);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {

HWY_EXPORT(SumOnly);
HWY_EXPORT(SumFused);

template <class T>
uint64_t CountAbove(const uint8_t* from, size_t bytes, T infinity) {
  uint64_t nans = 0;
  for (size_t at = 0; at + sizeof(T) <= bytes; at += sizeof(T)) {
    T bits;
    memcpy(&bits, from + at, sizeof(T));
    nans += static_cast<T>(bits & std::numeric_limits<T>::max() / 2) > infinity ? 1 : 0;
  }
  return nans;
}

}  // namespace

LaneSums SumUnits(const uint32_t* keys, const uint8_t* from, size_t units) {
  return HWY_DYNAMIC_DISPATCH(SumOnly)(keys, from, units);
}

LaneSums SumUnitsFused(const uint32_t* keys, const uint8_t* from, uint8_t* to, size_t units,
                       NanFormat nan_format, bool bypass_cache) {
  return HWY_DYNAMIC_DISPATCH(SumFused)(keys, from, to, units, nan_format, bypass_cache);
}

uint64_t CountNans(const uint8_t* from, size_t bytes, NanFormat nan_format) {
  switch (nan_format) {
    case NanFormat::kBf16:
      return CountAbove<uint16_t>(from, bytes, 0x7F80);
    case NanFormat::kF16:
      return CountAbove<uint16_t>(from, bytes, 0x7C00);
    case NanFormat::kF32:
      return CountAbove<uint32_t>(from, bytes, 0x7F800000);
    case NanFormat::kF64:
      return CountAbove<uint64_t>(from, bytes, 0x7FF0000000000000);
    case NanFormat::kNone:
      break;
  }
  return 0;
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
