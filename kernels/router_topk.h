#ifndef LOCKSTEP_KERNELS_ROUTER_TOPK_H_
#define LOCKSTEP_KERNELS_ROUTER_TOPK_H_

// Exact choice of experts, `router_topk/stable@v1` (kernels/SPECIFICATION.md, "Router"): scores
// from float32 router logits, the k best in a total order, and their weights.
//
// Example (softmax over all experts, renormalised):
//   RouterTopkParams p;
//   p.rows = tokens, p.experts = 128, p.topk = 8;
//   p.logits = logits, p.ids = ids, p.weights = weights;
//   p.renormalise = true;
//   LOCKSTEP_RETURN_IF_ERROR(RouterTopk(p));

#include <cstdint>

#include "absl/status/status.h"

namespace lockstep::kernels {

inline constexpr char kRouterTopkId[] = "router_topk/stable@v1";

enum class RouterScore : uint8_t {
  kSoftmax,  // of all experts (Qwen3.5-MoE)
  kSigmoid,  // of each expert (GLM)
};

struct RouterTopkParams {
  RouterScore score = RouterScore::kSoftmax;
  int64_t rows = 0;
  int64_t experts = 0;
  int64_t topk = 0;               // at most experts
  const float* logits = nullptr;  // [rows, experts], e.g. Gemm with out_type F32
  const float* bias = nullptr;    // [experts], optional: added to a score for the choice alone
  bool renormalise = false;       // weights are divided by their sum
  float scale = 1.0f;             // multiplies the weights last; finite
  int32_t* ids = nullptr;         // [rows, topk], best first
  float* weights = nullptr;       // [rows, topk], in the order of ids
  int threads = 1;
};

// InvalidArgument for a size, scale or pointer out of range.
absl::Status RouterTopk(const RouterTopkParams& params);

// The errors alone, nothing computed; the CUDA twin refuses the same.
absl::Status CheckRouterTopk(const RouterTopkParams& params);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_ROUTER_TOPK_H_
