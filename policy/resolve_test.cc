// Each rule of contracts.md section 2 about families, activations, architectures and what
// was asked for: a config that passes and one that fails by one key.

#include "policy/resolve.h"

#include "gtest/gtest.h"
#include "policy/refusal_testing.h"
#include "policy/registry.h"
#include "policy/resolve_testing.h"

namespace lockstep {
namespace {

using nlohmann::json;

TEST(ResolveTest, Qwen35IsExactWithoutBeingAsked) {
  EXPECT_EQ(Resolve(QwenDenseConfig()).family, "qwen3_5_dense");
  EXPECT_EQ(Resolve(QwenMoeConfig()).family, "qwen3_5_moe");
  EXPECT_EQ(Resolve(Multimodal("qwen3_5", QwenDenseConfig())).family, "qwen3_5_dense");
  EXPECT_EQ(Resolve(Multimodal("qwen3_5_moe", QwenMoeConfig())).family, "qwen3_5_moe");
}

TEST(ResolveTest, ModelTypeIsComparedWholeBeyondItsStem) {
  EXPECT_EQ(Resolve({{"model_type", "qwen3_5_text"}}).family, "qwen3_5_dense");
  EXPECT_EQ(Resolve({{"model_type", "qwen3_50"}}).family, "none");
  EXPECT_EQ(Resolve({{"model_type", "Qwen3_5"}}).family, "none");
}

TEST(ResolveTest, ExpertsInTheTextPartMakeQwen35Moe) {
  EXPECT_EQ(Resolve(With(QwenDenseConfig(), {{"num_experts", 8}})).family, "qwen3_5_moe");
  EXPECT_EQ(Resolve(With(QwenDenseConfig(), {{"num_experts", nullptr}})).family, "qwen3_5_dense");
  EXPECT_EQ(Resolve(With(QwenDenseConfig(), {{"num_experts", 0}})).family, "qwen3_5_dense");
  const json text = With(QwenDenseConfig(), {{"num_experts", 8}});
  EXPECT_EQ(Resolve(Multimodal("qwen3_5", text)).family, "qwen3_5_moe");
  json top_only = Multimodal("qwen3_5", QwenDenseConfig());
  top_only["num_experts"] = 8;  // not in the text part
  EXPECT_EQ(Resolve(top_only).family, "qwen3_5_dense");
}

TEST(ResolveTest, GlmIsNoneUntilAskedFor) {
  EXPECT_EQ(Resolve(GlmConfig()).family, "none");
  EXPECT_EQ(Resolve(GlmConfig(), Exact()).family, "glm52");
  for (Lane lane : {Lane::kScoring, Lane::kActiveLora, Lane::kFullParam}) {
    EXPECT_EQ(Resolve(GlmConfig(), InLane(lane)).family, "glm52") << LaneName(lane);
  }
}

TEST(ResolveTest, NeverFromHiddenActAlone) {
  EXPECT_EQ(Resolve({{"hidden_act", "silu"}}).family, "none");
  EXPECT_EQ(Resolve(json::object()).family, "none");
  EXPECT_TRUE(Resolve(json::object()).contract.has_value());
  EXPECT_TRUE(Mentions(Resolve({{"hidden_act", "silu"}}, Exact()).refusals,
                       RefusalCode::kNoExactFamily, "model_type", "no model_type"));
}

TEST(ResolveTest, ExactOnAModelWithoutAFamilyIsRefusedAndALaneKeepsNone) {
  EXPECT_TRUE(Mentions(Resolve(LlamaConfig(), Exact()).refusals, RefusalCode::kNoExactFamily,
                       "model_type", "llama"));
  EXPECT_EQ(FamilyOrRefused(Resolve(LlamaConfig())), "none");
  EXPECT_EQ(FamilyOrRefused(Resolve(LlamaConfig(), InLane(Lane::kScoring))), "none");
}

TEST(ResolveTest, NoneKeepsTheHistoricalTwoRoundBytes) {
  const Resolution llama = Resolve(LlamaConfig());
  EXPECT_EQ(ProgramAt(llama, "dense_mlp"), kTwoRound);
  const Resolution glm = Resolve(GlmConfig());
  for (const char* site : {"dense_mlp", "shared_expert", "routed_experts"}) {
    EXPECT_EQ(ProgramAt(glm, site), kTwoRound) << site;
  }
  EXPECT_EQ(llama.contract->level, Level::kWeights);
  EXPECT_EQ(Resolve(QwenDenseConfig()).contract->level, Level::kTokens);
}

TEST(ResolveTest, ExactFamiliesSelectOneRoundAtTheirSitesAndLeaveRoutedExperts) {
  EXPECT_EQ(ProgramAt(Resolve(QwenDenseConfig()), "dense_mlp"), kOneRound);
  for (const Resolution& moe : {Resolve(QwenMoeConfig()), Resolve(GlmConfig(), Exact())}) {
    EXPECT_EQ(ProgramAt(moe, "dense_mlp"), kOneRound) << moe.family;
    EXPECT_EQ(ProgramAt(moe, "shared_expert"), kOneRound) << moe.family;
    EXPECT_EQ(ProgramAt(moe, "routed_experts"), kTwoRound) << moe.family;
  }
}

TEST(ResolveTest, EverySwiGluSiteStatesItsRealisationAndDigest) {
  ResolveOptions options = Exact();
  options.realisation = "silu/sm90_triton@v1";
  for (const Resolution& resolution :
       {Resolve(GlmConfig(), Exact()), Resolve(GlmConfig(), options)}) {
    for (const char* name : {"dense_mlp", "shared_expert", "routed_experts"}) {
      const Site* site = FindSite(*resolution.contract, name);
      ASSERT_NE(site, nullptr);
      ASSERT_TRUE(site->realisation_digest.has_value());
      EXPECT_EQ(ToHex(*site->realisation_digest),
                FindRealisation(site->realisation, "bf16")->digest_hex);
    }
  }
  options.realisation = "silu/sm90_tritn@v1";
  EXPECT_TRUE(Mentions(Resolve(GlmConfig(), options).refusals, RefusalCode::kUnknownIdentifier,
                       "realisation", "'silu/sm90_triton@v1'"));
}

TEST(ResolveTest, NormIsZeroCenteredWhereTheModelSaysOnePlusWeight) {
  const auto centered = [](const Resolution& resolution) {
    return FindSite(*resolution.contract, "norm")->geometry.at("zero_centered");
  };
  EXPECT_EQ(centered(Resolve(QwenDenseConfig())), 1);
  EXPECT_EQ(centered(Resolve({{"model_type", "qwen3_next"}, {"hidden_act", "silu"}})), 1);
  EXPECT_EQ(centered(Resolve({{"model_type", "gemma3_text"}})), 1);
  EXPECT_EQ(centered(Resolve(GlmConfig(), Exact())), 0);
  EXPECT_EQ(centered(Resolve(LlamaConfig())), 0);
}

// ---------------------------------------------------------------- activations

struct ActivationCase {
  const char* key;
  json value;
  const char* quoted;
};

TEST(ResolveTest, UnfitActivationIsAnEmptySiteOrARefusalThatNamesItsKey) {
  const ActivationCase cases[] = {{"hidden_act", "gelu", "\"gelu\""},
                                  {"hidden_act", "relu2", "\"relu2\""},
                                  {"hidden_activation", "gelu_pytorch_tanh", "gelu_pytorch_tanh"},
                                  {"swiglu_limit", 7.0, "7.0"},
                                  {"swiglu_alpha", 1.702, "1.702"},
                                  {"mlp_bias", true, "true"}};
  for (const ActivationCase& c : cases) {
    const json config = With(QwenDenseConfig(), {{c.key, c.value}});
    const Resolution plain = Resolve(config);
    EXPECT_EQ(FamilyOrRefused(plain), "none") << c.key;
    EXPECT_EQ(ProgramAt(plain, "dense_mlp"), "") << c.key;
    EXPECT_FALSE(plain.notes.empty()) << c.key;
    EXPECT_TRUE(
        Mentions(Resolve(config, Exact()).refusals, RefusalCode::kUnfitActivation, c.key, c.quoted))
        << c.key;
    const std::string path = std::string("text_config.") + c.key;
    EXPECT_TRUE(Mentions(Resolve(Multimodal("qwen3_5", config), Exact()).refusals,
                         RefusalCode::kUnfitActivation, path, c.quoted))
        << path;
  }
}

TEST(ResolveTest, NullAndFalseActivationKeysSayNothing) {
  const json silent = With(QwenDenseConfig(), {{"hidden_act", nullptr},
                                               {"hidden_activation", nullptr},
                                               {"swiglu_limit", nullptr},
                                               {"swiglu_alpha", nullptr},
                                               {"mlp_bias", false}});
  EXPECT_EQ(FamilyOrRefused(Resolve(silent, Exact())), "qwen3_5_dense");
  EXPECT_EQ(FamilyOrRefused(Resolve(With(silent, {{"mlp_bias", nullptr}}))), "qwen3_5_dense");
}

TEST(ResolveTest, OnlyTheTextPartsActivationCounts) {
  EXPECT_EQ(FamilyOrRefused(Resolve(Multimodal("qwen3_5", QwenDenseConfig()), Exact())),
            "qwen3_5_dense");
  json top = Multimodal("qwen3_5", QwenDenseConfig());
  top["hidden_act"] = "gelu";
  EXPECT_EQ(FamilyOrRefused(Resolve(top, Exact())), "qwen3_5_dense");
}

TEST(ResolveTest, EveryDemandForExactnessRefusesAnUnfitActivation) {
  const json gelu = With(GlmConfig(), {{"hidden_act", "gelu"}});
  EXPECT_EQ(FamilyOrRefused(Resolve(gelu)), "none");
  EXPECT_EQ(FamilyOrRefused(Resolve(gelu, Exact())), "refused");
  EXPECT_EQ(FamilyOrRefused(Resolve(gelu, InLane(Lane::kScoring))), "refused");
  EXPECT_EQ(FamilyOrRefused(Resolve(With(gelu, {{"_exact_contract_family", "glm52"}}))), "refused");
  EXPECT_EQ(FamilyOrRefused(Resolve(With(gelu, {{"_glm52_exact_contract", true}}))), "refused");
  EXPECT_EQ(FamilyOrRefused(Resolve(With(gelu, {{"_exact_contract_family", "none"}}))), "none");
}

TEST(ResolveTest, EveryUnfitKeyIsNamed) {
  const json config = With(QwenDenseConfig(), {{"hidden_act", "gelu"}, {"swiglu_limit", 7.0}});
  const Resolution resolution = Resolve(config, Exact());
  EXPECT_TRUE(Mentions(resolution.refusals, RefusalCode::kUnfitActivation, "hidden_act", "gelu"));
  EXPECT_TRUE(Mentions(resolution.refusals, RefusalCode::kUnfitActivation, "swiglu_limit", "7.0"));
}

TEST(ResolveTest, ModelTypeAloneDecidesWhereHiddenActLies) {
  for (const char* type : {"gpt_oss", "minimax_m3", "nemotron_h", "kimi_k3"}) {
    const json config = {{"model_type", type}, {"hidden_act", "silu"}, {"hidden_size", 64}};
    const Resolution plain = Resolve(config);
    EXPECT_EQ(FamilyOrRefused(plain), "none") << type;
    EXPECT_EQ(ProgramAt(plain, "dense_mlp"), "") << type;
    for (const ResolveOptions& options : {Exact(), InLane(Lane::kScoring)}) {
      const Resolution refused = Resolve(config, options);
      ASSERT_EQ(refused.refusals.size(), 1u) << type;
      EXPECT_EQ(refused.refusals[0].code, RefusalCode::kUnfitActivation);
      EXPECT_EQ(refused.refusals[0].key, "model_type") << type;
    }
    const Resolution inner = Resolve(Multimodal("wrapper", config), Exact());
    ASSERT_FALSE(inner.refusals.empty());
    EXPECT_EQ(inner.refusals[0].key, "text_config.model_type") << type;
  }
}

// ---------------------------------------------------------------- architectures

TEST(ResolveTest, ArchitecturesThatSayNothingAreFine) {
  for (const json& silent : {json(nullptr), json::array()}) {
    EXPECT_EQ(FamilyOrRefused(Resolve(With(QwenDenseConfig(), {{"architectures", silent}}))),
              "qwen3_5_dense");
  }
  json absent = QwenDenseConfig();
  absent.erase("architectures");
  EXPECT_EQ(FamilyOrRefused(Resolve(absent, Exact())), "qwen3_5_dense");
}

TEST(ResolveTest, ArchitectureOfAnotherFamilyIsRefusedByItsKey) {
  struct Case {
    json config;
    const char* architecture;
  };
  const Case cases[] = {{QwenDenseConfig(), "Qwen3_5MoeForCausalLM"},
                        {QwenDenseConfig(), "GlmMoeDsaForCausalLM"},
                        {QwenDenseConfig(), "LlamaForCausalLM"},
                        {QwenDenseConfig(), "Qwen3_5NextForCausalLM"},
                        {GlmConfig(), "DeepseekV32ForCausalLM"},
                        {LlamaConfig(), "Qwen3_5ForCausalLM"},
                        {{{"hidden_act", "silu"}}, "Qwen3_5ForCausalLM"}};
  for (const Case& c : cases) {
    const json config = With(c.config, {{"architectures", {c.architecture}}});
    for (const ResolveOptions& options : {ResolveOptions{}, Exact()}) {
      EXPECT_TRUE(Mentions(Resolve(config, options).refusals, RefusalCode::kStampConflict,
                           "architectures", c.architecture))
          << c.architecture;
    }
  }
  json inner = Multimodal("qwen3_5", QwenDenseConfig());
  inner["text_config"]["architectures"] = {"LlamaForCausalLM"};
  EXPECT_TRUE(Mentions(Resolve(inner).refusals, RefusalCode::kStampConflict,
                       "text_config.architectures", "LlamaForCausalLM"));
}

TEST(ResolveTest, ArchitecturesOfTheFamilyAndOfModelsWithoutOneAreAccepted) {
  for (const char* name : {"Qwen3_5ForConditionalGeneration", "Qwen3_5TextModel",
                           "Qwen3_5ForSequenceClassification"}) {
    EXPECT_EQ(FamilyOrRefused(Resolve(With(QwenDenseConfig(), {{"architectures", {name}}}))),
              "qwen3_5_dense")
        << name;
  }
  EXPECT_EQ(FamilyOrRefused(
                Resolve({{"model_type", "kimi_k2"}, {"architectures", {"DeepseekV3ForCausalLM"}}})),
            "none");
  EXPECT_EQ(FamilyOrRefused(
                Resolve({{"model_type", "brand_new"}, {"architectures", {"BrandNewForCausalLM"}}})),
            "none");
  const json experts = With(QwenDenseConfig(), {{"num_experts", 8}});
  EXPECT_EQ(FamilyOrRefused(Resolve(experts)), "qwen3_5_moe");
}

TEST(ResolveTest, TwoExactModelTypesInOneConfigAreRefused) {
  EXPECT_TRUE(Mentions(Resolve(Multimodal("glm_moe_dsa", QwenDenseConfig())).refusals,
                       RefusalCode::kStampConflict, "model_type", "qwen3_5_text"));
}

// ---------------------------------------------------------------- bad input

TEST(ResolveTest, UnreadableConfigsAreRefusedWithAReason) {
  for (const char* text : {"", "{", "[]", "null", "3", "{\"a\":1,\"a\":2}", "{\"a\":\"\xff\"}"}) {
    const Resolution resolution = ResolveConfig(text, {});
    EXPECT_EQ(resolution.family, "none");
    ASSERT_EQ(resolution.refusals.size(), 1u) << text;
    EXPECT_EQ(resolution.refusals[0].code, RefusalCode::kBadConfig) << text;
  }
  const std::string deep(200'000, '[');
  EXPECT_FALSE(ResolveConfig(deep, {}).contract.has_value());
  const std::string large = "{\"a\":\"" + std::string(5 << 20, 'x') + "\"}";
  EXPECT_FALSE(ResolveConfig(large, {}).contract.has_value());
}

TEST(ResolveTest, KeysOfAWrongTypeAreRefusedByPath) {
  EXPECT_TRUE(Mentions(Resolve(With(QwenDenseConfig(), {{"text_config", "x"}})).refusals,
                       RefusalCode::kBadConfig, "text_config", "an object"));
  EXPECT_TRUE(Mentions(Resolve(With(QwenDenseConfig(), {{"model_type", 5}})).refusals,
                       RefusalCode::kBadConfig, "model_type", "5"));
  EXPECT_TRUE(Mentions(Resolve(With(QwenDenseConfig(), {{"architectures", "Q"}})).refusals,
                       RefusalCode::kBadConfig, "architectures", "list"));
  EXPECT_TRUE(Mentions(Resolve(With(QwenDenseConfig(), {{"hidden_size", "128"}})).refusals,
                       RefusalCode::kBadConfig, "hidden_size", "whole number"));
  // Where no byte is claimed, an odd size is the model's own business.
  EXPECT_EQ(FamilyOrRefused(Resolve(With(LlamaConfig(), {{"intermediate_size", {1, 2}}}))), "none");
}

TEST(ResolveTest, JsonOfARefusalHasItsFamilyAsAStringAndItsReasons) {
  const json refused = ResolutionJson(Resolve(LlamaConfig(), Exact()));
  EXPECT_EQ(refused["family"], "none");
  EXPECT_TRUE(refused["contract_id"].is_null());
  EXPECT_EQ(refused["refusals"][0]["code"], "no_exact_family");
  EXPECT_EQ(refused["refusals"][0]["key"], "model_type");
  const json agreed = ResolutionJson(Resolve(GlmConfig(), Exact()));
  EXPECT_EQ(agreed["family"], "glm52");
  EXPECT_EQ(agreed["contract_id"].get<std::string>().size(), 64u);
  EXPECT_EQ(agreed["sites"]["dense_mlp"]["program"], std::string(kOneRound));
  EXPECT_EQ(agreed["sites"]["shared_expert"]["geometry"]["shard"], 128);
  EXPECT_EQ(agreed["local_partial"]["policy"], "local-partial v2");
  EXPECT_EQ(agreed["lora"], "none");
  EXPECT_EQ(agreed["level"], "tokens");
  EXPECT_TRUE(agreed["refusals"].empty());
}

}  // namespace
}  // namespace lockstep
