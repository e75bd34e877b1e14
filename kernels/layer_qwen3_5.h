#ifndef LOCKSTEP_KERNELS_LAYER_QWEN3_5_H_
#define LOCKSTEP_KERNELS_LAYER_QWEN3_5_H_

// Exact decoder layers of Qwen3.5, dense and MoE (kernels/SPECIFICATION.md, "Sites and layers"):
// a mixer (gated delta net or gated full attention) and an MLP site, each behind a zero-centred
// norm and added to the residual stream. Documents of a batch are packed; each keeps the bytes it
// has alone.
//
// Example:
//   Qwen35Layer layer;
//   layer.input_norm = ..., layer.post_attention_norm = ...;
//   layer.gdn = &gdn_weights, layer.mlp = &mlp_weights;
//   absl::Status status = RunQwen35Layer(sizes, layer, run, split, hidden);   // in place

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/gdn_cp.h"
#include "kernels/layer_mlp.h"
#include "kernels/layer_weights.h"

namespace lockstep::kernels {

inline constexpr char kQwen35GdnLayerId[] = "decoder_layer/qwen3_5_gdn@v1";
inline constexpr char kQwen35AttentionLayerId[] = "decoder_layer/qwen3_5_attention@v1";

struct Qwen35Sizes {
  int64_t hidden = 0;
  int64_t intermediate = 0;  // of the dense MLP
  int64_t heads = 0;         // full attention
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;  // even; int(head_dim * partial_rotary_factor)
  float rope_theta = 10000.0f;
  int64_t key_heads = 0;  // gated delta net
  int64_t value_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  float eps = 1e-6f;

  int64_t conv_channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
};

// linear_attn.*
struct GdnMixerWeights {
  LayerWeight in_proj_qkv;  // [2 * Hk * K + Hv * V, H]: q, k, v
  LayerWeight in_proj_z;    // [Hv * V, H]
  LayerWeight in_proj_a;    // [Hv, H]
  LayerWeight in_proj_b;    // [Hv, H]
  LayerWeight conv1d;       // [2 * Hk * K + Hv * V, 1, 4]
  LayerWeight a_log;        // [Hv] BF16 or F32, dt_bias of the same type
  LayerWeight dt_bias;      // [Hv]
  LayerWeight norm;         // [V] BF16 or F32
  LayerWeight out_proj;     // [H, Hv * V]
};

// self_attn.*
struct AttentionMixerWeights {
  LayerWeight q_proj;  // [heads * 2 * head_dim, H]: of each head the query, then its output gate
  LayerWeight k_proj;  // [kv_heads * head_dim, H]
  LayerWeight v_proj;  // [kv_heads * head_dim, H]
  LayerWeight q_norm;  // [head_dim] BF16 or F32
  LayerWeight k_norm;  // [head_dim] BF16 or F32
  LayerWeight o_proj;  // [H, heads * head_dim]
};

// How the gated delta net is spread over simulated ranks. Relay never changes the bytes of
// `gdn/chunk64@v1`; the canonical fold is another program beyond 1,024 tokens.
struct GdnSplit {
  GdnCpProgram program = GdnCpProgram::kRelay;
  int cp = 1;
};

// Cosines and sines of `rope/neox@v1`, enough for a run's longest document.
struct RopeTable {
  int64_t positions = 0;
  std::vector<float> cos;  // [positions, rotary_dim / 2]
  std::vector<float> sin;
};
absl::StatusOr<RopeTable> MakeRope(const Qwen35Sizes& sizes, int64_t positions, int threads);

// The mixers alone. x (the normed rows), out BF16 [rows, hidden]; `out` is not x. `split` absent:
// `gdn/chunk64@v1` on each whole document.
absl::Status RunGdnMixer(const Qwen35Sizes& sizes, const GdnMixerWeights& weights,
                         const LayerRun& run, const std::optional<GdnSplit>& split,
                         const uint16_t* x, uint16_t* out);
absl::Status RunAttentionMixer(const Qwen35Sizes& sizes, const AttentionMixerWeights& weights,
                               const LayerRun& run, const RopeTable& rope, const uint16_t* x,
                               uint16_t* out);

// One mixer and one MLP site are set, the others null.
struct Qwen35Layer {
  LayerWeight input_norm;           // [H] BF16 or F32
  LayerWeight post_attention_norm;  // [H] BF16 or F32
  const GdnMixerWeights* gdn = nullptr;
  const AttentionMixerWeights* attention = nullptr;
  const MlpWeights* mlp = nullptr;
  const MoeSite* moe_site = nullptr;  // with moe
  const MoeWeights* moe = nullptr;
};

// hidden BF16 [rows, sizes.hidden], in place. `rope` is read by attention layers only.
absl::Status RunQwen35Layer(const Qwen35Sizes& sizes, const Qwen35Layer& layer, const LayerRun& run,
                            const RopeTable& rope, const std::optional<GdnSplit>& split,
                            uint16_t* hidden);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_LAYER_QWEN3_5_H_
