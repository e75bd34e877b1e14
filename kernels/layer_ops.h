#ifndef LOCKSTEP_KERNELS_LAYER_OPS_H_
#define LOCKSTEP_KERNELS_LAYER_OPS_H_

// The small programs of a decoder layer besides norm, product, attention, gated delta net and
// SwiGLU (kernels/SPECIFICATION.md, "Small programs of a layer"). Elements, rows or tokens depend
// on no others, so bytes depend neither on the batch nor on threads.
//
// Example:
//   SigmoidGateParams p;
//   p.rows = tokens, p.columns = heads * head_dim;
//   p.x = attended, p.gate = gate, p.out = attended;
//   absl::Status status = SigmoidGate(p);
//
// All return InvalidArgument for a missing pointer, a size below 1, an unsupported type or a value
// out of range, and FailedPrecondition when the thread's floating-point environment is not IEEE's.

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/short_conv.h"
#include "kernels/types.h"

namespace lockstep::kernels {

inline constexpr char kEmbeddingId[] = "embedding/row@v1";
inline constexpr char kResidualAddId[] = "residual_add/bf16@v1";
inline constexpr char kGdnDecayId[] = "gdn_decay/exp_softplus@v1";
inline constexpr char kGdnBetaId[] = "gdn_beta/sigmoid@v1";
inline constexpr char kL2NormId[] = "l2norm/chain@v1";
inline constexpr char kSigmoidGateId[] = "sigmoid_gate/one_round@v1";
inline constexpr char kGatedRmsNormId[] = "gated_rmsnorm/pair_tree_silu@v1";
inline constexpr char kShortConvSiluId[] = "short_conv_silu/causal4@v1";
inline constexpr char kMoeCombineId[] = "moe_combine/slot_chain@v1";

struct EmbeddingParams {
  int64_t rows = 0;
  int64_t vocab = 0;
  int64_t columns = 0;
  const int64_t* tokens = nullptr;   // [rows], each in [0, vocab)
  const uint16_t* weight = nullptr;  // BF16 [vocab, columns]
  uint16_t* out = nullptr;           // BF16 [rows, columns]
  int threads = 1;
};
absl::Status Embedding(const EmbeddingParams& params);

struct ResidualAddParams {
  int64_t rows = 0;
  int64_t columns = 0;
  const uint16_t* residual = nullptr;  // BF16 [rows, columns]
  const uint16_t* x = nullptr;         // BF16 [rows, columns]
  uint16_t* out = nullptr;             // BF16 [rows, columns]; may be either operand
  int threads = 1;
};
absl::Status ResidualAdd(const ResidualAddParams& params);

// Both gates of a gated delta net, from its projections a and b.
struct GdnGatesParams {
  int64_t tokens = 0;
  int64_t value_heads = 0;
  const uint16_t* a = nullptr;               // BF16 [tokens, value_heads]
  const uint16_t* b = nullptr;               // BF16 [tokens, value_heads]
  FloatType vector_type = FloatType::kBf16;  // of a_log and dt_bias: BF16 or F32
  const void* a_log = nullptr;               // [value_heads]
  const void* dt_bias = nullptr;             // [value_heads]
  float* g = nullptr;                        // [tokens, value_heads], log of the decay
  float* beta = nullptr;                     // [tokens, value_heads]
  int threads = 1;
};
absl::Status GdnGates(const GdnGatesParams& params);

// The normalisation of q and k that gdn/* do themselves, by itself.
struct L2NormParams {
  FloatType type = FloatType::kBf16;  // of x: BF16 or F32
  int64_t rows = 0;
  int64_t columns = 0;
  const void* x = nullptr;  // [rows, columns]
  float* out = nullptr;     // [rows, columns]
  int threads = 1;
};
absl::Status L2Norm(const L2NormParams& params);

struct SigmoidGateParams {
  int64_t rows = 0;
  int64_t columns = 0;
  const uint16_t* x = nullptr;     // BF16 [rows, columns]
  const uint16_t* gate = nullptr;  // BF16 [rows, columns], or [rows, 1] with gate_per_row
  bool gate_per_row = false;
  uint16_t* out = nullptr;  // BF16 [rows, columns]; may be x
  int threads = 1;
};
absl::Status SigmoidGate(const SigmoidGateParams& params);

struct GatedRmsNormParams {
  FloatType type = FloatType::kBf16;         // of x: BF16 or F32
  int64_t rows = 0;                          // tokens * value heads
  int64_t columns = 0;                       // the head's value dimension
  const void* x = nullptr;                   // [rows, columns]
  const void* weight = nullptr;              // [columns]
  FloatType weight_type = FloatType::kBf16;  // BF16 or F32
  const uint16_t* gate = nullptr;            // BF16 [rows, columns]
  float eps = 1e-6f;                         // finite, not negative
  uint16_t* out = nullptr;                   // BF16 [rows, columns]
  int threads = 1;
};
absl::Status GatedRmsNorm(const GatedRmsNormParams& params);

// ShortConv with `silu/ieee@v1` of the float32 sum before the one store; the parameters' meaning is
// ShortConv's.
absl::Status ShortConvSilu(const ShortConvParams& params);

// The weighted sum of the outputs of a token's experts, of those that lie in
// [first_expert, end_expert) only: an ordinal's routed partial.
struct MoeCombineParams {
  int64_t rows = 0;
  int64_t topk = 0;
  int64_t columns = 0;
  int64_t first_expert = 0;
  int64_t end_expert = 0;
  const int32_t* ids = nullptr;       // [rows, topk], RouterTopk's
  const float* weights = nullptr;     // [rows, topk]
  const uint16_t* outputs = nullptr;  // BF16 [rows, topk, columns], of slot j's expert
  uint16_t* out = nullptr;            // BF16 [rows, columns]
  int threads = 1;
};
absl::Status MoeCombine(const MoeCombineParams& params);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_LAYER_OPS_H_
