#include "policy/checkpoint_config.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "policy/json_text.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr absl::string_view kSizeKeys[] = {
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "linear_conv_kernel_dim",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "full_attention_interval",
    "num_experts",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "n_routed_experts",
    "n_shared_experts",
    "num_local_experts",
    "first_k_dense_replace",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "index_n_heads",
    "index_head_dim",
    "num_nextn_predict_layers",
};

constexpr absl::string_view kFlagKeys[] = {"attention_bias", "mlp_bias", "attn_output_gate"};

void BadKey(RefusalList& found, const std::string& path, absl::string_view wanted,
            const json& got) {
  found.Add(RefusalCode::kBadConfig, path,
            absl::StrCat("expected ", path, " to be ", wanted, ", got ", QuoteJson(got)));
}

void ReadSizes(const json& text, CheckpointConfig& config, RefusalList& found) {
  for (const absl::string_view key : kSizeKeys) {
    const json* value = FindNonNull(text, key);
    // Some families state one number a layer; those are left to the layers themselves.
    if (value == nullptr || value->is_array()) continue;
    const auto number = AsUnsigned(*value);
    const uint64_t most = key == "num_hidden_layers" ? kMaxConfigLayers : kMaxConfigSize;
    if (!number.has_value() || *number > most) {
      BadKey(found, absl::StrCat(config.path, key), absl::StrCat("a whole number from 0 to ", most),
             *value);
    } else {
      config.sizes[std::string(key)] = *number;
    }
  }
}

std::vector<std::string> ReadStrings(const json& text, absl::string_view key,
                                     const CheckpointConfig& config, RefusalList& found) {
  std::vector<std::string> out;
  const json* value = FindNonNull(text, key);
  if (value == nullptr) return out;
  const std::string path = absl::StrCat(config.path, key);
  if (!value->is_array()) {
    BadKey(found, path, "a list of strings", *value);
    return out;
  }
  for (const json& item : *value) {
    if (!item.is_string()) {
      BadKey(found, path, "a list of strings", *value);
      return {};
    }
    out.push_back(item.get<std::string>());
  }
  if (const uint64_t layers = config.layers(); layers != kAnySize && out.size() < layers) {
    found.Add(RefusalCode::kBadConfig, path,
              absl::StrCat(path, " has ", out.size(), " entries for ", layers, " layers"));
    return {};
  }
  return out;
}

void ReadTied(const json& root, const json& text, CheckpointConfig& config, RefusalList& found) {
  constexpr absl::string_view kKey = "tie_word_embeddings";
  config.tied_path = absl::StrCat(config.path, kKey);
  const json* value = FindNonNull(text, kKey);
  if (value == nullptr) {
    value = FindNonNull(root, kKey);
    if (value != nullptr) config.tied_path = std::string(kKey);
  }
  if (value == nullptr) return;
  if (!value->is_boolean()) return BadKey(found, config.tied_path, "true or false", *value);
  config.tied = value->get<bool>();
}

void ReadQuantisation(const json& root, const json& text, CheckpointConfig& config) {
  const json* quantisation = FindNonNull(root, "quantization_config");
  if (quantisation == nullptr) quantisation = FindNonNull(text, "quantization_config");
  if (quantisation == nullptr) return;
  config.quantised = true;
  const json* block = FindNonNull(*quantisation, "weight_block_size");
  if (block == nullptr || !block->is_array() || block->size() != 2) return;
  const auto rows = AsUnsigned((*block)[0]);
  const auto columns = AsUnsigned((*block)[1]);
  if (rows.value_or(0) > 0 && columns.value_or(0) > 0) config.scale_block = {*rows, *columns};
}

// A classifier or a bare encoder has no language head.
bool Generates(const json& root) {
  const json* architectures = FindNonNull(root, "architectures");
  if (architectures == nullptr || !architectures->is_array() || architectures->empty()) return true;
  for (const json& name : *architectures) {
    if (!name.is_string()) return true;
    const std::string text = name.get<std::string>();
    if (absl::EndsWith(text, "ForCausalLM") || absl::EndsWith(text, "ForConditionalGeneration") ||
        absl::EndsWith(text, "LMHeadModel")) {
      return true;
    }
  }
  return false;
}

}  // namespace

uint64_t SizeProduct(uint64_t a, uint64_t b) { return a == kAnySize ? kAnySize : a * b; }

uint64_t SizeSum(uint64_t a, uint64_t b) {
  return a == kAnySize || b == kAnySize ? kAnySize : a + b;
}

uint64_t CheckpointConfig::Size(absl::string_view key) const {
  const auto at = sizes.find(std::string(key));
  return at == sizes.end() ? kAnySize : at->second;
}

bool CheckpointConfig::Flag(absl::string_view key, bool otherwise) const {
  const auto at = flags.find(std::string(key));
  return at == flags.end() ? otherwise : at->second;
}

bool CheckpointConfig::SparseLayer(uint64_t i) const {
  if (i < mlp_layer_types.size()) return mlp_layer_types[i] == "sparse";
  return i >= Size("first_k_dense_replace");
}

CheckpointConfig ReadCheckpointConfig(absl::string_view config_json, RefusalList& found) {
  CheckpointConfig config;
  const auto root = ParseJson(config_json, JsonLimits{});
  if (!root.ok() || !root->is_object()) {
    found.Add(RefusalCode::kBadConfig, "",
              absl::StrCat("the config is no JSON object",
                           root.ok() ? "" : absl::StrCat(": ", root.status().message()),
                           "; give the model's config.json"));
    return config;
  }
  const json* text = FindNonNull(*root, "text_config");
  if (text != nullptr && text->is_object()) {
    config.path = "text_config.";
  } else {
    text = &*root;
  }
  for (const json* part : {text, &*root}) {
    const json* type = FindNonNull(*part, "model_type");
    if (type == nullptr || !config.model_type.empty()) continue;
    if (type->is_string()) {
      config.model_type = type->get<std::string>();
    } else {
      BadKey(found, absl::StrCat(part == text ? config.path : "", "model_type"), "a string", *type);
    }
  }
  ReadSizes(*text, config, found);
  for (const absl::string_view key : kFlagKeys) {
    const json* value = FindNonNull(*text, key);
    if (value != nullptr && value->is_boolean()) {
      config.flags[std::string(key)] = value->get<bool>();
    }
  }
  config.layer_types = ReadStrings(*text, "layer_types", config, found);
  config.mlp_layer_types = ReadStrings(*text, "mlp_layer_types", config, found);
  config.indexer_types = ReadStrings(*text, "indexer_types", config, found);
  ReadTied(*root, *text, config, found);
  ReadQuantisation(*root, *text, config);
  config.generates = Generates(*root);
  return config;
}

}  // namespace lockstep
