// Geometry, operands, what replaces a contract's own programs, and adapters: each rule with
// a config that passes and one that fails by one key.

#include "gtest/gtest.h"
#include "policy/refusal_testing.h"
#include "policy/registry.h"
#include "policy/resolve.h"
#include "policy/resolve_testing.h"

namespace lockstep {
namespace {

using nlohmann::json;

json SmallGlm() {
  return With(GlmConfig(),
              {{"hidden_size", 128}, {"intermediate_size", 256}, {"moe_intermediate_size", 64}});
}

uint64_t NumberAt(const Resolution& resolution, const char* site, const char* number) {
  return FindSite(*resolution.contract, site)->geometry.at(number);
}

TEST(ResolveGeometryTest, GlmAdmitsItsReleasedAndItsTraceGeometry) {
  const Resolution released = Resolve(GlmConfig(), Exact());
  ASSERT_EQ(FamilyOrRefused(released), "glm52");
  EXPECT_EQ(NumberAt(released, "dense_mlp", "tp"), 1);
  EXPECT_EQ(NumberAt(released, "dense_mlp", "shard"), 12288);
  EXPECT_EQ(NumberAt(released, "shared_expert", "tp"), 16);
  EXPECT_EQ(NumberAt(released, "shared_expert", "shard"), 128);
  const Resolution small = Resolve(SmallGlm(), Exact());
  ASSERT_EQ(FamilyOrRefused(small), "glm52");
  EXPECT_EQ(NumberAt(small, "shared_expert", "shard"), 4);
}

TEST(ResolveGeometryTest, GlmGeometryOutsideTheListIsRefusedByItsKey) {
  const std::pair<const char*, uint64_t> cases[] = {{"hidden_size", 6143},
                                                    {"intermediate_size", 12287},
                                                    {"moe_intermediate_size", 1408},
                                                    {"n_shared_experts", 2}};
  for (const json& base : {GlmConfig(), SmallGlm()}) {
    for (const auto& [key, value] : cases) {
      const Resolution refused = Resolve(With(base, {{key, value}}), Exact());
      EXPECT_TRUE(
          Mentions(refused.refusals, RefusalCode::kGeometryNotAdmitted, key, "(6144, 12288, 2048)"))
          << key;
      EXPECT_EQ(FamilyOrRefused(Resolve(With(base, {{key, value}}))), "none") << key;
    }
    json silent = base;
    silent.erase("hidden_size");
    EXPECT_TRUE(Mentions(Resolve(silent, Exact()).refusals, RefusalCode::kGeometryNotAdmitted,
                         "hidden_size", "got nothing"));
  }
}

TEST(ResolveGeometryTest, TheListBindsGlmOnly) {
  const json odd = With(QwenDenseConfig(), {{"hidden_size", 777}, {"intermediate_size", 999}});
  EXPECT_EQ(FamilyOrRefused(Resolve(odd, Exact())), "qwen3_5_dense");
}

TEST(ResolveGeometryTest, OmittedDegreesAreTheContractsOwnAndOthersAreRefused) {
  ResolveOptions options = Exact();
  options.tp = 16;
  options.ep = 16;
  options.cp = 1;
  EXPECT_EQ(ContractId(*Resolve(GlmConfig(), options).contract),
            ContractId(*Resolve(GlmConfig(), Exact()).contract));
  for (uint64_t tp : {1, 8, 32}) {
    options.tp = tp;
    EXPECT_TRUE(Mentions(Resolve(GlmConfig(), options).refusals, RefusalCode::kGeometryNotAdmitted,
                         "tp", "tp 16"))
        << tp;
  }
  options = Exact();
  options.ep = 3;
  EXPECT_TRUE(Mentions(Resolve(GlmConfig(), options).refusals, RefusalCode::kGeometryNotAdmitted,
                       "ep", "16 logical contributors"));
  options.ep = 8;
  EXPECT_EQ(FamilyOrRefused(Resolve(GlmConfig(), options)), "glm52");
  options.cp = 2;
  EXPECT_TRUE(Mentions(Resolve(GlmConfig(), options).refusals, RefusalCode::kGeometryNotAdmitted,
                       "cp", "glm52"));
}

TEST(ResolveGeometryTest, DegreesMustBePositiveAndBounded) {
  for (uint64_t degree : {uint64_t{0}, kMaxDegree + 1}) {
    ResolveOptions options;
    options.dp = degree;
    EXPECT_TRUE(Mentions(Resolve(LlamaConfig(), options).refusals,
                         RefusalCode::kGeometryNotAdmitted, "dp", "degree"));
  }
}

TEST(ResolveGeometryTest, IntermediateMustDivideOverTensorParallelRanks) {
  ResolveOptions options;
  options.tp = 2;
  const Resolution halves = Resolve(QwenDenseConfig(), options);
  ASSERT_EQ(FamilyOrRefused(halves), "qwen3_5_dense");
  EXPECT_EQ(NumberAt(halves, "dense_mlp", "shard"), 192);
  options.tp = 5;
  EXPECT_TRUE(Mentions(Resolve(QwenDenseConfig(), options).refusals,
                       RefusalCode::kGeometryNotAdmitted, "sites.dense_mlp", "384"));
}

TEST(ResolveGeometryTest, ExpertsMustDivideOverExpertParallelRanks) {
  ResolveOptions options;
  options.ep = 8;
  const Resolution resolution = Resolve(QwenMoeConfig(), options);
  ASSERT_EQ(FamilyOrRefused(resolution), "qwen3_5_moe");
  EXPECT_EQ(resolution.contract->local_partial->contributors, 8);
  options.ep = 7;
  EXPECT_TRUE(Mentions(Resolve(QwenMoeConfig(), options).refusals,
                       RefusalCode::kGeometryNotAdmitted, "ep", "256 experts"));
  options.ep = 2;
  EXPECT_TRUE(Mentions(Resolve(QwenDenseConfig(), options).refusals,
                       RefusalCode::kGeometryNotAdmitted, "ep", "no experts"));
}

TEST(ResolveGeometryTest, ContextParallelGatedDeltaNetStaysOnTheGrid) {
  ResolveOptions options;
  options.cp = 4;
  options.sequence_tokens = 1024;
  const Resolution split = Resolve(QwenDenseConfig(), options);
  ASSERT_EQ(FamilyOrRefused(split), "qwen3_5_dense");
  EXPECT_EQ(ProgramAt(split, "gdn_prefill"), "gdn_cp/relay@v1");
  EXPECT_EQ(NumberAt(split, "gdn_prefill", "cp"), 4);
  EXPECT_EQ(ProgramAt(Resolve(QwenDenseConfig()), "gdn_prefill"), "gdn/chunk64@v1");
  options.sequence_tokens = 1024 + 64;
  EXPECT_TRUE(Mentions(Resolve(QwenDenseConfig(), options).refusals,
                       RefusalCode::kOperandNotAdmitted, "sequence_tokens", "512"));
}

TEST(ResolveGeometryTest, SitesFollowTheLayerTypes) {
  const Resolution attention =
      Resolve(With(QwenDenseConfig(), {{"layer_types", {"full_attention"}}}));
  EXPECT_EQ(ProgramAt(attention, "gdn_prefill"), "absent");
  EXPECT_EQ(ProgramAt(attention, "attention"), "softmax_attention/k_ascending@v1");
  const Resolution linear =
      Resolve(With(QwenDenseConfig(), {{"layer_types", {"linear_attention"}}}));
  EXPECT_EQ(ProgramAt(linear, "attention"), "absent");
  EXPECT_EQ(ProgramAt(linear, "gdn_decode"), "gdn/recurrent@v1");
}

TEST(ResolveGeometryTest, OtherDtypesThanBf16AreRefusedWhereExactnessIsDemanded) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    for (const char* value : {"float16", "float32"}) {
      const json config = With(QwenDenseConfig(), {{key, value}});
      EXPECT_TRUE(
          Mentions(Resolve(config, Exact()).refusals, RefusalCode::kOperandNotAdmitted, key, value))
          << key;
      EXPECT_EQ(FamilyOrRefused(Resolve(config)), "none");
    }
    for (const json& fine : {json("bfloat16"), json(nullptr)}) {
      EXPECT_EQ(FamilyOrRefused(Resolve(With(QwenDenseConfig(), {{key, fine}}), Exact())),
                "qwen3_5_dense");
    }
  }
}

TEST(ResolveGeometryTest, ConstantsThatReachEveryOutputArePartOfTheContract) {
  const Digest256 id = ContractId(*Resolve(GlmConfig(), Exact()).contract);
  for (const json& change : {json{{"rms_norm_eps", 1e-5}}, json{{"routed_scaling_factor", 2.0}}}) {
    EXPECT_NE(ContractId(*Resolve(With(GlmConfig(), change), Exact()).contract), id) << change;
  }
}

// ---------------------------------------------------------------- overrides

TEST(ResolveOverrideTest, LocalPartialReplacesLeafAndFoldUnderAnyOfItsNames) {
  for (const char* name : {"v3", "local-partial v3", "local-partial@v3",
                           "glm52_routed_final_scaled_then_shared_ep_slice_fp32_then_bf16_v3"}) {
    ResolveOptions options = Exact();
    options.local_partial = name;
    const Resolution resolution = Resolve(GlmConfig(), options);
    EXPECT_EQ(ProgramAt(resolution, "moe_leaf"), "moe_leaf/fp32_fma@v1") << name;
    EXPECT_EQ(ProgramAt(resolution, "moe_fold"), "moe_fold/fp64_tree@v3") << name;
    EXPECT_EQ(LocalPartialName(*resolution.contract->local_partial), "local-partial v3") << name;
  }
  EXPECT_EQ(LocalPartialName(*Resolve(GlmConfig(), Exact()).contract->local_partial),
            "local-partial v2");
}

TEST(ResolveOverrideTest, UnknownLocalPartialListsTheNearestKnownNames) {
  ResolveOptions options = Exact();
  options.local_partial = "glm52_routed_final_scaled_then_shared_ep_slice_bf16_v1";
  EXPECT_TRUE(Mentions(Resolve(GlmConfig(), options).refusals, RefusalCode::kUnknownIdentifier,
                       "local_partial",
                       "'glm52_routed_final_scaled_then_shared_ep_slice_bf16_v2'"));
}

TEST(ResolveOverrideTest, LocalPartialWithoutItsSiteIsRefused) {
  ResolveOptions options;
  options.local_partial = "v3";
  for (const json& config : {LlamaConfig(), QwenDenseConfig(), GlmConfig()}) {
    EXPECT_TRUE(Mentions(Resolve(config, options).refusals, RefusalCode::kBadConfig,
                         "local_partial", "no moe_leaf"));
  }
}

TEST(ResolveOverrideTest, SwiGluReplacesTheDenseAndSharedSites) {
  ResolveOptions options = Exact();
  options.swiglu = "two_round";
  const Resolution glm = Resolve(GlmConfig(), options);
  EXPECT_EQ(ProgramAt(glm, "dense_mlp"), kTwoRound);
  EXPECT_EQ(ProgramAt(glm, "shared_expert"), kTwoRound);
  EXPECT_NE(ContractId(*glm.contract), ContractId(*Resolve(GlmConfig(), Exact()).contract));
  options = {};
  options.swiglu = std::string(kOneRound);
  const Resolution llama = Resolve(LlamaConfig(), options);
  EXPECT_EQ(llama.family, "none");
  EXPECT_EQ(ProgramAt(llama, "dense_mlp"), kOneRound);
}

TEST(ResolveOverrideTest, UnknownOrMisplacedSwiGluIsRefused) {
  ResolveOptions options;
  options.swiglu = "one_rond";
  EXPECT_TRUE(Mentions(Resolve(QwenDenseConfig(), options).refusals,
                       RefusalCode::kUnknownIdentifier, "swiglu", "'one_round'"));
  options.swiglu = "gemm/k_chain@v1";
  EXPECT_TRUE(Mentions(Resolve(QwenDenseConfig(), options).refusals,
                       RefusalCode::kUnknownIdentifier, "swiglu", "cannot be chosen"));
  options.swiglu = "one_round";
  EXPECT_TRUE(Mentions(Resolve({{"model_type", "gpt_oss"}}, options).refusals,
                       RefusalCode::kUnfitActivation, "swiglu", "not a plain SwiGLU"));
}

TEST(ResolveOverrideTest, ToleranceIsForFamilyNoneOnly) {
  ResolveOptions options;
  options.tolerance = Tolerance{1e-3f, 1e-4f};
  EXPECT_EQ(FamilyOrRefused(Resolve(LlamaConfig(), options)), "none");
  EXPECT_TRUE(Mentions(Resolve(QwenDenseConfig(), options).refusals, RefusalCode::kBadConfig,
                       "tolerance", "bit for bit"));
}

// ---------------------------------------------------------------- adapters

TEST(ResolveAdapterTest, ActiveLaneStatesItsAdapterContractsAtVersionTwo) {
  const Resolution resolution = Resolve(GlmConfig(), InLane(Lane::kActiveLora));
  ASSERT_TRUE(resolution.contract.has_value());
  const Lora& lora = resolution.contract->lora;
  EXPECT_EQ(LoraName(lora), "active@v2");
  EXPECT_EQ(lora.rank, 1);
  EXPECT_EQ(lora.targets.size(), 5u);
  EXPECT_EQ(lora.lanes.at("shared_expert"), "glm52_exact_tp16_shared_expert_rank1_qlora_v2");
  EXPECT_EQ(lora.lanes.at("dense_mlp"), "glm52_exact_tp1_dense_mlp_rank1_qlora_v2");
  EXPECT_EQ(ProgramAt(resolution, "lora"), "lora/active@v2");
  EXPECT_EQ(Resolve(GlmConfig(), InLane(Lane::kFullParam)).contract->lora.kind, LoraKind::kNone);
}

TEST(ResolveAdapterTest, RankOutsideTheContractIsRefused) {
  ResolveOptions options = InLane(Lane::kActiveLora);
  options.adapter.rank = 1;
  EXPECT_EQ(FamilyOrRefused(Resolve(GlmConfig(), options)), "glm52");
  options.adapter.rank = 8;
  EXPECT_TRUE(Mentions(Resolve(GlmConfig(), options).refusals, RefusalCode::kOperandNotAdmitted,
                       "adapter.rank", "rank 1"));
  EXPECT_EQ(FamilyOrRefused(Resolve(QwenDenseConfig(), options)), "qwen3_5_dense");
}

TEST(ResolveAdapterTest, PartialOrUnknownTargetSetIsRefused) {
  ResolveOptions options = InLane(Lane::kActiveLora);
  options.adapter.targets = {"dense_mlp", "shared_expert"};
  EXPECT_TRUE(Mentions(Resolve(GlmConfig(), options).refusals, RefusalCode::kPartialFamily,
                       "adapter.targets", "'lm_head' is missing"));
  options.adapter.targets = {"dense_mlp", "embedding"};
  EXPECT_TRUE(Mentions(Resolve(QwenDenseConfig(), options).refusals,
                       RefusalCode::kUnknownIdentifier, "adapter.targets", "'embedding'"));
}

TEST(ResolveAdapterTest, MergedAdaptersAreAnotherContract) {
  ResolveOptions options = InLane(Lane::kScoring);
  options.adapter.merged = true;
  const Resolution merged = Resolve(GlmConfig(), options);
  EXPECT_EQ(LoraName(merged.contract->lora), "merged@v1");
  EXPECT_NE(ContractId(*merged.contract),
            ContractId(*Resolve(GlmConfig(), InLane(Lane::kActiveLora)).contract));
}

TEST(ResolveAdapterTest, AdapterOptionsOutsideTheLaneAreRefused) {
  ResolveOptions options = Exact();
  options.adapter.rank = 1;
  EXPECT_TRUE(Mentions(Resolve(GlmConfig(), options).refusals, RefusalCode::kBadConfig, "adapter",
                       "active_lora"));
}

}  // namespace
}  // namespace lockstep
