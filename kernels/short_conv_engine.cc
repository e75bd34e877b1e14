#include "kernels/short_conv_engine.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/short_conv_engine.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/exact_fma.h"
#include "kernels/exact_simd-inl.h"
#include "kernels/float_formats.h"
#include "kernels/half_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {

template <class Format>
void Token(const void* const rows[4], const float* taps, size_t channels, void* out) {
  using Storage = typename Format::Storage;
  constexpr hn::ScalableTag<float> d;
  const auto row = [&](size_t j) { return static_cast<const Storage*>(rows[j]); };
  auto* to = static_cast<Storage*>(out);
  size_t c = 0;
  for (; c + hn::Lanes(d) <= channels; c += hn::Lanes(d)) {
    auto sum = hn::Zero(d);
    for (size_t j = 0; j < 4; ++j) {
      const auto tap = hn::LoadU(d, taps + j * channels + c);
      if constexpr (Format::kType == FloatType::kBf16) {
        sum = FusedMulAdd(d, tap, LoadHalf<Bf16>(d, row(j) + c), sum);
      } else {
        sum = FusedMulAdd(d, tap, hn::LoadU(d, row(j) + c), sum);
      }
    }
    if constexpr (Format::kType == FloatType::kBf16) {
      StoreHalf<Bf16>(d, sum, to + c);
    } else {
      const auto nan =
          hn::BitCast(d, hn::Set(hn::RebindToUnsigned<decltype(d)>(), uint32_t{kF32CanonicalNan}));
      hn::StoreU(hn::IfThenElse(hn::Eq(sum, sum), sum, nan), d, to + c);
    }
  }
  for (; c < channels; ++c) {
    float sum = 0.0f;
    for (size_t j = 0; j < 4; ++j) {
      sum = ExactFma(taps[j * channels + c], Format::Load(row(j)[c]), sum);
    }
    to[c] = Format::Store(sum);
  }
}

void AnyToken(FloatType type, const void* const rows[4], const float* taps, size_t channels,
              void* out) {
  type == FloatType::kBf16 ? Token<Bf16>(rows, taps, channels, out)
                           : Token<F32>(rows, taps, channels, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {

HWY_EXPORT(AnyToken);

void ShortConvToken(FloatType type, const void* const rows[4], const float* taps, size_t channels,
                    void* out) {
  HWY_DYNAMIC_DISPATCH(AnyToken)(type, rows, taps, channels, out);
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
