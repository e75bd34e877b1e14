// Vector loads, stores and roundings of the 16-bit formats, as templates on the format; a Highway
// "-inl" header, included once per target. Every function equals its scalar twin in
// float_formats.h lane by lane.
//
// Example, inside a file that uses hwy/foreach_target.h:
//   const hn::ScalableTag<float> d;
//   StoreHalf<F16>(d, hn::Mul(LoadHalf<F16>(d, x), LoadHalf<F16>(d, y)), out);

#if defined(LOCKSTEP_KERNELS_HALF_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_HALF_SIMD_INL_H_
#undef LOCKSTEP_KERNELS_HALF_SIMD_INL_H_
#else
#define LOCKSTEP_KERNELS_HALF_SIMD_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/float_formats.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
using Words = hn::Vec<hn::RebindToUnsigned<D>>;

// Lanes(d) 16-bit patterns from `from` (any alignment), each in the low half of a 32-bit lane.
template <class D>
HWY_INLINE Words<D> LoadHalfBits(D, const uint16_t* from) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  return hn::PromoteTo(d32, hn::LoadU(d16, from));
}

template <class D>
HWY_INLINE void StoreHalfBits(D, Words<D> bits, uint16_t* to) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToSigned<D> di32;
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, bits)), d16, to);
}

// The float32 of each pattern.
template <class Format, class D>
HWY_INLINE hn::Vec<D> DecodeHalf(D d, Words<D> bits) {
  const hn::RebindToUnsigned<D> d32;
  if constexpr (std::is_same_v<Format, Bf16>) {
    return hn::BitCast(d, hn::ShiftLeft<16>(bits));
  } else {
    // The exponent and mantissa, moved to float32's place, are the value times 2^-112: the
    // multiplication is exact and makes denormals normal. Infinity and NaN need float32's
    // exponent field filled.
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(d32, 0x8000u)));
    const auto mag = hn::And(bits, hn::Set(d32, 0x7FFFu));
    const auto scaled = hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(mag)), hn::Set(d, 0x1p112f));
    const auto special = hn::RebindMask(d32, hn::Ge(scaled, hn::Set(d, 0x1p16f)));
    const auto filled =
        hn::Or(hn::BitCast(d32, scaled), hn::IfThenElseZero(special, hn::Set(d32, 0x7F800000u)));
    return hn::BitCast(d, hn::Or(filled, sign));
  }
}

// Rounds once to the format, to nearest even; any NaN becomes the canonical pattern.
template <class Format, class D>
HWY_INLINE Words<D> EncodeHalf(D d, hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::BitCast(d32, value);
  const auto one = hn::Set(d32, 1u);
  const auto is_number = hn::RebindMask(d32, hn::Eq(value, value));
  if constexpr (std::is_same_v<Format, Bf16>) {
    const auto odd = hn::And(hn::ShiftRight<16>(bits), one);
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d32, 0x7FFFu)), odd));
    return hn::IfThenElse(is_number, rounded, hn::Set(d32, uint32_t{kBf16CanonicalNan}));
  } else {
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 0x8000u));
    const auto absolute = hn::Abs(value);
    const auto mag = hn::BitCast(d32, absolute);
    // A normal result: rebias by 112, round the 13 bits that go, end at infinity.
    const auto rebias = hn::Set(d32, 0xFFFu - (112u << 23));
    const auto odd = hn::And(hn::ShiftRight<13>(mag), one);
    const auto normal =
        hn::Min(hn::ShiftRight<13>(hn::Add(hn::Add(mag, rebias), odd)), hn::Set(d32, 0x7C00u));
    // A denormal one: units of 2^-24 are the last place of a float32 in [0.5, 1), so the addition
    // does the rounding.
    const auto half = hn::Set(d, 0.5f);
    const auto denormal =
        hn::Sub(hn::BitCast(d32, hn::Add(absolute, half)), hn::BitCast(d32, half));
    const auto is_small = hn::RebindMask(d32, hn::Lt(absolute, hn::Set(d, 0x1p-14f)));
    const auto result = hn::Or(hn::IfThenElse(is_small, denormal, normal), sign);
    return hn::IfThenElse(is_number, result, hn::Set(d32, uint32_t{kF16CanonicalNan}));
  }
}

template <class Format, class D>
HWY_INLINE hn::Vec<D> LoadHalf(D d, const uint16_t* from) {
  return DecodeHalf<Format>(d, LoadHalfBits(d, from));
}

template <class Format, class D>
HWY_INLINE void StoreHalf(D d, hn::Vec<D> value, uint16_t* to) {
  StoreHalfBits(d, EncodeHalf<Format>(d, value), to);
}

// The value that a store followed by a load would give.
template <class Format, class D>
HWY_INLINE hn::Vec<D> RoundHalf(D d, hn::Vec<D> value) {
  return DecodeHalf<Format>(d, EncodeHalf<Format>(d, value));
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
