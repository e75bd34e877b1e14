#include "kernels/scaled_add.h"

#include <cstddef>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/scaled_add.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/float_formats.h"
#include "kernels/half_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {

void ScaledAdd(const uint16_t* base, const float* delta, float scale, size_t count, uint16_t* out) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto scaled = hn::Mul(hn::Set(d, scale), hn::LoadU(d, delta + i));
    StoreHalf<Bf16>(d, hn::Add(LoadHalf<Bf16>(d, base + i), scaled), out + i);
  }
  for (; i < count; ++i) {
    const float scaled = scale * delta[i];
    out[i] = Bf16::Store(Bf16::Load(base[i]) + scaled);
  }
}

void Add(const float* left, const float* right, size_t count, uint16_t* out) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    StoreHalf<Bf16>(d, hn::Add(hn::LoadU(d, left + i), hn::LoadU(d, right + i)), out + i);
  }
  for (; i < count; ++i) out[i] = Bf16::Store(left[i] + right[i]);
}

void Scale(float scale, size_t count, float* values) {
  const hn::ScalableTag<float> d;
  const auto nan = hn::Set(d, F32FromBits(kF32CanonicalNan));
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto scaled = hn::Mul(hn::Set(d, scale), hn::LoadU(d, values + i));
    hn::StoreU(hn::IfThenElse(hn::Eq(scaled, scaled), scaled, nan), d, values + i);
  }
  for (; i < count; ++i) values[i] = F32::Store(scale * values[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(ScaledAdd);
HWY_EXPORT(Add);
HWY_EXPORT(Scale);
}  // namespace

void ScaledAddBf16(const uint16_t* base, const float* delta, float scale, size_t count,
                   uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(ScaledAdd)(base, delta, scale, count, out);
}

void AddToBf16(const float* left, const float* right, size_t count, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(Add)(left, right, count, out);
}

void ScaleF32(float scale, size_t count, float* values) {
  HWY_DYNAMIC_DISPATCH(Scale)(scale, count, values);
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
