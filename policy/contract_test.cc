#include "policy/contract.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "policy/contract_testing.h"
#include "policy/refusal_testing.h"
#include "policy/registry.h"
#include "rapidcheck/gtest.h"

namespace lockstep {
namespace {

using nlohmann::json;

Contract Glm() { return *Resolve(GlmConfig(), Exact()).contract; }

json GlmJson() { return json::parse(ContractToJson(Glm())); }

std::vector<Refusal> ReasonsAgainst(const json& contract) {
  return ReadContract(contract.dump()).refusals;
}

TEST(ContractTest, CanonicalFormHasSortedKeysNoWhiteSpaceAndFloatsAsBits) {
  const std::string canonical = CanonicalContract(Glm());
  EXPECT_TRUE(absl::StartsWith(canonical, "{\"family\":\"glm52\",\"format\":"));
  EXPECT_TRUE(absl::StrContains(canonical, "\"scale\":\"40200000\"")) << canonical;  // 2.5
  EXPECT_TRUE(absl::StrContains(canonical, "\"temperature\":\"3f800000\""));
  EXPECT_FALSE(absl::StrContains(canonical, ": "));
  EXPECT_FALSE(absl::StrContains(canonical, ", "));
  EXPECT_FALSE(absl::StrContains(canonical, "\n"));
  EXPECT_EQ(ContractId(Glm()), Blake2b256(canonical));
}

TEST(ContractTest, ShortFormNamesWhatTellsContractsApart) {
  const std::string id = ToHex(ContractId(Glm())).substr(0, 8);
  EXPECT_EQ(ContractShortForm(Glm()), "glm52/local-partial@v2#" + id);
  EXPECT_TRUE(absl::StartsWith(ContractShortForm(*Resolve(QwenDenseConfig()).contract),
                               "qwen3_5_dense/one_round_fp32@v1#"));
  EXPECT_TRUE(
      absl::StartsWith(ContractShortForm(*Resolve(LlamaConfig()).contract), "none/two_round@v1#"));
  EXPECT_TRUE(absl::StartsWith(ContractShortForm(*Resolve({{"model_type", "gpt_oss"}}).contract),
                               "none/no-mlp-claim#"));
}

TEST(ContractTest, LayoutAndUnpinnedEngineAreOutsideTheIdentity) {
  Contract contract = Glm();
  const Digest256 id = ContractId(contract);
  contract.layout = Blake2b256("layout");
  contract.engine.trainer = "build 7";
  EXPECT_EQ(ContractId(contract), id);
  contract.engine.pinned = true;
  const Digest256 pinned = ContractId(contract);
  EXPECT_NE(pinned, id);
  contract.engine.trainer = "build 8";
  EXPECT_NE(ContractId(contract), pinned);
}

TEST(ContractTest, ReadableFormKeepsEveryPart) {
  for (Contract contract : SampleContracts()) {
    contract.layout = Blake2b256("layout");
    contract.engine = {"trainer build", "sampler build \xc3\xa9", true};
    const ContractReading read = ReadContract(ContractToJson(contract));
    ASSERT_TRUE(read.contract.has_value()) << FormatRefusals(read.refusals);
    EXPECT_EQ(*read.contract, contract);
  }
}

TEST(ContractTest, UnknownKeysAreRefusedByPathAndMissingOnesToo) {
  json extra = GlmJson();
  extra["sites"]["dense_mlp"]["programme"] = "x";
  EXPECT_TRUE(Mentions(ReasonsAgainst(extra), RefusalCode::kBadConfig, "sites.dense_mlp.programme",
                       "'program'"));
  for (const char* key : {"format", "family", "parallel", "sites", "lora", "scoring", "level"}) {
    json missing = GlmJson();
    missing.erase(key);
    EXPECT_TRUE(Mentions(ReasonsAgainst(missing), RefusalCode::kBadConfig, key, "missing")) << key;
  }
}

TEST(ContractTest, WrongTypesAndFormatsAreRefused) {
  const std::pair<const char*, json> cases[] = {{"/format", "lockstep contract@v2"},
                                                {"/family", 3},
                                                {"/parallel/tp", -1},
                                                {"/parallel/tp", 1.5},
                                                {"/sites", json::array()},
                                                {"/sites/norm/constants/eps", "zz000000"},
                                                {"/scoring/temperature", true},
                                                {"/level", "token"},
                                                {"/layout", "abc"},
                                                {"/lora", "active@v2"}};
  for (const auto& [pointer, value] : cases) {
    json wrong = GlmJson();
    wrong[json::json_pointer(pointer)] = value;
    EXPECT_FALSE(ReasonsAgainst(wrong).empty()) << pointer;
  }
}

TEST(ContractTest, UnreadableTextIsRefusedWithinItsLimits) {
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{\"family\":1,\"family\":2}"),
        std::string(100'000, '['), std::string(kMaxContractBytes + 1, ' ')}) {
    EXPECT_FALSE(ReadContract(text).contract.has_value());
    EXPECT_FALSE(ReadContract(text).refusals.empty());
  }
}

TEST(ContractTest, UnknownProgramIsRefusedWithTheNearestOfItsSite) {
  json wrong = GlmJson();
  wrong["sites"]["moe_fold"]["program"] = "moe_fold/bf16_tre@v1";
  EXPECT_TRUE(Mentions(ReasonsAgainst(wrong), RefusalCode::kUnknownIdentifier,
                       "sites.moe_fold.program", "'moe_fold/bf16_tree@v1'"));
}

TEST(ContractTest, ProgramStandsOnlyWhereItCan) {
  json wrong = GlmJson();
  wrong["sites"]["norm"]["program"] = "gemm/k_chain@v1";
  EXPECT_TRUE(Mentions(ReasonsAgainst(wrong), RefusalCode::kBadConfig, "sites.norm.program",
                       "cannot stand at norm"));
  wrong["sites"]["norm"]["program"] = "digest/paged@v1";
  EXPECT_TRUE(
      Mentions(ReasonsAgainst(wrong), RefusalCode::kBadConfig, "sites.norm.program", "digest"));
}

TEST(ContractTest, ExactFamilyStatesEachOfItsSites) {
  json wrong = GlmJson();
  wrong["sites"].erase("shared_expert");
  EXPECT_TRUE(
      Mentions(ReasonsAgainst(wrong), RefusalCode::kBadConfig, "sites.shared_expert", "glm52"));
}

TEST(ContractTest, AliasesAreReplacedByOurIds) {
  json aliased = GlmJson();
  aliased["local_partial"]["policy"] = "glm52_routed_final_scaled_then_shared_ep_slice_bf16_v2";
  aliased["sites"]["dense_mlp"]["program"] = "one_round";
  const ContractReading read = ReadContract(aliased.dump());
  ASSERT_TRUE(read.contract.has_value()) << FormatRefusals(read.refusals);
  EXPECT_EQ(ContractId(*read.contract), ContractId(Glm()));
}

TEST(ContractTest, LocalPartialNameMustBeKnownAndFitItsPrograms) {
  json wrong = GlmJson();
  wrong["local_partial"]["policy"] = "local-partial v4";
  EXPECT_TRUE(Mentions(ReasonsAgainst(wrong), RefusalCode::kUnknownIdentifier,
                       "local_partial.policy", "'local-partial v2'"));
  wrong["local_partial"]["policy"] = "local-partial v3";
  EXPECT_TRUE(Mentions(ReasonsAgainst(wrong), RefusalCode::kBadConfig, "local_partial.policy",
                       "other programs"));
}

TEST(ContractTest, LocalPartialProgramsMustBeThoseOfTheirSites) {
  Contract contract = Glm();
  contract.sites["moe_fold"].program = "moe_fold/fp64_tree@v3";
  EXPECT_TRUE(Mentions(CheckContract(contract), RefusalCode::kBadConfig, "local_partial",
                       "moe_leaf and moe_fold"));
}

TEST(ContractTest, ContributorOrderOtherThanAscendingIsRefused) {
  Contract contract = Glm();
  EXPECT_TRUE(CheckContract(contract).empty());
  contract.local_partial->order_digest = ContributorOrderDigest({1, 0});
  EXPECT_TRUE(Mentions(CheckContract(contract), RefusalCode::kOperandNotAdmitted,
                       "local_partial.order_digest", "ascending"));
}

TEST(ContractTest, OneRealisationNameNeverMeansTwoTables) {
  Contract contract = Glm();
  contract.sites["dense_mlp"].realisation_digest = Blake2b256("another table");
  EXPECT_TRUE(Mentions(CheckContract(contract), RefusalCode::kBadConfig,
                       "sites.dense_mlp.realisation_digest", "silu/ieee@v1"));
  contract.sites["dense_mlp"].realisation = "silu/user_h100@v1";
  EXPECT_TRUE(CheckContract(contract).empty());
  contract.sites["dense_mlp"].realisation = "silu/h100@v1";
  EXPECT_TRUE(Mentions(CheckContract(contract), RefusalCode::kUnknownIdentifier,
                       "sites.dense_mlp.realisation", "silu/user_"));
}

TEST(ContractTest, OldAdapterContractsAreReadSoThatTheyCanBeCompared) {
  json old = json::parse(ContractToJson(*Resolve(GlmConfig(), InLane(Lane::kActiveLora)).contract));
  old["lora"]["kind"] = "active@v1";
  old["lora"]["lanes"]["shared_expert"] = "glm52_exact_tp16_shared_expert_rank1_qlora@v1";
  const ContractReading read = ReadContract(old.dump());
  ASSERT_TRUE(read.contract.has_value()) << FormatRefusals(read.refusals);
  EXPECT_EQ(read.contract->lora.lanes.at("shared_expert"),
            "glm52_exact_tp16_shared_expert_rank1_qlora_v1");
  old["lora"]["lanes"]["shared_expert"] = "glm52_exact_tp16_shared_expert_rank1_qlora_v3";
  EXPECT_TRUE(Mentions(ReasonsAgainst(old), RefusalCode::kUnknownIdentifier,
                       "lora.lanes.shared_expert", "_v2'"));
  old["lora"]["kind"] = "active@v9";
  EXPECT_FALSE(ReasonsAgainst(old).empty());
}

TEST(ContractTest, ScoringOtherThanThePolicysOwnIsRefused) {
  Contract contract = Glm();
  contract.scoring.temperature = 0.7f;
  EXPECT_TRUE(Mentions(CheckContract(contract), RefusalCode::kBadConfig, "scoring", "temperature"));
  contract = Glm();
  contract.scoring.top_p_renormalised = true;
  EXPECT_FALSE(CheckContract(contract).empty());
}

TEST(ContractTest, LimitsAreKept) {
  Contract contract = Glm();
  contract.engine.trainer = std::string(kMaxNameBytes + 1, 'x');
  EXPECT_TRUE(Mentions(CheckContract(contract), RefusalCode::kLimitExceeded, "engine.trainer", ""));
  contract = Glm();
  for (size_t i = 0; i <= kMaxSites; ++i) contract.sites["s" + std::to_string(i)] = Site{};
  EXPECT_TRUE(Mentions(CheckContract(contract), RefusalCode::kLimitExceeded, "sites", ""));
  contract = Glm();
  contract.sites["Bad.Name"] = Site{};
  EXPECT_TRUE(Mentions(CheckContract(contract), RefusalCode::kBadConfig, "sites", "lower-case"));
  contract = Glm();
  contract.parallel.dp = 0;
  EXPECT_FALSE(CheckContract(contract).empty());
}

TEST(ContractTest, SampledContractsAreWellFormed) {
  EXPECT_EQ(SampleContracts().size(), 9u);
  for (const Contract& contract : SampleContracts()) {
    EXPECT_TRUE(CheckContract(contract).empty()) << ContractShortForm(contract);
  }
}

RC_GTEST_PROP(ContractPropertyTest, CanonicalFormRoundTrips, ()) {
  static const std::vector<Contract> samples = SampleContracts();
  Contract contract = *rc::gen::elementOf(samples);
  for (auto& [name, site] : contract.sites) {
    for (auto& [number, value] : site.geometry)
      value = *rc::gen::inRange<uint64_t>(0, kMaxGeometry);
    for (auto& [number, value] : site.constants) value = *rc::gen::arbitrary<float>();
    site.constants["added"] = *rc::gen::arbitrary<float>();
  }
  contract.parallel.dp = *rc::gen::inRange<uint64_t>(1, kMaxDegree);
  contract.level = *rc::gen::element(Level::kWeights, Level::kKernels, Level::kTokens);
  const std::string canonical = CanonicalContract(contract);
  for (const std::string& text : {canonical, ContractToJson(contract)}) {
    const ContractReading read = ReadContract(text);
    RC_ASSERT(read.contract.has_value());
    RC_ASSERT(*read.contract == contract);
    RC_ASSERT(CanonicalContract(*read.contract) == canonical);
  }
}

RC_GTEST_PROP(ContractPropertyTest, AnyOneFieldChangeChangesTheId, ()) {
  static const std::vector<Contract> samples = SampleContracts();
  const Contract contract = *rc::gen::elementOf(samples);
  const std::vector<Change> changes = OneFieldChanges(contract, *rc::gen::arbitrary<uint32_t>());
  Contract changed = contract;
  changes[*rc::gen::inRange<size_t>(0, changes.size())](changed);
  RC_ASSERT(ContractId(changed) != ContractId(contract));
}

}  // namespace
}  // namespace lockstep
