// The fused multiply-add of the exact programs; a Highway "-inl" header, included once per target.
//
// Example, inside a file that uses hwy/foreach_target.h:
//   const hn::ScalableTag<float> d;
//   sum = FusedMulAdd(d, a, b, sum);

#if defined(LOCKSTEP_KERNELS_EXACT_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_EXACT_SIMD_INL_H_
#undef LOCKSTEP_KERNELS_EXACT_SIMD_INL_H_
#else
#define LOCKSTEP_KERNELS_EXACT_SIMD_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "kernels/exact_fma.h"

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

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
