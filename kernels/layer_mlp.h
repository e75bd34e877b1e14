#ifndef LOCKSTEP_KERNELS_LAYER_MLP_H_
#define LOCKSTEP_KERNELS_LAYER_MLP_H_

// Exact MLP and mixture-of-experts sites, composed of the exact programs
// (kernels/SPECIFICATION.md, "Sites and layers"): dense MLP one-round, routed experts two-round,
// shared expert one-round and sharded over the logical contributors, a leaf per contributor, a fold
// over them.
//
// Example, a GLM-5.2 site:
//   MoeSite site = Glm52MoeSite();
//   site.hidden = 6144, site.intermediate = site.shared_intermediate = 2048;
//   site.topk = 8, site.routed_scale = 2.5f;
//   MoeWeights w;
//   w.router = ..., w.router_bias = ..., w.shared = ...;
//   w.experts = StackedExperts(gate_up, down, experts, 2048, 6144);
//   absl::Status status = RunMoeSite(site, w, run, x, out);

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/layer_weights.h"
#include "kernels/moe.h"
#include "kernels/router_topk.h"
#include "kernels/swiglu.h"

namespace lockstep::kernels {

inline constexpr char kDenseMlpSiteId[] = "mlp_site/dense@v1";
inline constexpr char kQwen35MoeSiteId[] = "moe_site/qwen3_5@v1";
inline constexpr char kGlm52MoeSiteId[] = "moe_site/glm52@v1";

struct MlpWeights {
  LayerWeight gate;  // [I, H]
  LayerWeight up;    // [I, H]
  LayerWeight down;  // [H, I]
};

// `mlp_site/dense@v1`: x, out BF16 [rows, hidden], rows those of `run`; `out` is not x.
absl::Status RunDenseMlp(const MlpWeights& weights, int64_t hidden, int64_t intermediate,
                         const LayerRun& run, const uint16_t* x, uint16_t* out);

struct MoeSite {
  int64_t hidden = 0;
  int64_t intermediate = 0;         // of a routed expert
  int64_t shared_intermediate = 0;  // a multiple of `contributors`
  int64_t topk = 0;
  // Logical contributors: contributor o owns the experts from floor(o * E / contributors) up to the
  // next one's, and that share of the shared expert's intermediate. Part of the bytes; how many
  // ranks hold them is not.
  int64_t contributors = 1;
  RouterScore score = RouterScore::kSoftmax;
  bool renormalise = true;
  float routed_scale = 1.0f;  // the leaf's
  MoeLeafProgram leaf = MoeLeafProgram::kBf16Add;
  MoeFoldProgram fold = MoeFoldProgram::kBf16Tree;
};

// The family's router score, contributors and `local-partial v2`; sizes are left to set.
MoeSite Qwen35MoeSite();
MoeSite Glm52MoeSite();

struct MoeWeights {
  LayerWeight router;               // [E, H]
  LayerWeight router_bias;          // [E] BF16 or F32, optional: for the choice alone
  std::vector<MlpWeights> experts;  // E of them
  MlpWeights shared;                // of shared_intermediate
  LayerWeight shared_expert_gate;   // [1, H], optional: Qwen3.5-MoE's
};

// Experts out of the two stacked tensors [E, 2I, H] (gate first) and [E, H, I]; empty when the
// element counts do not fit.
std::vector<MlpWeights> StackedExperts(const LayerWeight& gate_up, const LayerWeight& down,
                                       int64_t experts, int64_t intermediate, int64_t hidden);

// x, out BF16 [rows, hidden]; `out` is not x.
absl::Status RunMoeSite(const MoeSite& site, const MoeWeights& weights, const LayerRun& run,
                        const uint16_t* x, uint16_t* out);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_LAYER_MLP_H_
