#include "kernels/swiglu_engine.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/swiglu_engine.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/float_formats.h"
#include "kernels/half_simd-inl.h"
#include "kernels/silu_ieee.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {

using Floats = hn::ScalableTag<float>;
constexpr size_t kLanes = hn::MaxLanes(Floats());

// function(gate) per lane, from its table.
HWY_INLINE hn::Vec<Floats> LookUp(const float* table, const uint16_t* gate) {
  const Floats d;
  const hn::RebindToSigned<Floats> di32;
  return hn::GatherIndex(d, table, hn::BitCast(di32, LoadHalfBits(d, gate)));
}

// function(min(gate, limit)) per lane; a NaN gate stays NaN.
template <class Format, class Function>
HWY_INLINE hn::Vec<Floats> Compute(Function function, float limit, const uint16_t* gate) {
  const Floats d;
  HWY_ALIGN float values[kLanes];
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    const float g = Format::Load(gate[i]);
    values[i] = function(g > limit ? limit : g);
  }
  return hn::Load(d, values);
}

// One vector of each program. Operands hold Lanes(Floats()) elements.
template <class Format, SwigluProgram kProgram>
struct Forward {
  const float* silu;
  float limit;          // +inf unless clamped
  float silu_of_limit;  // silu/ieee@v1 of it

  HWY_INLINE void operator()(const uint16_t* gate, const uint16_t* up, uint16_t* out) const {
    const Floats d;
    auto s = silu != nullptr ? LookUp(silu, gate) : Compute<Format>(SiluIeee, limit, gate);
    auto u = LoadHalf<Format>(d, up);
    if constexpr (kProgram == SwigluProgram::kTwoRound) s = RoundHalf<Format>(d, s);
    if constexpr (kProgram == SwigluProgram::kOneRoundFp32Clamped) {
      // Comparisons with a NaN are false, so it stays.
      const auto high = hn::Set(d, limit);
      const auto low = hn::Neg(high);
      const auto g = LoadHalf<Format>(d, gate);
      s = hn::IfThenElse(hn::Gt(g, high), hn::Set(d, silu_of_limit), s);
      u = hn::IfThenElse(hn::Gt(u, high), high, u);
      u = hn::IfThenElse(hn::Lt(u, low), low, u);
    }
    StoreHalf<Format>(d, hn::Mul(s, u), out);
  }
};

template <class Format>
struct Backward {
  const float* sigmoid;

  HWY_INLINE void operator()(const uint16_t* gate, const uint16_t* up, const uint16_t* dout,
                             uint16_t* dgate, uint16_t* dup) const {
    const Floats d;
    constexpr float kNoLimit = __builtin_inff();
    const auto s =
        sigmoid != nullptr ? LookUp(sigmoid, gate) : Compute<Format>(SigmoidIeee, kNoLimit, gate);
    const auto g = LoadHalf<Format>(d, gate);
    const auto u = LoadHalf<Format>(d, up);
    const auto grad = LoadHalf<Format>(d, dout);
    const auto gs = hn::Mul(g, s);
    const auto slope = hn::Add(s, hn::Mul(gs, hn::Sub(hn::Set(d, 1.0f), s)));
    StoreHalf<Format>(d, hn::Mul(hn::Mul(grad, u), slope), dgate);
    StoreHalf<Format>(d, hn::Mul(grad, gs), dup);
  }
};

// A short last vector runs on copies padded with zeros.
struct Padded {
  HWY_ALIGN uint16_t lanes[kLanes] = {};

  Padded() = default;
  Padded(const uint16_t* from, size_t count) { memcpy(lanes, from, count * sizeof(*from)); }
  void CopyTo(uint16_t* to, size_t count) const { memcpy(to, lanes, count * sizeof(*to)); }
};

template <class Format, SwigluProgram kProgram>
void ForwardStretch(const SwigluStretch& s) {
  const bool clamped = kProgram == SwigluProgram::kOneRoundFp32Clamped;
  const Forward<Format, kProgram> step = {
      .silu = s.silu,
      .limit = clamped ? s.limit : __builtin_inff(),
      .silu_of_limit = clamped ? SiluIeee(s.limit) : 0,
  };
  const size_t lanes = hn::Lanes(Floats());
  size_t i = 0;
  for (; i + lanes <= s.count; i += lanes) step(s.gate + i, s.up + i, s.out + i);
  if (i == s.count) return;
  const Padded gate(s.gate + i, s.count - i);
  const Padded up(s.up + i, s.count - i);
  Padded out;
  step(gate.lanes, up.lanes, out.lanes);
  out.CopyTo(s.out + i, s.count - i);
}

template <class Format>
void BackwardStretch(const SwigluVjpStretch& s) {
  const Backward<Format> step = {.sigmoid = s.sigmoid};
  const size_t lanes = hn::Lanes(Floats());
  size_t i = 0;
  for (; i + lanes <= s.count; i += lanes) {
    step(s.gate + i, s.up + i, s.dout + i, s.dgate + i, s.dup + i);
  }
  if (i == s.count) return;
  const Padded gate(s.gate + i, s.count - i);
  const Padded up(s.up + i, s.count - i);
  const Padded dout(s.dout + i, s.count - i);
  Padded dgate, dup;
  step(gate.lanes, up.lanes, dout.lanes, dgate.lanes, dup.lanes);
  dgate.CopyTo(s.dgate + i, s.count - i);
  dup.CopyTo(s.dup + i, s.count - i);
}

template <class Format>
void ForwardOfFormat(const SwigluStretch& s) {
  switch (s.program) {
    case SwigluProgram::kOneRoundFp32:
      return ForwardStretch<Format, SwigluProgram::kOneRoundFp32>(s);
    case SwigluProgram::kTwoRound:
      return ForwardStretch<Format, SwigluProgram::kTwoRound>(s);
    case SwigluProgram::kOneRoundFp32Clamped:
      return ForwardStretch<Format, SwigluProgram::kOneRoundFp32Clamped>(s);
  }
}

void ForwardEntry(const SwigluStretch& s) {
  s.type == FloatType::kBf16 ? ForwardOfFormat<Bf16>(s) : ForwardOfFormat<F16>(s);
}

void BackwardEntry(const SwigluVjpStretch& s) {
  s.type == FloatType::kBf16 ? BackwardStretch<Bf16>(s) : BackwardStretch<F16>(s);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {

HWY_EXPORT(ForwardEntry);
HWY_EXPORT(BackwardEntry);

void RunSwigluStretch(const SwigluStretch& stretch) { HWY_DYNAMIC_DISPATCH(ForwardEntry)(stretch); }

void RunSwigluVjpStretch(const SwigluVjpStretch& stretch) {
  HWY_DYNAMIC_DISPATCH(BackwardEntry)(stretch);
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
