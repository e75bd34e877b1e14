#include "policy/checkpoint_families.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

// Collects what one layer is expected to have.
class Layer {
 public:
  Layer(const CheckpointConfig& config, const CheckpointNames& names, uint64_t index,
        std::vector<ExpectedTensor>& out)
      : config_(config),
        names_(names),
        prefix_(absl::StrCat(names.text_prefix(), "layers.", index, ".")),
        hidden_(config.Size("hidden_size")),
        out_(out) {}

  void Add(absl::string_view name, std::vector<uint64_t> shape, bool required = true) {
    out_.push_back({absl::StrCat(prefix_, name), std::move(shape), required});
  }

  void Linear(absl::string_view module, uint64_t out_features, uint64_t in_features,
              bool bias = false) {
    Add(absl::StrCat(module, ".weight"), {out_features, in_features});
    if (bias) Add(absl::StrCat(module, ".bias"), {out_features});
  }

  void Norms() {
    Add("input_layernorm.weight", {hidden_});
    Add("post_attention_layernorm.weight", {hidden_});
  }

  void Mlp(absl::string_view module, uint64_t intermediate) {
    Linear(absl::StrCat(module, ".gate_proj"), intermediate, hidden_);
    Linear(absl::StrCat(module, ".up_proj"), intermediate, hidden_);
    Linear(absl::StrCat(module, ".down_proj"), hidden_, intermediate);
  }

  void Experts(uint64_t experts, uint64_t intermediate) {
    const bool separate =
        names_.Find(absl::StrCat(prefix_, "mlp.experts.0.down_proj.weight")) != nullptr;
    if (!separate) {
      Add("mlp.experts.gate_up_proj", {experts, SizeProduct(2, intermediate), hidden_});
      Add("mlp.experts.down_proj", {experts, hidden_, intermediate});
      return;
    }
    for (uint64_t expert = 0; expert < experts && out_.size() <= kMaxTensors; ++expert) {
      Mlp(absl::StrCat("mlp.experts.", expert), intermediate);
    }
  }

  void GatedAttention();
  void GatedDeltaNet();
  void LatentAttention(bool indexer_required);

 private:
  const CheckpointConfig& config_;
  const CheckpointNames& names_;
  const std::string prefix_;
  const uint64_t hidden_;
  std::vector<ExpectedTensor>& out_;
};

void Layer::GatedAttention() {
  const uint64_t head_dim = config_.Size("head_dim");
  const uint64_t queries = SizeProduct(config_.Size("num_attention_heads"), head_dim);
  const uint64_t keys = SizeProduct(config_.Size("num_key_value_heads"), head_dim);
  const bool bias = config_.Flag("attention_bias", false);
  // The output gate is the second half of each head's query projection.
  const uint64_t gated = config_.Flag("attn_output_gate", true) ? SizeProduct(2, queries) : queries;
  Linear("self_attn.q_proj", gated, hidden_, bias);
  Linear("self_attn.k_proj", keys, hidden_, bias);
  Linear("self_attn.v_proj", keys, hidden_, bias);
  Linear("self_attn.o_proj", hidden_, queries, bias);
  Add("self_attn.q_norm.weight", {head_dim});
  Add("self_attn.k_norm.weight", {head_dim});
}

void Layer::GatedDeltaNet() {
  const uint64_t value_heads = config_.Size("linear_num_value_heads");
  const uint64_t value_dim = config_.Size("linear_value_head_dim");
  const uint64_t keys =
      SizeProduct(config_.Size("linear_num_key_heads"), config_.Size("linear_key_head_dim"));
  const uint64_t values = SizeProduct(value_heads, value_dim);
  const uint64_t mixed = SizeSum(SizeProduct(2, keys), values);  // q, k and v
  Linear("linear_attn.in_proj_qkv", mixed, hidden_);
  Linear("linear_attn.in_proj_z", values, hidden_);
  Linear("linear_attn.in_proj_a", value_heads, hidden_);
  Linear("linear_attn.in_proj_b", value_heads, hidden_);
  Add("linear_attn.conv1d.weight", {mixed, 1, config_.Size("linear_conv_kernel_dim")});
  Add("linear_attn.A_log", {value_heads});
  Add("linear_attn.dt_bias", {value_heads});
  Add("linear_attn.norm.weight", {value_dim});
  Linear("linear_attn.out_proj", hidden_, values);
}

void Layer::LatentAttention(bool indexer_required) {
  const uint64_t heads = config_.Size("num_attention_heads");
  const uint64_t nope = config_.Size("qk_nope_head_dim");
  const uint64_t rope = config_.Size("qk_rope_head_dim");
  const uint64_t value_dim = config_.Size("v_head_dim");
  const uint64_t query_rank = config_.Size("q_lora_rank");
  const uint64_t key_rank = config_.Size("kv_lora_rank");
  const bool bias = config_.Flag("attention_bias", false);
  Linear("self_attn.q_a_proj", query_rank, hidden_, bias);
  Add("self_attn.q_a_layernorm.weight", {query_rank});
  Linear("self_attn.q_b_proj", SizeProduct(heads, SizeSum(nope, rope)), query_rank);
  Linear("self_attn.kv_a_proj_with_mqa", SizeSum(key_rank, rope), hidden_, bias);
  Add("self_attn.kv_a_layernorm.weight", {key_rank});
  Linear("self_attn.kv_b_proj", SizeProduct(heads, SizeSum(nope, value_dim)), key_rank);
  Linear("self_attn.o_proj", hidden_, SizeProduct(heads, value_dim), bias);
  const uint64_t index_heads = config_.Size("index_n_heads");
  const uint64_t index_dim = config_.Size("index_head_dim");
  Add("self_attn.indexer.wq_b.weight", {SizeProduct(index_heads, index_dim), query_rank},
      indexer_required);
  Add("self_attn.indexer.wk.weight", {index_dim, hidden_}, indexer_required);
  Add("self_attn.indexer.k_norm.weight", {index_dim}, indexer_required);
  Add("self_attn.indexer.k_norm.bias", {index_dim}, indexer_required);
  Add("self_attn.indexer.weights_proj.weight", {index_heads, hidden_}, indexer_required);
}

// The released interval of full attention, where a config states neither list nor interval.
constexpr uint64_t kDefaultFullAttentionInterval = 4;

bool IsQwen35(const CheckpointConfig& config) {
  return config.model_type == "qwen3_5" || config.model_type == "qwen3_5_text" ||
         config.model_type == "qwen3_5_moe" || config.model_type == "qwen3_5_moe_text";
}

void Qwen35Layer(const CheckpointConfig& config, uint64_t i, Layer& layer) {
  uint64_t interval = config.Size("full_attention_interval");
  if (interval == kAnySize) interval = kDefaultFullAttentionInterval;
  const bool full = i < config.layer_types.size() ? config.layer_types[i] == "full_attention"
                                                  : (i + 1) % interval == 0;
  layer.Norms();
  if (full) {
    layer.GatedAttention();
  } else {
    layer.GatedDeltaNet();
  }
  const uint64_t experts = config.Size("num_experts");
  if (experts == kAnySize && !absl::StrContains(config.model_type, "_moe")) {
    layer.Mlp("mlp", config.Size("intermediate_size"));
    return;
  }
  const uint64_t hidden = config.Size("hidden_size");
  layer.Linear("mlp.gate", experts, hidden);
  layer.Experts(experts, config.Size("moe_intermediate_size"));
  layer.Mlp("mlp.shared_expert", config.Size("shared_expert_intermediate_size"));
  layer.Linear("mlp.shared_expert_gate", 1, hidden);
}

void GlmMoeDsaLayer(const CheckpointConfig& config, uint64_t i, Layer& layer) {
  layer.Norms();
  // A layer that shares the index of the one before may come without an indexer of its own.
  layer.LatentAttention(i >= config.indexer_types.size() || config.indexer_types[i] != "shared");
  if (!config.SparseLayer(i)) {
    layer.Mlp("mlp", config.Size("intermediate_size"));
    return;
  }
  const uint64_t experts = config.Size("n_routed_experts");
  const uint64_t intermediate = config.Size("moe_intermediate_size");
  layer.Linear("mlp.gate", experts, config.Size("hidden_size"));
  layer.Add("mlp.gate.e_score_correction_bias", {experts});
  layer.Experts(experts, intermediate);
  layer.Mlp("mlp.shared_experts", SizeProduct(config.Size("n_shared_experts"), intermediate));
}

}  // namespace

bool IsKnownCheckpointFamily(const CheckpointConfig& config) {
  return IsQwen35(config) || config.model_type == "glm_moe_dsa";
}

std::vector<ExpectedTensor> ExpectedTensors(const CheckpointConfig& config,
                                            const CheckpointNames& names, RefusalList& found) {
  std::vector<ExpectedTensor> out;
  const uint64_t hidden = config.Size("hidden_size");
  out.push_back({names.embedding(), {config.Size("vocab_size"), hidden}});
  out.push_back({absl::StrCat(names.text_prefix(), "norm.weight"), {hidden}});
  for (uint64_t i = 0; i < config.layers(); ++i) {
    Layer layer(config, names, i, out);
    if (IsQwen35(config)) {
      Qwen35Layer(config, i, layer);
    } else {
      GlmMoeDsaLayer(config, i, layer);
    }
    if (out.size() > kMaxTensors) {
      found.Add(RefusalCode::kLimitExceeded, absl::StrCat(config.path, "num_hidden_layers"),
                absl::StrCat("the config asks for more than ", kMaxTensors, " tensors"));
      return {};
    }
  }
  return out;
}

}  // namespace lockstep
