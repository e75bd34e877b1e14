// The headers and configs in testdata are those of the recorded traces (tests/data/traces).

#include "policy/checkpoint_check.h"

#include <fstream>
#include <functional>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "policy/refusal_testing.h"
#include "policy/safetensors.h"

namespace lockstep {
namespace {

using nlohmann::json;
using Tensors = std::vector<TensorSpec>;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

struct Checkpoint {
  Tensors tensors;
  json config;

  TensorSpec& Get(const std::string& name) {
    for (TensorSpec& tensor : tensors) {
      if (tensor.name == name) return tensor;
    }
    ADD_FAILURE() << "no tensor " << name;
    return tensors.front();
  }
  void Add(std::string name, std::vector<uint64_t> shape, Dtype dtype = Dtype::kBF16) {
    tensors.push_back({std::move(name), dtype, std::move(shape)});
  }
  void Remove(const std::string& name) {
    const auto removed =
        std::erase_if(tensors, [&](const TensorSpec& tensor) { return tensor.name == name; });
    EXPECT_EQ(removed, 1u) << name;
  }
  void Rename(std::function<std::string(const std::string&)> to) {
    for (TensorSpec& tensor : tensors) tensor.name = to(tensor.name);
  }
  CheckpointManifest Check() const { return ManifestForCheckpoint(tensors, config.dump()); }
};

Checkpoint Trace(const std::string& name) {
  Checkpoint out;
  const std::string header = ReadFile(absl::StrCat("policy/testdata/", name, ".header"));
  // The data section's size is that of the last tensor's end.
  uint64_t data_bytes = 0;
  const json stated = json::parse(header.substr(8));
  for (const json& value : stated) {
    if (value.contains("data_offsets")) {
      data_bytes = std::max(data_bytes, value["data_offsets"][1].get<uint64_t>());
    }
  }
  const auto parse = ParseSafetensorsHeader(header.size() + data_bytes, header);
  EXPECT_TRUE(parse.refusals.empty()) << FormatRefusals(parse.refusals);
  for (const auto& tensor : parse.header.tensors) out.tensors.push_back(tensor.spec);
  out.config = json::parse(ReadFile(absl::StrCat("policy/testdata/", name, ".config.json")));
  return out;
}

// A Qwen2-like checkpoint of `layers` layers; hidden 8, intermediate 16, vocabulary 32.
Checkpoint Llama(uint64_t layers) {
  Checkpoint out;
  out.config = {
      {"model_type", "qwen2"},       {"architectures", {"Qwen2ForCausalLM"}}, {"hidden_size", 8},
      {"intermediate_size", 16},     {"num_hidden_layers", layers},           {"vocab_size", 32},
      {"tie_word_embeddings", false}};
  out.Add("model.embed_tokens.weight", {32, 8});
  out.Add("model.norm.weight", {8});
  out.Add("lm_head.weight", {32, 8});
  for (uint64_t i = 0; i < layers; ++i) {
    const std::string prefix = absl::StrCat("model.layers.", i, ".");
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      out.Add(absl::StrCat(prefix, "self_attn.", name, ".weight"), {8, 8});
    }
    out.Add(prefix + "mlp.gate_proj.weight", {16, 8});
    out.Add(prefix + "mlp.up_proj.weight", {16, 8});
    out.Add(prefix + "mlp.down_proj.weight", {8, 16});
    out.Add(prefix + "input_layernorm.weight", {8});
  }
  return out;
}

testing::AssertionResult Fits(const Checkpoint& checkpoint) {
  const auto result = checkpoint.Check();
  if (result.refusals.empty()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << FormatRefusals(result.refusals);
}

// Refused with exactly one reason, about `key`.
testing::AssertionResult RefusedOnlyFor(const Checkpoint& checkpoint, absl::string_view key,
                                        absl::string_view text,
                                        RefusalCode code = RefusalCode::kManifestMismatch) {
  const auto result = checkpoint.Check();
  if (result.refusals.size() == 1 && Mentions(result.refusals, code, key, text)) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "got: '" << FormatRefusals(result.refusals) << "'";
}

TEST(CheckpointCheckTest, RecordedTracesFitTheirConfigs) {
  EXPECT_TRUE(Fits(Trace("qwen3_5_dense")));
  EXPECT_TRUE(Fits(Trace("glm_moe_dsa")));
}

TEST(CheckpointCheckTest, ManifestIsSortedAndWellFormed) {
  Checkpoint trace = Trace("glm_moe_dsa");
  std::reverse(trace.tensors.begin(), trace.tensors.end());
  const auto result = trace.Check();
  EXPECT_TRUE(result.refusals.empty());
  EXPECT_TRUE(CheckManifest(result.manifest).empty());
  EXPECT_TRUE(result.manifest.alias_groups.empty());
  EXPECT_EQ(result.manifest.tensors.front().name, "lm_head.weight");
}

TEST(CheckpointCheckTest, EveryTensorOfTheTracesIsNeeded) {
  for (const char* name : {"qwen3_5_dense", "glm_moe_dsa"}) {
    const Checkpoint whole = Trace(name);
    for (const TensorSpec& tensor : whole.tensors) {
      Checkpoint partial = whole;
      partial.Remove(tensor.name);
      const bool is_head = tensor.name == "lm_head.weight";
      EXPECT_TRUE(
          RefusedOnlyFor(partial, is_head ? "tie_word_embeddings" : tensor.name, "missing"));
    }
  }
}

TEST(CheckpointCheckTest, EveryShapeOfTheTracesIsChecked) {
  for (const char* name : {"qwen3_5_dense", "glm_moe_dsa"}) {
    const Checkpoint whole = Trace(name);
    for (const TensorSpec& tensor : whole.tensors) {
      for (size_t dimension = 0; dimension < tensor.shape.size(); ++dimension) {
        Checkpoint wrong = whole;
        ++wrong.Get(tensor.name).shape[dimension];
        EXPECT_TRUE(RefusedOnlyFor(wrong, tensor.name, "expected ["));
      }
    }
  }
}

TEST(CheckpointCheckTest, ExtraTensorIsNamed) {
  Checkpoint trace = Trace("qwen3_5_dense");
  trace.Add("model.layers.0.mlp.router.weight", {8, 128});
  EXPECT_TRUE(RefusedOnlyFor(trace, "model.layers.0.mlp.router.weight", "no part of the model"));
  trace = Trace("qwen3_5_dense");
  trace.Add("model.layers.4.input_layernorm.weight", {128});
  EXPECT_TRUE(RefusedOnlyFor(trace, "model.layers.4.input_layernorm.weight", "no part"));
}

TEST(CheckpointCheckTest, CheckpointOfAnotherConfigIsRefused) {
  Checkpoint trace = Trace("qwen3_5_dense");
  trace.config = Trace("glm_moe_dsa").config;
  EXPECT_FALSE(trace.Check().refusals.empty());
  trace = Trace("qwen3_5_dense");
  trace.config["hidden_size"] = 256;
  EXPECT_TRUE(Mentions(trace.Check().refusals, RefusalCode::kManifestMismatch,
                       "model.embed_tokens.weight", "expected [64,256] from the config"));
}

TEST(CheckpointCheckTest, MultimodalPrefixTowersAndDraftHeadsAreAccepted) {
  Checkpoint trace = Trace("qwen3_5_dense");
  trace.Rename([](const std::string& name) {
    return absl::StrReplaceAll(name, {{"model.", "model.language_model."}});
  });
  json text = trace.config;
  trace.config = {{"model_type", "qwen3_5"}, {"text_config", text}};
  trace.Add("model.visual.blocks.0.attn.qkv.weight", {3, 3});
  trace.Add("mtp.layers.0.mlp.gate_proj.weight", {3, 3});
  EXPECT_TRUE(Fits(trace));
  trace.Remove("model.language_model.norm.weight");
  EXPECT_TRUE(RefusedOnlyFor(trace, "model.language_model.norm.weight", "missing"));
}

TEST(CheckpointCheckTest, DraftLayersBeyondTheLastAreAcceptedAsManyAsStated) {
  Checkpoint trace = Trace("glm_moe_dsa");
  trace.config["num_nextn_predict_layers"] = 1;
  trace.Add("model.layers.4.eh_proj.weight", {128, 256});
  EXPECT_TRUE(Fits(trace));
  trace.Add("model.layers.5.eh_proj.weight", {128, 256});
  EXPECT_TRUE(RefusedOnlyFor(trace, "model.layers.5.eh_proj.weight", "no part"));
}

TEST(CheckpointCheckTest, ExpertsMayBeStoredOneByOne) {
  Checkpoint trace = Trace("glm_moe_dsa");
  trace.Remove("model.layers.1.mlp.experts.gate_up_proj");
  trace.Remove("model.layers.1.mlp.experts.down_proj");
  for (int expert = 0; expert < 8; ++expert) {
    const std::string prefix = absl::StrCat("model.layers.1.mlp.experts.", expert, ".");
    trace.Add(prefix + "gate_proj.weight", {64, 128});
    trace.Add(prefix + "up_proj.weight", {64, 128});
    trace.Add(prefix + "down_proj.weight", {128, 64});
  }
  EXPECT_TRUE(Fits(trace));
  trace.Remove("model.layers.1.mlp.experts.5.up_proj.weight");
  EXPECT_TRUE(RefusedOnlyFor(trace, "model.layers.1.mlp.experts.5.up_proj.weight", "missing"));
}

TEST(CheckpointCheckTest, QwenMoeSetIsDerivedFromItsConfig) {
  Checkpoint trace = Trace("qwen3_5_dense");
  trace.config["model_type"] = "qwen3_5_moe_text";
  trace.config["num_experts"] = 4;
  trace.config["moe_intermediate_size"] = 32;
  trace.config["shared_expert_intermediate_size"] = 48;
  for (int i = 0; i < 4; ++i) {
    const std::string prefix = absl::StrCat("model.layers.", i, ".mlp.");
    for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
      trace.Remove(absl::StrCat(prefix, name, ".weight"));
    }
    trace.Add(prefix + "gate.weight", {4, 128});
    trace.Add(prefix + "experts.gate_up_proj", {4, 64, 128});
    trace.Add(prefix + "experts.down_proj", {4, 128, 32});
    trace.Add(prefix + "shared_expert.gate_proj.weight", {48, 128});
    trace.Add(prefix + "shared_expert.up_proj.weight", {48, 128});
    trace.Add(prefix + "shared_expert.down_proj.weight", {128, 48});
    trace.Add(prefix + "shared_expert_gate.weight", {1, 128});
  }
  EXPECT_TRUE(Fits(trace));
  trace.Remove("model.layers.2.mlp.shared_expert_gate.weight");
  EXPECT_TRUE(RefusedOnlyFor(trace, "model.layers.2.mlp.shared_expert_gate.weight", "missing"));
}

TEST(CheckpointCheckTest, LayerThatSharesAnIndexNeedsNoIndexer) {
  Checkpoint trace = Trace("glm_moe_dsa");
  trace.config["indexer_types"] = {"full", "full", "shared", "full"};
  EXPECT_TRUE(Fits(trace));
  for (const char* name :
       {"wq_b.weight", "wk.weight", "k_norm.weight", "k_norm.bias", "weights_proj.weight"}) {
    trace.Remove(absl::StrCat("model.layers.2.self_attn.indexer.", name));
  }
  EXPECT_TRUE(Fits(trace));
}

TEST(CheckpointCheckTest, TiedHeadThatIsThereFormsAnAliasGroup) {
  Checkpoint trace = Trace("qwen3_5_dense");
  EXPECT_TRUE(trace.Check().manifest.alias_groups.empty());
  trace.Add("lm_head.weight", {64, 128});
  const auto result = trace.Check();
  EXPECT_TRUE(result.refusals.empty()) << FormatRefusals(result.refusals);
  EXPECT_EQ(
      result.manifest.alias_groups,
      (std::vector<std::vector<std::string>>{{"lm_head.weight", "model.embed_tokens.weight"}}));
  trace.Get("lm_head.weight").dtype = Dtype::kF32;
  EXPECT_FALSE(trace.Check().refusals.empty());
}

TEST(CheckpointCheckTest, UntiedConfigWithoutAHeadNamesTheKey) {
  Checkpoint trace = Trace("qwen3_5_dense");
  trace.config["tie_word_embeddings"] = false;
  EXPECT_TRUE(RefusedOnlyFor(trace, "tie_word_embeddings", "'lm_head.weight' is missing"));
  trace.config = {{"model_type", "qwen3_5"}, {"text_config", trace.config}};
  EXPECT_TRUE(RefusedOnlyFor(trace, "text_config.tie_word_embeddings", "is missing"));
}

TEST(CheckpointCheckTest, HeadIsCheckedAgainstTheVocabulary) {
  Checkpoint trace = Trace("glm_moe_dsa");
  trace.Get("lm_head.weight").shape = {65, 128};
  EXPECT_TRUE(RefusedOnlyFor(trace, "lm_head.weight", "expected [64,128]"));
}

TEST(CheckpointCheckTest, UnreadableConfigIsBadConfig) {
  const Tensors tensors = Trace("qwen3_5_dense").tensors;
  for (const char* text : {"", "[]", "{", "{\"a\":1,\"a\":2}", "\"x\""}) {
    const auto result = ManifestForCheckpoint(tensors, text);
    EXPECT_TRUE(Mentions(result.refusals, RefusalCode::kBadConfig, "", "no JSON object")) << text;
  }
}

TEST(CheckpointCheckTest, KeysOfTheWrongTypeAreNamedByPath) {
  Checkpoint trace = Trace("qwen3_5_dense");
  trace.config["hidden_size"] = "128";
  EXPECT_TRUE(RefusedOnlyFor(trace, "hidden_size", "got \"128\"", RefusalCode::kBadConfig));
  trace.config["hidden_size"] = -128;
  EXPECT_TRUE(RefusedOnlyFor(trace, "hidden_size", "got -128", RefusalCode::kBadConfig));
  trace.config["hidden_size"] = uint64_t{1} << 40;
  EXPECT_TRUE(RefusedOnlyFor(trace, "hidden_size", "from 0 to", RefusalCode::kBadConfig));
  trace = Trace("qwen3_5_dense");
  trace.config["layer_types"] = {"full_attention"};
  EXPECT_TRUE(RefusedOnlyFor(trace, "layer_types", "1 entries for 4", RefusalCode::kBadConfig));
  trace.config = {{"text_config", {{"num_hidden_layers", 1'000'000'000}}}};
  EXPECT_TRUE(RefusedOnlyFor(trace, "text_config.num_hidden_layers", "from 0 to 10000",
                             RefusalCode::kBadConfig));
}

TEST(CheckpointCheckTest, ConfigThatAsksForTooManyTensorsIsLimited) {
  Checkpoint trace = Trace("glm_moe_dsa");
  trace.config["num_hidden_layers"] = 10'000;
  trace.config["n_routed_experts"] = 10'000'000;
  trace.config.erase("layer_types");
  trace.config.erase("mlp_layer_types");
  trace.config.erase("indexer_types");
  trace.Add("model.layers.1.mlp.experts.0.down_proj.weight", {128, 64});
  EXPECT_TRUE(Mentions(trace.Check().refusals, RefusalCode::kLimitExceeded, "num_hidden_layers",
                       "more than 1000000"));
}

TEST(CheckpointCheckTest, NullAndAbsentSizesAreNotChecked) {
  Checkpoint trace = Trace("qwen3_5_dense");
  trace.config["intermediate_size"] = nullptr;
  trace.config.erase("linear_num_value_heads");
  EXPECT_TRUE(Fits(trace));
}

TEST(CheckpointGenericTest, RegularCheckpointFits) { EXPECT_TRUE(Fits(Llama(4))); }

TEST(CheckpointGenericTest, MissingAndSurplusLayersAreRefused) {
  Checkpoint llama = Llama(4);
  llama.config["num_hidden_layers"] = 6;
  EXPECT_TRUE(RefusedOnlyFor(llama, "model.layers.4.", "layer 4 to 5"));
  llama.config["num_hidden_layers"] = 3;
  EXPECT_TRUE(RefusedOnlyFor(llama, "model.layers.3.input_layernorm.weight", "only 3 layers"));
  llama = Llama(4);
  std::erase_if(llama.tensors, [](const TensorSpec& tensor) {
    return absl::StartsWith(tensor.name, "model.layers.1.");
  });
  EXPECT_TRUE(RefusedOnlyFor(llama, "model.layers.1.", "no tensor of layer 1 "));
}

TEST(CheckpointGenericTest, TensorMissingFromOneLayerIsNamed) {
  for (const char* rest :
       {"input_layernorm.weight", "self_attn.k_proj.weight", "mlp.down_proj.weight"}) {
    const std::string name = absl::StrCat("model.layers.2.", rest);
    Checkpoint llama = Llama(4);
    llama.Remove(name);
    EXPECT_TRUE(RefusedOnlyFor(llama, name, "3 of 4 layers"));
  }
}

TEST(CheckpointGenericTest, TensorExtraInOneLayerIsNamed) {
  Checkpoint llama = Llama(4);
  llama.Add("model.layers.2.self_attn.q_proj.bias", {8});
  EXPECT_TRUE(RefusedOnlyFor(llama, "model.layers.2.self_attn.q_proj.bias", "only 1 of 4"));
}

TEST(CheckpointGenericTest, ShapesMustMatchTheOtherLayersAndTheConfig) {
  Checkpoint llama = Llama(4);
  llama.Get("model.layers.3.self_attn.k_proj.weight").shape = {4, 8};
  EXPECT_TRUE(RefusedOnlyFor(llama, "model.layers.3.self_attn.k_proj.weight", "other layers"));
  llama = Llama(4);
  llama.config["intermediate_size"] = 24;
  EXPECT_TRUE(Mentions(llama.Check().refusals, RefusalCode::kManifestMismatch,
                       "model.layers.0.mlp.down_proj.weight", "expected [8,24]"));
  llama = Llama(4);
  llama.config["vocab_size"] = 33;
  EXPECT_TRUE(Mentions(llama.Check().refusals, RefusalCode::kManifestMismatch,
                       "model.embed_tokens.weight", "[vocab_size, hidden_size]"));
}

TEST(CheckpointGenericTest, LayersOfDifferentKindsDiffer) {
  Checkpoint deepseek = Llama(3);
  deepseek.config["model_type"] = "deepseek_v3";
  deepseek.config["moe_intermediate_size"] = 4;
  deepseek.config["n_shared_experts"] = 2;
  for (int i = 1; i < 3; ++i) {
    const std::string prefix = absl::StrCat("model.layers.", i, ".mlp.");
    for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
      deepseek.Remove(absl::StrCat(prefix, name, ".weight"));
    }
    deepseek.Add(prefix + "shared_experts.down_proj.weight", {8, 8});
    for (int expert = 0; expert < 3; ++expert) {
      deepseek.Add(absl::StrCat(prefix, "experts.", expert, ".up_proj.weight"), {4, 8});
    }
  }
  EXPECT_TRUE(Fits(deepseek));
  deepseek.Get("model.layers.2.mlp.experts.1.up_proj.weight").shape = {5, 8};
  EXPECT_TRUE(Mentions(deepseek.Check().refusals, RefusalCode::kManifestMismatch,
                       "model.layers.2.mlp.experts.1.up_proj.weight", "expected [4,8]"));
}

TEST(CheckpointGenericTest, HeadMayBeAbsentOnlyWhenTiedUnstatedOrNotGenerating) {
  Checkpoint llama = Llama(2);
  llama.Remove("lm_head.weight");
  EXPECT_TRUE(RefusedOnlyFor(llama, "tie_word_embeddings", "is false"));
  llama.config["tie_word_embeddings"] = true;
  EXPECT_TRUE(Fits(llama));
  llama.config.erase("tie_word_embeddings");
  EXPECT_TRUE(Fits(llama));
  llama.config["tie_word_embeddings"] = false;
  llama.config["architectures"] = {"Qwen2ForSequenceClassification"};
  EXPECT_TRUE(Fits(llama));
}

TEST(CheckpointGenericTest, UnknownFamilyIsAcceptedAsItIs) {
  Checkpoint other;
  other.config = {{"model_type", "rwkv"}, {"hidden_size", 8}, {"vocab_size", 99}};
  other.Add("blocks.0.att.key", {3, 5});
  other.Add("emb", {7, 2});
  EXPECT_TRUE(Fits(other));
  other.Add("emb", {7, 2});
  EXPECT_TRUE(RefusedOnlyFor(other, "emb", "twice", RefusalCode::kBadMessage));
}

TEST(CheckpointScaleTest, Fp8WeightsAndTheirScalesComeTogether) {
  Checkpoint llama = Llama(2);
  llama.config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {4, 4}}};
  for (int i = 0; i < 2; ++i) {
    const std::string name = absl::StrCat("model.layers.", i, ".mlp.up_proj.weight");
    llama.Get(name).dtype = Dtype::kF8E4M3;
    llama.Add(name + "_scale_inv", {4, 2}, Dtype::kF32);
  }
  EXPECT_TRUE(Fits(llama));
  Checkpoint wrong = llama;
  for (int i = 0; i < 2; ++i) {
    wrong.Get(absl::StrCat("model.layers.", i, ".mlp.up_proj.weight_scale_inv")).shape = {4, 4};
  }
  EXPECT_TRUE(Mentions(wrong.Check().refusals, RefusalCode::kManifestMismatch,
                       "model.layers.0.mlp.up_proj.weight_scale_inv", "expected [4,2] for 4x4"));
  wrong = llama;
  for (int i = 0; i < 2; ++i) {
    wrong.Remove(absl::StrCat("model.layers.", i, ".mlp.up_proj.weight_scale_inv"));
  }
  EXPECT_TRUE(Mentions(wrong.Check().refusals, RefusalCode::kManifestMismatch,
                       "model.layers.1.mlp.up_proj.weight", "has no scale"));
  wrong = llama;
  for (int i = 0; i < 2; ++i) wrong.Remove(absl::StrCat("model.layers.", i, ".mlp.up_proj.weight"));
  EXPECT_TRUE(Mentions(wrong.Check().refusals, RefusalCode::kManifestMismatch,
                       "model.layers.0.mlp.up_proj.weight_scale_inv", "has no weight"));
}

TEST(CheckpointScaleTest, ScalesAreAllowedBesideAKnownFamilysWeights) {
  Checkpoint trace = Trace("glm_moe_dsa");
  trace.config["quantization_config"] = {{"weight_block_size", {128, 128}}};
  trace.Get("model.layers.0.mlp.up_proj.weight").dtype = Dtype::kF8E4M3;
  trace.Add("model.layers.0.mlp.up_proj.weight_scale_inv", {2, 1}, Dtype::kF32);
  EXPECT_TRUE(Fits(trace));
}

}  // namespace
}  // namespace lockstep
