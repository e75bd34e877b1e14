#ifndef LOCKSTEP_KERNELS_LORA_VJP_H_
#define LOCKSTEP_KERNELS_LORA_VJP_H_

// The backward of the adapted MLP, `lora_vjp/straight_through@v1` (kernels/SPECIFICATION.md,
// "LoRA"). Rounding is passed straight through; factor gradients are float32, those of the factors'
// BF16 view (and so of float32 masters); the activation's derivative is
// `swiglu_vjp/analytic@v1` on the saved gate and up.
//
// Example, after LoraMlp(forward) with the saved_* outputs set:
//   LoraMlpVjpParams p;
//   p.forward = forward;
//   p.dout = dy, p.dx = dx;
//   p.gate_adapter = {da_gate, db_gate}, p.up_adapter = {da_up, db_up};
//   p.down_adapter = {da_down, db_down};
//   LOCKSTEP_RETURN_IF_ERROR(LoraMlpVjp(p));

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/lora.h"

namespace lockstep::kernels {

inline constexpr char kLoraVjpId[] = "lora_vjp/straight_through@v1";

// float32 gradients, of the shapes in LoraMlpParams.
struct LoraFactorGradients {
  float* a = nullptr;
  float* b = nullptr;
};

struct LoraMlpVjpParams {
  LoraMlpParams forward;  // with saved_gate, saved_up and saved_activated as LoraMlp left them
  const uint16_t* dout = nullptr;    // BF16 [rows, hidden]
  uint16_t* dx = nullptr;            // BF16 [rows, hidden]
  LoraFactorGradients gate_adapter;  // all six are written
  LoraFactorGradients up_adapter;
  LoraFactorGradients down_adapter;
  // Float32 gradients of the base weights, of their shapes; null where the base is frozen.
  float* dgate = nullptr;
  float* dup = nullptr;
  float* ddown = nullptr;
};

// InvalidArgument as for LoraMlp and for a missing saved tensor or gradient.
absl::Status LoraMlpVjp(const LoraMlpVjpParams& params);

// The errors alone, nothing computed; the CUDA twin refuses the same.
absl::Status CheckLoraMlpVjp(const LoraMlpVjpParams& params);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_LORA_VJP_H_
