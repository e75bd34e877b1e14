#include "kernels/scorer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/layer_ops.h"
#include "kernels/lm_head.h"
#include "kernels/rmsnorm.h"

namespace lockstep::kernels {
namespace {

using Rows = std::vector<uint16_t>;  // BF16, dense

struct Wanted {
  const char* name;
  int64_t elements;
  bool f32_too;
  LayerWeight* weight;
};

absl::Status LookUp(const WeightLookup& lookup, const std::string& prefix,
                    absl::Span<const Wanted> all) {
  for (const Wanted& wanted : all) {
    const std::string name = absl::StrCat(prefix, wanted.name);
    absl::StatusOr<LayerWeight> found = lookup(name);
    if (!found.ok()) return found.status();
    absl::Status status = CheckLayerWeight("scorer", name, *found, wanted.elements, wanted.f32_too);
    if (!status.ok()) return status;
    if (reinterpret_cast<uintptr_t>(found->data) % SizeOf(found->type) != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "scorer: tensor '", name, "' is not aligned to its type; copy it into aligned memory"));
    }
    *wanted.weight = *found;
  }
  return absl::OkStatus();
}

absl::Status CheckConfig(const Qwen35DenseConfig& config) {
  const Qwen35Sizes& s = config.sizes;
  for (const int64_t size : {s.hidden, s.intermediate, config.vocab}) {
    if (size < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("scorer: expected hidden, intermediate and vocab of at least 1, got ",
                       s.hidden, ", ", s.intermediate, ", ", config.vocab));
    }
  }
  if (config.layers.empty()) {
    return absl::InvalidArgumentError("scorer: expected at least one layer");
  }
  return absl::OkStatus();
}

// A batch's tokens, packed, and where its completions lie.
struct PackedBatch {
  std::vector<int64_t> document_tokens;
  std::vector<int64_t> tokens;
  std::vector<int64_t> scored_rows;  // the row whose hidden state predicts
  std::vector<int64_t> selected;     // this token
};

absl::StatusOr<PackedBatch> Pack(absl::Span<const ScoredSequence> batch) {
  if (batch.empty()) {
    return absl::InvalidArgumentError(
        "scorer: expected at least one sequence; an empty batch is refused at an exact site");
  }
  PackedBatch packed;
  for (const ScoredSequence& sequence : batch) {
    if (sequence.prompt.empty() || sequence.completion.empty()) {
      return absl::InvalidArgumentError(
          "scorer: expected a prompt and a completion of at least one token each");
    }
    const int64_t first = static_cast<int64_t>(packed.tokens.size());
    const int64_t prompt = static_cast<int64_t>(sequence.prompt.size());
    for (const auto* part : {&sequence.prompt, &sequence.completion}) {
      packed.tokens.insert(packed.tokens.end(), part->begin(), part->end());
    }
    for (size_t i = 0; i < sequence.completion.size(); ++i) {
      packed.scored_rows.push_back(first + prompt - 1 + static_cast<int64_t>(i));
      packed.selected.push_back(sequence.completion[i]);
    }
    packed.document_tokens.push_back(static_cast<int64_t>(packed.tokens.size()) - first);
  }
  return packed;
}

}  // namespace

absl::Status Scorer::LookUpMixer(size_t index, const WeightLookup& lookup, Layer& layer) const {
  const Qwen35Sizes& s = config_.sizes;
  const std::string prefix = absl::StrCat(config_.prefix, "layers.", index, ".");
  const int64_t values = s.value_heads * s.value_dim;
  const int64_t queries = s.heads * s.head_dim;
  const int64_t keys = s.kv_heads * s.head_dim;
  if (config_.layers[index] == Qwen35LayerKind::kLinearAttention) {
    GdnMixerWeights& w = layer.gdn.emplace();
    return LookUp(lookup, absl::StrCat(prefix, "linear_attn."),
                  {{"in_proj_qkv.weight", s.conv_channels() * s.hidden, false, &w.in_proj_qkv},
                   {"in_proj_z.weight", values * s.hidden, false, &w.in_proj_z},
                   {"in_proj_a.weight", s.value_heads * s.hidden, false, &w.in_proj_a},
                   {"in_proj_b.weight", s.value_heads * s.hidden, false, &w.in_proj_b},
                   {"conv1d.weight", s.conv_channels() * kShortConvWidth, true, &w.conv1d},
                   {"A_log", s.value_heads, true, &w.a_log},
                   {"dt_bias", s.value_heads, true, &w.dt_bias},
                   {"norm.weight", s.value_dim, true, &w.norm},
                   {"out_proj.weight", s.hidden * values, false, &w.out_proj}});
  }
  AttentionMixerWeights& w = layer.attention.emplace();
  return LookUp(lookup, absl::StrCat(prefix, "self_attn."),
                {{"q_proj.weight", 2 * queries * s.hidden, false, &w.q_proj},
                 {"k_proj.weight", keys * s.hidden, false, &w.k_proj},
                 {"v_proj.weight", keys * s.hidden, false, &w.v_proj},
                 {"q_norm.weight", s.head_dim, true, &w.q_norm},
                 {"k_norm.weight", s.head_dim, true, &w.k_norm},
                 {"o_proj.weight", s.hidden * queries, false, &w.o_proj}});
}

absl::Status Scorer::LookUpLayer(size_t index, const WeightLookup& lookup) {
  Layer layer;
  if (absl::Status status = LookUpMixer(index, lookup, layer); !status.ok()) return status;
  const int64_t hidden = config_.sizes.hidden;
  const int64_t mlp = hidden * config_.sizes.intermediate;
  absl::Status status =
      LookUp(lookup, absl::StrCat(config_.prefix, "layers.", index, "."),
             {{"input_layernorm.weight", hidden, true, &layer.input_norm},
              {"post_attention_layernorm.weight", hidden, true, &layer.post_attention_norm},
              {"mlp.gate_proj.weight", mlp, false, &layer.mlp.gate},
              {"mlp.up_proj.weight", mlp, false, &layer.mlp.up},
              {"mlp.down_proj.weight", mlp, false, &layer.mlp.down}});
  if (status.ok()) layers_.push_back(std::move(layer));
  return status;
}

absl::StatusOr<Scorer> Scorer::Create(const Qwen35DenseConfig& config, const WeightLookup& lookup) {
  if (absl::Status status = CheckConfig(config); !status.ok()) return status;
  Scorer scorer(config);
  const int64_t table = config.vocab * config.sizes.hidden;
  absl::Status status = LookUp(lookup, config.prefix,
                               {{"embed_tokens.weight", table, false, &scorer.embedding_},
                                {"norm.weight", config.sizes.hidden, true, &scorer.final_norm_}});
  if (!status.ok()) return status;
  scorer.head_ = scorer.embedding_;
  if (!config.tied_embeddings) {
    status = LookUp(lookup, "", {{"lm_head.weight", table, false, &scorer.head_}});
    if (!status.ok()) return status;
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    status = scorer.LookUpLayer(i, lookup);
    if (!status.ok()) return status;
  }
  return scorer;
}

absl::StatusOr<Rows> Scorer::RunLayers(absl::Span<const int64_t> tokens, const LayerRun& run,
                                       const ScoreOptions& options) const {
  const int64_t longest = *std::max_element(run.document_tokens.begin(), run.document_tokens.end());
  absl::StatusOr<RopeTable> rope = RopeTable{};
  if (std::count(config_.layers.begin(), config_.layers.end(), Qwen35LayerKind::kFullAttention)) {
    rope = MakeRope(config_.sizes, longest, options.threads);
    if (!rope.ok()) return rope.status();
  }
  Rows hidden(static_cast<size_t>(run.rows() * config_.sizes.hidden));
  EmbeddingParams embed;
  embed.rows = run.rows(), embed.vocab = config_.vocab, embed.columns = config_.sizes.hidden;
  embed.tokens = tokens.data(), embed.weight = embedding_.bf16(), embed.out = hidden.data();
  embed.threads = options.threads;
  if (absl::Status status = Embedding(embed); !status.ok()) return status;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    Qwen35Layer view;
    view.input_norm = layer.input_norm, view.post_attention_norm = layer.post_attention_norm;
    view.gdn = layer.gdn ? &*layer.gdn : nullptr;
    view.attention = layer.attention ? &*layer.attention : nullptr;
    view.mlp = &layer.mlp;
    LayerRun layer_run = run;
    if (options.observe) {
      layer_run.observe = [&](absl::string_view component, const LayerTensor& tensor) {
        options.observe(absl::StrCat("layers.", i, ".", component), tensor);
      };
    }
    absl::Status status =
        RunQwen35Layer(config_.sizes, view, layer_run, *rope, options.split, hidden.data());
    if (!status.ok()) return status;
  }
  return hidden;
}

absl::StatusOr<std::vector<std::vector<float>>> Scorer::Score(
    absl::Span<const ScoredSequence> batch, const ScoreOptions& options) const {
  const absl::StatusOr<PackedBatch> packed = Pack(batch);
  if (!packed.ok()) return packed.status();
  LayerRun run;
  run.document_tokens = packed->document_tokens;
  run.silu = options.silu, run.threads = options.threads;
  const absl::StatusOr<Rows> hidden = RunLayers(packed->tokens, run, options);
  if (!hidden.ok()) return hidden.status();
  const size_t columns = static_cast<size_t>(config_.sizes.hidden);
  Rows scored(packed->scored_rows.size() * columns);
  for (size_t i = 0; i < packed->scored_rows.size(); ++i) {
    std::copy_n(hidden->data() + static_cast<size_t>(packed->scored_rows[i]) * columns, columns,
                scored.data() + i * columns);
  }
  RmsNormParams norm;
  norm.rows = static_cast<int64_t>(packed->scored_rows.size());
  norm.columns = config_.sizes.hidden;
  norm.x = scored.data(), norm.out = scored.data();
  norm.weight = final_norm_.data, norm.weight_type = final_norm_.type;
  norm.zero_centered = true, norm.eps = config_.sizes.eps;
  norm.threads = options.threads;
  if (absl::Status status = RmsNorm(norm); !status.ok()) return status;
  if (options.observe) {
    options.observe("final_norm", {FloatType::kBf16, norm.rows, norm.columns, scored.data()});
  }
  std::vector<float> logprobs(packed->selected.size());
  LmHeadParams head;
  head.rows = norm.rows, head.hidden_size = norm.columns, head.vocab = config_.vocab;
  head.hidden = scored.data(), head.weight = head_.data;
  head.tokens = packed->selected.data(), head.logprob = logprobs.data();
  head.threads = options.threads;
  if (absl::Status status = SelectedLogprob(head); !status.ok()) return status;
  std::vector<std::vector<float>> result;
  auto at = logprobs.begin();
  for (const ScoredSequence& sequence : batch) {
    const auto end = at + static_cast<ptrdiff_t>(sequence.completion.size());
    result.emplace_back(at, end);
    at = end;
  }
  return result;
}

}  // namespace lockstep::kernels
