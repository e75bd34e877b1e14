#include "kernels/layer_qwen3_5.h"

#include "kernels/layer_ops.h"
#include "kernels/rmsnorm.h"

namespace lockstep::kernels {
namespace {

using Rows = std::vector<uint16_t>;  // BF16, dense

// Zero-centred norm of `x`, or of round(residual + x), which replaces `residual`.
absl::Status RunNorm(const Qwen35Sizes& sizes, const LayerWeight& weight, const LayerRun& run,
                     const uint16_t* x, uint16_t* residual, uint16_t* out) {
  RmsNormParams p;
  p.rows = run.rows(), p.columns = sizes.hidden;
  p.x = x, p.residual = residual, p.residual_out = residual;
  p.weight = weight.data, p.weight_type = weight.type;
  p.zero_centered = true, p.eps = sizes.eps;
  p.out = out, p.threads = run.threads;
  return RmsNorm(p);
}

absl::Status RunMixer(const Qwen35Sizes& sizes, const Qwen35Layer& layer, const LayerRun& run,
                      const RopeTable& rope, const std::optional<GdnSplit>& split,
                      const uint16_t* x, uint16_t* out) {
  if (layer.gdn != nullptr) return RunGdnMixer(sizes, *layer.gdn, run, split, x, out);
  return RunAttentionMixer(sizes, *layer.attention, run, rope, x, out);
}

absl::Status RunMlpSite(const Qwen35Sizes& sizes, const Qwen35Layer& layer, const LayerRun& run,
                        const uint16_t* x, uint16_t* out) {
  if (layer.moe != nullptr) return RunMoeSite(*layer.moe_site, *layer.moe, run, x, out);
  return RunDenseMlp(*layer.mlp, sizes.hidden, sizes.intermediate, run, x, out);
}

absl::Status CheckLayer(const Qwen35Sizes& sizes, const Qwen35Layer& layer, const LayerRun& run) {
  constexpr char kOp[] = "decoder_layer";
  if (absl::Status s = CheckLayerRun(run); !s.ok()) return s;
  if ((layer.gdn != nullptr) == (layer.attention != nullptr) ||
      (layer.mlp != nullptr) == (layer.moe != nullptr) ||
      (layer.moe != nullptr) != (layer.moe_site != nullptr)) {
    return absl::InvalidArgumentError(
        "decoder_layer: expected one mixer (gdn or attention) and one MLP site (mlp, or moe with "
        "moe_site)");
  }
  absl::Status s = CheckLayerWeight(kOp, "input_norm", layer.input_norm, sizes.hidden, true);
  if (!s.ok()) return s;
  return CheckLayerWeight(kOp, "post_attention_norm", layer.post_attention_norm, sizes.hidden,
                          true);
}

}  // namespace

absl::Status RunQwen35Layer(const Qwen35Sizes& sizes, const Qwen35Layer& layer, const LayerRun& run,
                            const RopeTable& rope, const std::optional<GdnSplit>& split,
                            uint16_t* hidden) {
  if (absl::Status s = CheckLayer(sizes, layer, run); !s.ok()) return s;
  const int64_t rows = run.rows();
  const auto observe = [&](absl::string_view component, const uint16_t* data) {
    run.Observe(component, FloatType::kBf16, rows, sizes.hidden, data);
  };
  Rows normed(static_cast<size_t>(rows * sizes.hidden));
  Rows branch(normed.size());
  absl::Status status = RunNorm(sizes, layer.input_norm, run, hidden, nullptr, normed.data());
  if (!status.ok()) return status;
  observe("input_norm", normed.data());
  status = RunMixer(sizes, layer, run, rope, split, normed.data(), branch.data());
  if (!status.ok()) return status;
  observe("mixer", branch.data());
  status = RunNorm(sizes, layer.post_attention_norm, run, branch.data(), hidden, normed.data());
  if (!status.ok()) return status;
  observe("post_attention_norm", normed.data());
  status = RunMlpSite(sizes, layer, run, normed.data(), branch.data());
  if (!status.ok()) return status;
  ResidualAddParams add;
  add.rows = rows, add.columns = sizes.hidden;
  add.residual = hidden, add.x = branch.data(), add.out = hidden;
  add.threads = run.threads;
  status = ResidualAdd(add);
  if (!status.ok()) return status;
  observe("layer_output", hidden);
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
