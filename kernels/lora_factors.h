#ifndef LOCKSTEP_KERNELS_LORA_FACTORS_H_
#define LOCKSTEP_KERNELS_LORA_FACTORS_H_

// What the adapter programs' forward and backward share: their checks, and the factors as the
// BF16 that every product reads.
//
// Example:
//   if (absl::Status s = CheckLoraMlp(p); !s.ok()) return s;
//   const LoraMlpFactors factors(p);   // factors.gate.a is BF16, whatever p.factor_type

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/lora.h"
#include "kernels/types.h"

namespace lockstep::kernels {

absl::Status CheckLoraScale(float scale);
absl::Status CheckLoraFactorType(FloatType type);

// Everything but the outputs, which forward and backward need differently.
absl::Status CheckLoraMlp(const LoraMlpParams& params);

// Borrows BF16 factors; holds the view of float32 ones.
struct Bf16Factors {
  Bf16Factors(const LoraFactors& factors, FloatType type, size_t a_count, size_t b_count);
  Bf16Factors(const Bf16Factors&) = delete;
  Bf16Factors& operator=(const Bf16Factors&) = delete;

  const uint16_t* a;
  const uint16_t* b;

 private:
  std::vector<uint16_t> view_;
};

struct LoraMlpFactors {
  explicit LoraMlpFactors(const LoraMlpParams& params);

  const Bf16Factors gate;
  const Bf16Factors up;
  const Bf16Factors down;
};

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_LORA_FACTORS_H_
