// The stamp, the legacy flags, the active-LoRA flags, and who wins over whom.

#include "gtest/gtest.h"
#include "policy/config_facts.h"
#include "policy/refusal_testing.h"
#include "policy/resolve.h"
#include "policy/resolve_testing.h"

namespace lockstep {
namespace {

using nlohmann::json;

json Flags(int true_flags) {
  json flags;
  for (int i = 0; i < 5; ++i) flags[std::string(kActiveLoraFlags[i])] = i < true_flags;
  return flags;
}

TEST(ResolveStampTest, StampDecidesWithoutBeingAsked) {
  EXPECT_EQ(FamilyOrRefused(Resolve(With(GlmConfig(), {{"_exact_contract_family", "glm52"}}))),
            "glm52");
  for (const json& none : {json(nullptr), json("none")}) {
    const json config = With(QwenDenseConfig(), {{"_exact_contract_family", none}});
    EXPECT_EQ(FamilyOrRefused(Resolve(config)), "none");
  }
}

TEST(ResolveStampTest, StampWinsOverEveryFlag) {
  const json flagged = With(GlmConfig(), {{"_glm52_exact_contract", true}});
  EXPECT_EQ(FamilyOrRefused(Resolve(flagged)), "glm52");
  EXPECT_EQ(FamilyOrRefused(Resolve(With(flagged, {{"_exact_contract_family", "none"}}))), "none");
  EXPECT_EQ(FamilyOrRefused(Resolve(With(flagged, {{"_exact_contract_family", nullptr}}))), "none");
  const json foreign = With(QwenDenseConfig(), {{"_glm52_exact_contract", true},
                                                {"_exact_contract_family", "qwen3_5_dense"}});
  EXPECT_EQ(FamilyOrRefused(Resolve(foreign)), "qwen3_5_dense");
  const Resolution lora =
      Resolve(With(With(GlmConfig(), Flags(5)), {{"_exact_contract_family", "glm52"}}));
  ASSERT_EQ(FamilyOrRefused(lora), "glm52");
  EXPECT_EQ(lora.contract->lora.kind, LoraKind::kNone);
}

TEST(ResolveStampTest, StampOfAnotherOrUnknownFamilyIsRefusedByItsKey) {
  EXPECT_TRUE(
      Mentions(Resolve(With(GlmConfig(), {{"_exact_contract_family", "qwen3_5_dense"}})).refusals,
               RefusalCode::kStampConflict, "_exact_contract_family", "glm52"));
  EXPECT_TRUE(Mentions(Resolve(With(LlamaConfig(), {{"_exact_contract_family", "glm52"}})).refusals,
                       RefusalCode::kStampConflict, "_exact_contract_family", "llama"));
  EXPECT_TRUE(Mentions(Resolve(With(GlmConfig(), {{"_exact_contract_family", "glm51"}})).refusals,
                       RefusalCode::kUnknownIdentifier, "_exact_contract_family", "'glm52'"));
  EXPECT_TRUE(Mentions(Resolve(With(GlmConfig(), {{"_exact_contract_family", true}})).refusals,
                       RefusalCode::kBadConfig, "_exact_contract_family", "true"));
}

TEST(ResolveStampTest, StampMayStandInTheTextPartAndMustNotDiffer) {
  json config = Multimodal("qwen3_5", QwenDenseConfig());
  config["text_config"]["_exact_contract_family"] = "none";
  EXPECT_EQ(FamilyOrRefused(Resolve(config)), "none");
  config["_exact_contract_family"] = nullptr;  // the same in other words
  EXPECT_EQ(FamilyOrRefused(Resolve(config)), "none");
  config["_exact_contract_family"] = "qwen3_5_dense";
  EXPECT_TRUE(Mentions(Resolve(config).refusals, RefusalCode::kStampConflict,
                       "text_config._exact_contract_family", "_exact_contract_family"));
}

TEST(ResolveStampTest, AskingExplicitlyOverwritesWhateverStampAndFlagsAreStale) {
  for (const json& stale : {json("none"), json(nullptr), json("qwen3_5_dense"), json("?")}) {
    const json config = With(GlmConfig(), {{"_exact_contract_family", stale},
                                           {"_qwen35_exact_contract", true},
                                           {"_exact_one_round_swiglu", false}});
    for (const ResolveOptions& options : {Exact(), InLane(Lane::kScoring)}) {
      const Resolution resolution = Resolve(config, options);
      ASSERT_EQ(FamilyOrRefused(resolution), "glm52") << stale;
      const json stamped = json::parse(resolution.stamped_config);
      EXPECT_EQ(stamped["_exact_contract_family"], "glm52");
      EXPECT_EQ(stamped["_exact_one_round_swiglu"], true);
      EXPECT_FALSE(stamped.contains("_qwen35_exact_contract"));
    }
  }
}

TEST(ResolveStampTest, OneStampIsWrittenAndReadsBackAsTheSameFamily) {
  json nested = Multimodal("qwen3_5", QwenDenseConfig());
  nested["text_config"]["_exact_contract_family"] = "qwen3_5_dense";
  for (const json& config :
       {QwenDenseConfig(), QwenMoeConfig(), GlmConfig(), LlamaConfig(), nested}) {
    for (Lane lane : {Lane::kNone, Lane::kScoring, Lane::kFullParam}) {
      const Resolution first = Resolve(config, InLane(lane));
      ASSERT_TRUE(first.contract.has_value());
      const json stamped = json::parse(first.stamped_config);
      EXPECT_EQ(stamped["_exact_contract_family"], first.family);
      if (stamped.contains("text_config")) {
        EXPECT_FALSE(stamped["text_config"].contains("_exact_contract_family"));
      }
      const Resolution second = Resolve(stamped);
      ASSERT_TRUE(second.contract.has_value());
      EXPECT_EQ(ContractId(*second.contract), ContractId(*first.contract));
    }
  }
}

TEST(ResolveStampTest, IncoherentStampIsRefused) {
  EXPECT_TRUE(Mentions(Resolve(With(GlmConfig(), {{"_exact_one_round_swiglu", true},
                                                  {"_exact_contract_family", "none"}}))
                           .refusals,
                       RefusalCode::kStampConflict, "_exact_one_round_swiglu", "one-round"));
  EXPECT_EQ(FamilyOrRefused(Resolve(With(GlmConfig(), {{"_exact_one_round_swiglu", true},
                                                       {"_exact_contract_family", "glm52"}}))),
            "glm52");
}

TEST(ResolveStampTest, LegacyFlagsAskForTheirFamily) {
  EXPECT_EQ(FamilyOrRefused(Resolve(With(QwenDenseConfig(), {{"_qwen35_exact_contract", true}}))),
            "qwen3_5_dense");
  EXPECT_EQ(FamilyOrRefused(Resolve(With(GlmConfig(), {{"_glm52_exact_contract", true}}))),
            "glm52");
  EXPECT_EQ(FamilyOrRefused(Resolve(With(GlmConfig(), {{"_glm52_fullparam_training", true}}))),
            "glm52");
  json inner = Multimodal("glm_wrapper", GlmConfig());
  inner["text_config"]["_glm52_exact_contract"] = true;
  EXPECT_EQ(FamilyOrRefused(Resolve(inner)), "glm52");
}

TEST(ResolveStampTest, FalseFlagIsAnAbsentOne) {
  EXPECT_EQ(FamilyOrRefused(Resolve(With(GlmConfig(), {{"_glm52_exact_contract", false}}))),
            "none");
  EXPECT_EQ(FamilyOrRefused(Resolve(With(LlamaConfig(), {{"_glm52_exact_contract", false}}))),
            "none");
  EXPECT_EQ(FamilyOrRefused(Resolve(With(GlmConfig(), Flags(0)))), "none");
  json both = Multimodal("glm_wrapper", With(GlmConfig(), {{"_glm52_exact_contract", true}}));
  both["_glm52_exact_contract"] = false;
  EXPECT_EQ(FamilyOrRefused(Resolve(both)), "glm52");
}

TEST(ResolveStampTest, FlagOfAnotherFamilyIsRefusedByItsKey) {
  for (const char* flag : {"_glm52_exact_contract", "_glm52_fullparam_training"}) {
    for (const json& config : {QwenDenseConfig(), LlamaConfig()}) {
      EXPECT_TRUE(Mentions(Resolve(With(config, {{flag, true}})).refusals,
                           RefusalCode::kStampConflict, flag, "glm52"))
          << flag;
    }
  }
  EXPECT_TRUE(Mentions(Resolve(With(GlmConfig(), {{"_qwen35_exact_contract", true}})).refusals,
                       RefusalCode::kStampConflict, "_qwen35_exact_contract", "glm_moe_dsa"));
  EXPECT_TRUE(Mentions(Resolve(With(LlamaConfig(), Flags(5))).refusals, RefusalCode::kStampConflict,
                       kActiveLoraFlags[0], "llama"));
}

TEST(ResolveStampTest, FlagThatIsNoTruthValueIsRefused) {
  EXPECT_TRUE(Mentions(Resolve(With(GlmConfig(), {{"_glm52_exact_contract", "yes"}})).refusals,
                       RefusalCode::kBadConfig, "_glm52_exact_contract", "\"yes\""));
}

TEST(ResolveStampTest, AllFiveActiveLoraFlagsAskForTheLane) {
  const Resolution resolution = Resolve(With(GlmConfig(), Flags(5)));
  ASSERT_EQ(FamilyOrRefused(resolution), "glm52");
  EXPECT_EQ(LoraName(resolution.contract->lora), "active@v2");
  EXPECT_EQ(ContractId(*resolution.contract),
            ContractId(*Resolve(GlmConfig(), InLane(Lane::kActiveLora)).contract));
}

TEST(ResolveStampTest, PartialActiveLoraFlagsAreRefusedWhoeverAsks) {
  for (int count = 1; count < 5; ++count) {
    const json config = With(GlmConfig(), Flags(count));
    for (const ResolveOptions& options :
         {ResolveOptions{}, Exact(), InLane(Lane::kScoring), InLane(Lane::kActiveLora)}) {
      EXPECT_TRUE(Mentions(Resolve(config, options).refusals, RefusalCode::kPartialFamily,
                           kActiveLoraFlags[4], "all five"))
          << count;
    }
  }
}

TEST(ResolveStampTest, AdapterLaneWithATrainableBaseIsRefused) {
  const json config = With(With(GlmConfig(), Flags(5)), {{"_glm52_fullparam_training", true}});
  EXPECT_TRUE(Mentions(Resolve(config).refusals, RefusalCode::kStampConflict,
                       "_glm52_fullparam_training", "frozen"));
  ResolveOptions options = InLane(Lane::kActiveLora);
  options.adapter.trainable_base = true;
  EXPECT_TRUE(Mentions(Resolve(GlmConfig(), options).refusals, RefusalCode::kOperandNotAdmitted,
                       "adapter.trainable_base", "frozen"));
}

}  // namespace
}  // namespace lockstep
