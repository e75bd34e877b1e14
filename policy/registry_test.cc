#include "policy/registry.h"

#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "policy/ids.h"
#include "policy/nearest.h"

namespace lockstep {
namespace {

TEST(RegistryTest, EveryNameIsListedOnceAndDescribed) {
  std::set<absl::string_view> ids;
  for (const ProgramInfo& program : Programs()) {
    EXPECT_TRUE(ids.insert(program.id).second) << program.id;
    EXPECT_FALSE(program.description.empty()) << program.id;
    EXPECT_FALSE(program.bytes.empty()) << program.id;
    EXPECT_TRUE(absl::StrContains(program.id, "@v")) << program.id;
    const bool placed =
        program.kind == ProgramKind::kForward || program.kind == ProgramKind::kRetired;
    EXPECT_EQ(program.sites.empty(), !placed) << program.id;
  }
  for (const AliasInfo& alias : Aliases())
    EXPECT_TRUE(ids.insert(alias.alias).second) << alias.alias;
}

TEST(RegistryTest, EveryAliasLeadsToAKnownName) {
  for (const AliasInfo& alias : Aliases()) {
    const bool known = FindProgram(alias.target) != nullptr ||
                       FindLocalPartial(alias.target) != nullptr ||
                       FindAdapterLane(alias.target) != nullptr;
    EXPECT_TRUE(known) << alias.alias << " -> " << alias.target;
    EXPECT_EQ(CanonicalName(alias.kind, alias.alias), alias.target);
  }
}

TEST(RegistryTest, EveryFamilySiteHasAProgramThatStandsThere) {
  for (const FamilyInfo& family : Families()) {
    for (const FamilySite& site : family.sites) {
      const ProgramInfo* program = FindProgram(site.program);
      ASSERT_NE(program, nullptr) << family.name << " " << site.site;
      EXPECT_EQ(program->kind, ProgramKind::kForward) << site.program;
      EXPECT_TRUE(ProgramStandsAt(*program, site.site)) << site.program << " at " << site.site;
    }
  }
}

TEST(RegistryTest, EveryEffectIsOfKnownNamesAndOrderFree) {
  for (const EffectInfo& effect : Effects()) {
    for (absl::string_view id : {effect.a, effect.b}) {
      const bool known = FindProgram(id) != nullptr || FindRealisation(id, "bf16") != nullptr ||
                         FindLocalPartial(id) != nullptr;
      EXPECT_TRUE(known) << id;
    }
    EXPECT_EQ(EffectOf(effect.a, effect.b), EffectOf(effect.b, effect.a));
    EXPECT_EQ(EffectOf(effect.a, effect.b), effect.text);
  }
}

TEST(RegistryTest, RealisationDigestsAreThoseOfTheSpecification) {
  const std::map<std::string, std::string> expected = {
      {"silu/ieee@v1", "274ebf0ac6bccfe960ce26de023946959df3384ebdc1dd08b1643ae8f05d9cd1"},
      {"silu/sm90_triton@v1", "e1b2e9e64ae5bb65c19bb118940f3b0ada7684124a0413b5d977acff7f7f663f"},
      {"silu/torch_cuda@v1", "ad9dc434bb1acf2f1b5f13417d107e5f64c0c70619988c0419439382b21adf94"},
      {"silu/torch_cpu@v1", "aad4b7a5fc11114c6fb348753112530ef0d412dbc1b38dcba7ee35242cdff6eb"}};
  for (const auto& [id, digest] : expected) {
    ASSERT_NE(FindRealisation(id, "bf16"), nullptr);
    EXPECT_EQ(FindRealisation(id, "bf16")->digest_hex, digest) << id;
  }
  EXPECT_EQ(FindRealisation("silu/ieee@v1", "fp16")->digest_hex,
            "2e14d77bb5a081a710eac9572751acf0add09981f16292b9f86935720e94fb6f");
  EXPECT_EQ(FindRealisation("silu/torch_cpu@v1", "fp16"), nullptr);
}

TEST(RegistryTest, FieldStringsOfLocalPartialAreAliases) {
  EXPECT_EQ(CanonicalName(AliasKind::kLocalPartial,
                          "glm52_routed_final_scaled_then_shared_ep_slice_bf16_v2"),
            "local-partial v2");
  EXPECT_EQ(CanonicalName(AliasKind::kLocalPartial,
                          "glm52_routed_final_scaled_then_shared_ep_slice_fp32_then_bf16_v3"),
            "local-partial v3");
}

TEST(RegistryTest, NamesAreComparedWhole) {
  EXPECT_EQ(FindProgram("swiglu/two_round@v"), nullptr);
  EXPECT_EQ(FindProgram("swiglu/two_round@v1 "), nullptr);
  EXPECT_EQ(FindProgram("swiglu/two_round@v10"), nullptr);
  EXPECT_EQ(CanonicalName(AliasKind::kLocalPartial, "one_round"), "one_round");
}

TEST(RegistryTest, BothVersionsOfTheAdapterContractsAreKnownAndOneIsCurrent) {
  for (const char* stem : {"glm52_exact_tp16_shared_expert_rank1_qlora_v",
                           "glm52_exact_tp1_dense_mlp_rank1_qlora_v"}) {
    ASSERT_NE(FindAdapterLane(std::string(stem) + "1"), nullptr);
    EXPECT_FALSE(FindAdapterLane(std::string(stem) + "1")->current);
    ASSERT_NE(FindAdapterLane(std::string(stem) + "2"), nullptr);
    EXPECT_TRUE(FindAdapterLane(std::string(stem) + "2")->current);
  }
}

TEST(RegistryTest, LongestModelTypeStemWins) {
  EXPECT_EQ(FindModelType("qwen3_moe")->label, "Qwen3-MoE");
  EXPECT_EQ(FindModelType("qwen3_next")->label, "Qwen3-Next");
  EXPECT_EQ(FindModelType("glm4_moe_lite")->label, "GLM-4.7-Flash");
  EXPECT_EQ(FindModelType("gpt2"), nullptr);
}

TEST(NearestNamesTest, NearestComeFirstAndAtMostThree) {
  const std::vector<std::string> known = {"one_round", "two_round", "gemm", "norm"};
  const std::vector<std::string> nearest = NearestNames("two_rond", known);
  ASSERT_EQ(nearest.size(), 3u);
  EXPECT_EQ(nearest[0], "two_round");
  EXPECT_EQ(nearest[1], "one_round");
  EXPECT_TRUE(NearestNames("x", {}).empty());
}

}  // namespace
}  // namespace lockstep
