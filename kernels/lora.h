#ifndef LOCKSTEP_KERNELS_LORA_H_
#define LOCKSTEP_KERNELS_LORA_H_

// Exact low-rank adapters (kernels/SPECIFICATION.md, "LoRA"): the active value path
// `lora/active@v2` of one projection and of a whole SwiGLU MLP, tensor-parallel or not, and the
// folded weight `lora/merged@v1`. The backward is in lora_vjp.h. Everything is BF16; factors may
// be float32 masters, of which the program sees the BF16 view.
//
// Example (a dense MLP with rank-16 adapters):
//   LoraMlpParams p;
//   p.rows = tokens, p.hidden = 4096, p.intermediate = 12288, p.rank = 16;
//   p.x = x, p.gate = wg, p.up = wu, p.down = wd;
//   p.gate_adapter = {ag, bg}, p.up_adapter = {au, bu}, p.down_adapter = {ad, bd};
//   p.scale = alpha / rank, p.out = y;
//   LOCKSTEP_RETURN_IF_ERROR(LoraMlp(p));

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/gate_table.h"
#include "kernels/types.h"

namespace lockstep::kernels {

inline constexpr char kLoraActiveId[] = "lora/active@v2";
inline constexpr char kLoraMergedId[] = "lora/merged@v1";

// The BF16 view of float32 masters: each rounded once.
void ViewAsBf16(const float* masters, size_t count, uint16_t* view);

// One projection: out = round(float(round(x W^T)) + scale * (round(x A^T) B^T)).
struct LoraLinearParams {
  int64_t rows = 0;
  int64_t in_features = 0;
  int64_t out_features = 0;
  int64_t rank = 0;
  const uint16_t* x = nullptr;       // [rows, in_features]
  const uint16_t* weight = nullptr;  // [out_features, in_features]
  const uint16_t* a = nullptr;       // [rank, in_features]
  const uint16_t* b = nullptr;       // [out_features, rank], contiguous
  float scale = 1.0f;                // alpha / rank, finite
  uint16_t* out = nullptr;           // [rows, out_features]
  // Elements between consecutive rows; 0 means contiguous.
  int64_t x_row_stride = 0;
  int64_t weight_row_stride = 0;
  int64_t a_row_stride = 0;
  int64_t out_row_stride = 0;
  int threads = 1;
};

// InvalidArgument for a size below 1, a null pointer, a short stride or a scale that is not finite.
absl::Status LoraLinear(const LoraLinearParams& params);

// An adapter's factors, of the type that LoraMlpParams::factor_type names.
struct LoraFactors {
  const void* a = nullptr;  // [rank, inputs]
  const void* b = nullptr;  // [outputs, rank]
};

// down(swiglu(gate(x), up(x))) with an adapter on each projection. Ordinal o of `tp` owns rows
// [o, o + 1) * intermediate / tp of gate, up and their b, and those columns of down and its a.
struct LoraMlpParams {
  int64_t rows = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t rank = 0;
  int64_t tp = 1;                            // divides intermediate
  const uint16_t* x = nullptr;               // [rows, hidden]
  const uint16_t* gate = nullptr;            // [intermediate, hidden]
  const uint16_t* up = nullptr;              // [intermediate, hidden]
  const uint16_t* down = nullptr;            // [hidden, intermediate]
  FloatType factor_type = FloatType::kBf16;  // BF16, or F32 masters
  LoraFactors gate_adapter;                  // [rank, hidden], [intermediate, rank]
  LoraFactors up_adapter;                    // [rank, hidden], [intermediate, rank]
  LoraFactors down_adapter;                  // [rank, intermediate], [hidden, rank]
  float scale = 1.0f;                        // alpha / rank, finite
  const GateTable* silu = nullptr;           // BF16 realisation; null computes silu/ieee@v1
  uint16_t* out = nullptr;                   // [rows, hidden]
  uint16_t* partials = nullptr;              // [tp, rows, hidden], optional: what is folded to out
  // Saved for the backward, optional: gate(x), up(x) and their SwiGLU, each [rows, intermediate].
  uint16_t* saved_gate = nullptr;
  uint16_t* saved_up = nullptr;
  uint16_t* saved_activated = nullptr;
  int threads = 1;
};

// Also InvalidArgument when tp does not divide intermediate or a type is not supported.
absl::Status LoraMlp(const LoraMlpParams& params);

// out = round(float(weight) + scale * (B A)), the weight that is synchronised.
struct LoraMergeParams {
  int64_t out_features = 0;
  int64_t in_features = 0;
  int64_t rank = 0;
  const uint16_t* weight = nullptr;          // [out_features, in_features]
  FloatType factor_type = FloatType::kBf16;  // BF16, or F32 masters
  LoraFactors factors;                       // [rank, in_features], [out_features, rank]
  float scale = 1.0f;
  uint16_t* out = nullptr;  // [out_features, in_features]; may be weight
  int threads = 1;
};
absl::Status LoraMerge(const LoraMergeParams& params);

// The errors alone, nothing computed; the CUDA twins refuse the same.
absl::Status CheckLoraLinear(const LoraLinearParams& params);
absl::Status CheckLoraMerge(const LoraMergeParams& params);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_LORA_H_
