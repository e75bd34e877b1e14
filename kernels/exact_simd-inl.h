// Vector steps shared by the exact programs; a Highway "-inl" header, included once per target.
// Every function equals its scalar twin in float_formats.h or exact_fma.h lane by lane.
//
// Example, inside a file that uses hwy/foreach_target.h:
//   const hn::ScalableTag<float> d;
//   StoreBf16(d, hn::Mul(LoadBf16(d, x), LoadBf16(d, y)), out);

#if defined(LOCKSTEP_KERNELS_EXACT_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_EXACT_SIMD_INL_H_
#undef LOCKSTEP_KERNELS_EXACT_SIMD_INL_H_
#else
#define LOCKSTEP_KERNELS_EXACT_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/exact_fma.h"
#include "kernels/float_formats.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// a * b + c with one rounding. Highway's own MulAdd is two roundings where the target has no FMA.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V FusedMulAdd(D d, V a, V b, V c) {
#if HWY_NATIVE_FMA
  (void)d;
  return hn::MulAdd(a, b, c);
#else
  constexpr size_t kLanes = hn::MaxLanes(D());
  HWY_ALIGN float as[kLanes];
  HWY_ALIGN float bs[kLanes];
  HWY_ALIGN float cs[kLanes];
  hn::Store(a, d, as);
  hn::Store(b, d, bs);
  hn::Store(c, d, cs);
  for (size_t i = 0; i < kLanes; ++i) cs[i] = ExactFma(as[i], bs[i], cs[i]);
  return hn::Load(d, cs);
#endif
}

// Lanes(d) bf16 values from `from` (any alignment).
template <class D>
HWY_INLINE hn::Vec<D> LoadBf16(D d, const uint16_t* from) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, from))));
}

// Rounds to nearest even in integers; any NaN becomes the canonical one.
template <class D>
HWY_INLINE void StoreBf16(D /*d*/, hn::Vec<D> value, uint16_t* to) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const hn::RebindToSigned<D> di32;
  const auto bits = hn::BitCast(d32, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d32, 0x7FFFu)), odd));
  const auto is_number = hn::RebindMask(d32, hn::Eq(value, value));
  const auto result = hn::IfThenElse(is_number, rounded, hn::Set(d32, uint32_t{kBf16CanonicalNan}));
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, result)), d16, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
