#include "policy/site_check.h"

#include "gtest/gtest.h"
#include "policy/refusal_testing.h"
#include "policy/resolve_testing.h"

namespace lockstep {
namespace {

Contract Glm(Lane lane) { return *Resolve(GlmConfig(), InLane(lane)).contract; }

SiteOperands SharedExpert() {
  SiteOperands operands;
  operands.hidden = 6144;
  operands.intermediate = 2048;
  operands.tp = 16;
  operands.batch_rows = 4;
  return operands;
}

// The operands above changed by `change` are refused by this code and key.
void ExpectRefused(const Contract& contract, const char* site, RefusalCode code, const char* key,
                   const char* text, void (*change)(SiteOperands&)) {
  SiteOperands operands = SharedExpert();
  change(operands);
  EXPECT_TRUE(Mentions(CheckSiteOperands(contract, site, operands), code, key, text)) << key;
}

TEST(SiteCheckTest, OperandsOfTheContractAreAdmitted) {
  EXPECT_TRUE(CheckSiteOperands(Glm(Lane::kScoring), "shared_expert", SharedExpert()).empty());
}

TEST(SiteCheckTest, EachOperandOutsideTheContractIsRefusedByName) {
  const Contract contract = Glm(Lane::kScoring);
  const char* site = "shared_expert";
  ExpectRefused(contract, site, RefusalCode::kUnfitActivation, "sites.shared_expert.activation",
                "gelu", [](SiteOperands& o) { o.activation = "gelu"; });
  ExpectRefused(contract, site, RefusalCode::kOperandNotAdmitted, "sites.shared_expert.dtype",
                "float16", [](SiteOperands& o) { o.dtype = "float16"; });
  ExpectRefused(contract, site, RefusalCode::kOperandNotAdmitted, "sites.shared_expert.contiguous",
                "dense buffer", [](SiteOperands& o) { o.contiguous = false; });
  ExpectRefused(contract, site, RefusalCode::kOperandNotAdmitted, "sites.shared_expert.batch",
                "empty", [](SiteOperands& o) { o.batch_rows = 0; });
  ExpectRefused(contract, site, RefusalCode::kGeometryNotAdmitted, "sites.shared_expert.hidden",
                "6144", [](SiteOperands& o) { o.hidden = 4096; });
  ExpectRefused(contract, site, RefusalCode::kGeometryNotAdmitted,
                "sites.shared_expert.intermediate", "2048",
                [](SiteOperands& o) { o.intermediate = 1408; });
  ExpectRefused(contract, site, RefusalCode::kGeometryNotAdmitted, "sites.shared_expert.tp", "16",
                [](SiteOperands& o) { o.tp = 8; });
  ExpectRefused(contract, site, RefusalCode::kOperandNotAdmitted, "sites.shared_expert.transport",
                "now on 'nccl'", [](SiteOperands& o) {
                  o.transport_at_start = "cuda_ipc";
                  o.transport_now = "nccl";
                });
}

TEST(SiteCheckTest, TrainableBaseIsRefusedInAnAdapterLaneOnly) {
  SiteOperands operands = SharedExpert();
  operands.base_trainable = true;
  EXPECT_TRUE(CheckSiteOperands(Glm(Lane::kFullParam), "shared_expert", operands).empty());
  EXPECT_TRUE(Mentions(CheckSiteOperands(Glm(Lane::kActiveLora), "shared_expert", operands),
                       RefusalCode::kOperandNotAdmitted, "sites.shared_expert.base", "frozen"));
}

TEST(SiteCheckTest, ContributorsFoldInOrdinalOrderOrNotAtAll) {
  const Contract contract = Glm(Lane::kScoring);
  std::vector<uint64_t> order(16);
  for (uint64_t i = 0; i < 16; ++i) order[i] = i;
  SiteOperands operands;
  operands.contributor_order = order;
  EXPECT_TRUE(CheckSiteOperands(contract, "moe_fold", operands).empty());
  std::swap((*operands.contributor_order)[3], (*operands.contributor_order)[4]);
  EXPECT_TRUE(Mentions(CheckSiteOperands(contract, "moe_fold", operands),
                       RefusalCode::kOperandNotAdmitted, "sites.moe_fold.contributor_order",
                       "ordinal order"));
  operands.contributor_order->assign(order.begin(), order.end() - 1);
  EXPECT_FALSE(CheckSiteOperands(contract, "moe_fold", operands).empty());
}

TEST(SiteCheckTest, GatedDeltaNetIsCutOnTheGridWithAFloat32State) {
  const Contract contract = *Resolve(QwenDenseConfig()).contract;
  SiteOperands operands;
  operands.gdn_cuts = {0, 64, 640};
  EXPECT_TRUE(CheckSiteOperands(contract, "gdn_prefill", operands).empty());
  operands.gdn_cuts.push_back(650);
  EXPECT_TRUE(Mentions(CheckSiteOperands(contract, "gdn_prefill", operands),
                       RefusalCode::kOperandNotAdmitted, "sites.gdn_prefill.gdn_cuts", "650"));
  operands.gdn_cuts.clear();
  operands.gdn_state_dtype = "bfloat16";
  EXPECT_TRUE(Mentions(CheckSiteOperands(contract, "gdn_decode", operands),
                       RefusalCode::kOperandNotAdmitted, "sites.gdn_decode.gdn_state", "bfloat16"));
}

TEST(SiteCheckTest, SiteThatTheContractDoesNotHaveIsRefused) {
  EXPECT_TRUE(Mentions(CheckSiteOperands(Glm(Lane::kScoring), "shared_exprt", SharedExpert()),
                       RefusalCode::kUnknownIdentifier, "sites.shared_exprt", "'shared_expert'"));
}

TEST(SiteCheckTest, FamilyNoneClaimsNothing) {
  SiteOperands operands = SharedExpert();
  operands.dtype = "float32";
  EXPECT_TRUE(CheckSiteOperands(*Resolve(LlamaConfig()).contract, "dense_mlp", operands).empty());
}

TEST(SiteCheckTest, AdaptersAreTheContractsMemberForMember) {
  const Contract contract = Glm(Lane::kActiveLora);
  const AdapterOperands good{
      contract.lora.rank,
      contract.lora.alpha,
      {"shared_expert", "dense_mlp", "lm_head", "attention", "routed_experts"}};
  EXPECT_TRUE(CheckAdapterOperands(contract, good).empty());
  AdapterOperands bad = good;
  bad.rank = 8;
  EXPECT_TRUE(Mentions(CheckAdapterOperands(contract, bad), RefusalCode::kOperandNotAdmitted,
                       "lora.rank", "rank 1"));
  bad = good;
  bad.alpha = 16;
  EXPECT_TRUE(Mentions(CheckAdapterOperands(contract, bad), RefusalCode::kOperandNotAdmitted,
                       "lora.alpha", "got 16"));
  bad = good;
  bad.targets.pop_back();
  EXPECT_TRUE(Mentions(CheckAdapterOperands(contract, bad), RefusalCode::kPartialFamily,
                       "lora.targets", "exactly"));
  bad = good;
  bad.base_trainable = true;
  EXPECT_TRUE(Mentions(CheckAdapterOperands(contract, bad), RefusalCode::kOperandNotAdmitted,
                       "lora.base", "frozen"));
  EXPECT_FALSE(CheckAdapterOperands(Glm(Lane::kScoring), good).empty());
}

}  // namespace
}  // namespace lockstep
