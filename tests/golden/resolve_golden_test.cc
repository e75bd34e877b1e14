// The resolver over configurations as the Hugging Face classes and the recorded traces write
// them, and over the published shapes of the other families in the field.

#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "policy/refusal_testing.h"
#include "policy/registry.h"
#include "policy/resolve.h"
#include "policy/resolve_testing.h"

namespace lockstep {
namespace {

using nlohmann::json;

json ConfigFile(const std::string& name) {
  std::ifstream file(absl::StrCat("tests/golden/data/configs/", name, ".json"));
  std::stringstream text;
  text << file.rdbuf();
  json config = json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(config.is_object()) << name;
  return config;
}

struct FileCase {
  const char* name;
  const char* plain;  // family without being asked
  const char* exact;  // family with --exact, or "refused"
  const char* lane;   // family in the lane `scoring`, or "refused"
};

constexpr FileCase kFiles[] = {
    {"Qwen3_5Config", "qwen3_5_dense", "qwen3_5_dense", "qwen3_5_dense"},
    {"Qwen3_5TextConfig", "qwen3_5_dense", "qwen3_5_dense", "qwen3_5_dense"},
    {"Qwen3_5MoeConfig", "qwen3_5_moe", "qwen3_5_moe", "qwen3_5_moe"},
    {"Qwen3_5MoeTextConfig", "qwen3_5_moe", "qwen3_5_moe", "qwen3_5_moe"},
    {"GlmMoeDsaConfig", "none", "glm52", "glm52"},
    {"DeepseekV3Config", "none", "refused", "none"},
    {"Glm4MoeConfig", "none", "refused", "none"},
    {"LlamaConfig", "none", "refused", "none"},
    {"GptOssConfig", "none", "refused", "refused"},
    {"trace_qwen3_5_dense", "qwen3_5_dense", "qwen3_5_dense", "qwen3_5_dense"},
    {"trace_glm_moe_dsa", "none", "glm52", "glm52"},
};

TEST(ResolveGoldenTest, EveryRecordedConfigResolvesToItsFamily) {
  for (const FileCase& c : kFiles) {
    const json config = ConfigFile(c.name);
    EXPECT_EQ(FamilyOrRefused(Resolve(config)), c.plain) << c.name;
    EXPECT_EQ(FamilyOrRefused(Resolve(config, Exact())), c.exact) << c.name;
    EXPECT_EQ(FamilyOrRefused(Resolve(config, InLane(Lane::kScoring))), c.lane) << c.name;
  }
}

TEST(ResolveGoldenTest, RefusalsOfRecordedConfigsNameTheKey) {
  EXPECT_TRUE(Mentions(Resolve(ConfigFile("GptOssConfig"), Exact()).refusals,
                       RefusalCode::kUnfitActivation, "model_type", "\"gpt_oss\""));
  EXPECT_TRUE(Mentions(Resolve(ConfigFile("DeepseekV3Config"), Exact()).refusals,
                       RefusalCode::kNoExactFamily, "model_type", "DeepSeek-V3"));
}

TEST(ResolveGoldenTest, OneChangedKeyOfARecordedConfigIsRefusedByItsPath) {
  json glm = ConfigFile("GlmMoeDsaConfig");
  glm["moe_intermediate_size"] = 1408;
  EXPECT_TRUE(Mentions(Resolve(glm, Exact()).refusals, RefusalCode::kGeometryNotAdmitted,
                       "moe_intermediate_size", "1408"));
  json qwen = ConfigFile("Qwen3_5Config");
  qwen["text_config"]["hidden_act"] = "gelu";
  EXPECT_EQ(FamilyOrRefused(Resolve(qwen)), "none");
  EXPECT_TRUE(Mentions(Resolve(qwen, Exact()).refusals, RefusalCode::kUnfitActivation,
                       "text_config.hidden_act", "\"gelu\""));
}

TEST(ResolveGoldenTest, RecordedGeometryIsInTheContract) {
  const Contract qwen = *Resolve(ConfigFile("trace_qwen3_5_dense")).contract;
  EXPECT_EQ(FindSite(qwen, "dense_mlp")->geometry.at("hidden"), 128);
  EXPECT_EQ(FindSite(qwen, "dense_mlp")->geometry.at("intermediate"), 384);
  EXPECT_EQ(FindSite(qwen, "gdn_prefill")->geometry.at("k_dim"), 32);
  EXPECT_EQ(FindSite(qwen, "norm")->constants.at("eps"), 1e-6f);
  EXPECT_EQ(FindSite(qwen, "rope")->constants.at("partial_rotary_factor"), 0.25f);
  const Contract glm = *Resolve(ConfigFile("trace_glm_moe_dsa"), Exact()).contract;
  EXPECT_EQ(FindSite(glm, "shared_expert")->geometry.at("shard"), 4);
  EXPECT_EQ(FindSite(glm, "moe_leaf")->constants.at("scale"), 2.5f);
  EXPECT_EQ(FindSite(glm, "norm")->constants.at("eps"), 1e-5f);
  const Contract large = *Resolve(ConfigFile("GlmMoeDsaConfig"), Exact()).contract;
  EXPECT_EQ(FindSite(large, "shared_expert")->geometry.at("shard"), 128);
}

// The identity is what peers of other builds compare: it must not move by accident. A change
// here is a new format or a changed program and needs a reason.
TEST(ResolveGoldenTest, IdentitiesOfTheTracesAreStable) {
  EXPECT_EQ(ContractShortForm(*Resolve(ConfigFile("trace_qwen3_5_dense")).contract),
            "qwen3_5_dense/one_round_fp32@v1#b33cdfca");
  EXPECT_EQ(ContractShortForm(*Resolve(ConfigFile("trace_glm_moe_dsa"), Exact()).contract),
            "glm52/local-partial@v2#599e95e9");
}

// ---------------------------------------------------------------- families by hand

struct FieldCase {
  const char* label;
  json config;
  const char* key;  // that --exact refuses: the unfit one, or the model type
  bool plain;       // a plain SwiGLU keeps its historical programs
};

json Model(const char* type, const char* architecture, const json& more = json::object()) {
  return With({{"model_type", type}, {"architectures", {architecture}}, {"hidden_act", "silu"}},
              more);
}

std::vector<FieldCase> FieldCases() {
  const json gelu_text = {{"model_type", "gemma3_text"},
                          {"hidden_activation", "gelu_pytorch_tanh"}};
  json k25 = Multimodal("kimi_k25", Model("kimi_k2", ""));
  json llama4 = Multimodal("llama4", Model("llama4_text", ""));
  json mistral3 = Multimodal("mistral3", Model("mistral", ""));
  return {
      {"Qwen2", Model("qwen2", "Qwen2ForCausalLM"), "model_type", true},
      {"Qwen3", Model("qwen3", "Qwen3ForCausalLM"), "model_type", true},
      {"Qwen3-MoE", Model("qwen3_moe", "Qwen3MoeForCausalLM"), "model_type", true},
      {"Qwen3-Next", Model("qwen3_next", "Qwen3NextForCausalLM", {{"num_experts", 512}}),
       "model_type", true},
      {"GLM-4", Model("glm4", "Glm4ForCausalLM"), "model_type", true},
      {"GLM-4.7-Flash", Model("glm4_moe_lite", "Glm4MoeLiteForCausalLM"), "model_type", true},
      {"DeepSeek-V3.2", Model("deepseek_v32", "DeepseekV32ForCausalLM"), "model_type", true},
      {"DeepSeek-V4", Model("deepseek_v4", "DeepseekV4ForCausalLM", {{"swiglu_limit", 10.0}}),
       "swiglu_limit", false},
      {"Kimi K2", Model("kimi_k2", "DeepseekV3ForCausalLM"), "model_type", true},
      {"Kimi K2.5", k25, "text_config.model_type", true},
      {"Kimi Linear", Model("kimi_linear", "KimiLinearForCausalLM"), "model_type", true},
      {"Kimi K3", Model("kimi_k3", "KimiK3ForCausalLM"), "model_type", false},
      {"Llama 4", llama4, "text_config.model_type", true},
      {"MiniMax-M2", Model("minimax_m2", "MiniMaxM2ForCausalLM"), "model_type", true},
      {"MiniMax-M3",
       Model("minimax_m3", "MiniMaxM3ForCausalLM",
             {{"hidden_act", "swigluoai"}, {"swiglu_alpha", 1.702}, {"swiglu_limit", 7.0}}),
       "model_type", false},
      {"Mistral", Model("mistral", "MistralForCausalLM"), "model_type", true},
      {"Mistral 3", mistral3, "text_config.model_type", true},
      {"Mixtral", Model("mixtral", "MixtralForCausalLM", {{"num_local_experts", 8}}), "model_type",
       true},
      {"OLMo 2", Model("olmo2", "Olmo2ForCausalLM"), "model_type", true},
      {"Gemma 3", Multimodal("gemma3", gelu_text), "text_config.hidden_activation", false},
      {"Gemma 3 without its activation", Multimodal("gemma3", {{"model_type", "gemma3_text"}}),
       "text_config.model_type", false},
      {"Nemotron-H", Model("nemotron_h", "NemotronHForCausalLM", {{"mlp_hidden_act", "relu2"}}),
       "model_type", false},
  };
}

TEST(ResolveGoldenTest, FamiliesOfTheFieldAreNoneAndRefusedByTheRightKeyWhenExact) {
  for (const FieldCase& c : FieldCases()) {
    const Resolution plain = Resolve(c.config);
    EXPECT_EQ(FamilyOrRefused(plain), "none") << c.label << FormatRefusals(plain.refusals);
    EXPECT_EQ(ProgramAt(plain, "dense_mlp"), c.plain ? kTwoRound : "") << c.label;
    const Resolution exact = Resolve(c.config, Exact());
    ASSERT_FALSE(exact.refusals.empty()) << c.label;
    EXPECT_EQ(exact.refusals[0].key, c.key) << c.label;
    EXPECT_EQ(exact.refusals[0].code,
              c.plain ? RefusalCode::kNoExactFamily : RefusalCode::kUnfitActivation)
        << c.label;
    EXPECT_EQ(FamilyOrRefused(Resolve(c.config, InLane(Lane::kFullParam))),
              c.plain ? "none" : "refused")
        << c.label;
  }
}

}  // namespace
}  // namespace lockstep
