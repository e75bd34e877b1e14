#include "kernels/lora_factors.h"

#include <cmath>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/fp_environment.h"

namespace lockstep::kernels {

absl::Status CheckLoraScale(float scale) {
  if (std::isfinite(scale)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("lora: expected a finite scale, got ", scale));
}

absl::Status CheckLoraFactorType(FloatType type) {
  if (type == FloatType::kBf16 || type == FloatType::kF32) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("lora: expected factors as BF16 or F32, got ", Name(type)));
}

absl::Status CheckLoraMlp(const LoraMlpParams& p) {
  if (p.rows < 1 || p.hidden < 1 || p.intermediate < 1 || p.rank < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "lora_mlp: expected x [T,H], gate and up [I,H], down [H,I], a_* [r,*] and b_* [*,r] with "
        "T, H, I and r of at least 1, got T=",
        p.rows, " H=", p.hidden, " I=", p.intermediate, " r=", p.rank));
  }
  if (p.tp < 1 || p.intermediate % p.tp != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("lora_mlp: expected a tensor-parallel degree that divides I=", p.intermediate,
                     ", got ", p.tp));
  }
  if (p.x == nullptr || p.gate == nullptr || p.up == nullptr || p.down == nullptr) {
    return absl::InvalidArgumentError("lora_mlp: expected non-null x, gate, up and down");
  }
  for (const LoraFactors* f : {&p.gate_adapter, &p.up_adapter, &p.down_adapter}) {
    if (f->a == nullptr || f->b == nullptr) {
      return absl::InvalidArgumentError(
          "lora_mlp: expected non-null a_gate, b_gate, a_up, b_up, a_down and b_down");
    }
  }
  if (absl::Status status = CheckLoraFactorType(p.factor_type); !status.ok()) return status;
  if (absl::Status status = CheckLoraScale(p.scale); !status.ok()) return status;
  return CheckFpEnvironment();
}

Bf16Factors::Bf16Factors(const LoraFactors& factors, FloatType type, size_t a_count,
                         size_t b_count) {
  if (type == FloatType::kBf16) {
    a = static_cast<const uint16_t*>(factors.a);
    b = static_cast<const uint16_t*>(factors.b);
    return;
  }
  view_.resize(a_count + b_count);
  ViewAsBf16(static_cast<const float*>(factors.a), a_count, view_.data());
  ViewAsBf16(static_cast<const float*>(factors.b), b_count, view_.data() + a_count);
  a = view_.data();
  b = view_.data() + a_count;
}

LoraMlpFactors::LoraMlpFactors(const LoraMlpParams& p)
    : gate(p.gate_adapter, p.factor_type, static_cast<size_t>(p.rank * p.hidden),
           static_cast<size_t>(p.intermediate * p.rank)),
      up(p.up_adapter, p.factor_type, static_cast<size_t>(p.rank * p.hidden),
         static_cast<size_t>(p.intermediate * p.rank)),
      down(p.down_adapter, p.factor_type, static_cast<size_t>(p.rank * p.intermediate),
           static_cast<size_t>(p.hidden * p.rank)) {}

}  // namespace lockstep::kernels
