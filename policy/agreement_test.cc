#include "policy/agreement.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "policy/contract_testing.h"
#include "policy/refusal_testing.h"
#include "policy/registry.h"
#include "rapidcheck/gtest.h"

namespace lockstep {
namespace {

Evidence Shown(const Contract& contract) { return {TablesOfContract(contract), SomeProbe()}; }

std::vector<Refusal> Compare(const Contract& trainer, const Contract& sampler) {
  const Evidence trainer_evidence = Shown(trainer);
  const Evidence sampler_evidence = Shown(sampler);
  return CompareSides({trainer, trainer_evidence}, {sampler, sampler_evidence});
}

std::vector<Refusal> CompareShown(const Contract& contract, const Evidence& trainer,
                                  const Evidence& sampler) {
  return CompareSides({contract, trainer}, {contract, sampler});
}

const Difference* Find(const std::vector<Difference>& differences, absl::string_view part) {
  for (const Difference& difference : differences) {
    if (difference.part == part) return &difference;
  }
  return nullptr;
}

Contract Glm(const ResolveOptions& options = Exact()) {
  return *Resolve(GlmConfig(), options).contract;
}

TEST(AgreementTest, EqualContractsWithEqualEvidenceAgree) {
  for (const Contract& contract : SampleContracts()) {
    EXPECT_TRUE(Compare(contract, contract).empty()) << ContractShortForm(contract);
  }
}

TEST(AgreementTest, TwoRoundSamplerIsToldWhichProgramDiffersAndWhatToDo) {
  const Contract trainer = *Resolve(QwenDenseConfig()).contract;
  ResolveOptions options;
  options.swiglu = "two_round";
  const std::vector<Refusal> refusals =
      Compare(trainer, *Resolve(QwenDenseConfig(), options).contract);
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_EQ(refusals[0].code, RefusalCode::kContractMismatch);
  EXPECT_EQ(refusals[0].key, "sites.dense_mlp.program");
  for (const char* text :
       {"the trainer runs swiglu/one_round_fp32@v1", "kept in float32, one rounding",
        "the sampler runs swiglu/two_round@v1", "27.5 % of the outputs differ",
        "start the sampler with --swiglu one_round, or the trainer with --swiglu two_round"}) {
    EXPECT_TRUE(absl::StrContains(refusals[0].message, text)) << refusals[0].message;
  }
}

TEST(AgreementTest, LocalPartialV3AgainstV2SaysSiteProgramsShareAndRemedy) {
  ResolveOptions v3 = Exact();
  v3.local_partial = "v3";
  const std::vector<Refusal> refusals = Compare(Glm(v3), Glm());
  EXPECT_TRUE(Mentions(refusals, RefusalCode::kContractMismatch, "sites.moe_fold.program",
                       "the trainer runs moe_fold/fp64_tree@v3"));
  EXPECT_TRUE(Mentions(refusals, RefusalCode::kContractMismatch, "sites.moe_fold.program",
                       "the fold changes about half of the outputs (56 %"));
  EXPECT_TRUE(Mentions(refusals, RefusalCode::kContractMismatch, "sites.moe_leaf.program",
                       "the sampler runs moe_leaf/bf16_add@v1"));
  EXPECT_TRUE(Mentions(refusals, RefusalCode::kContractMismatch, "local_partial",
                       "start the sampler with --local-partial v3"));
  EXPECT_EQ(refusals.size(), 3u);
}

TEST(AgreementTest, OldAdapterContractIsRefusedAgainstTheCurrentOne) {
  const Contract current = Glm(InLane(Lane::kActiveLora));
  Contract old = current;
  old.lora.lanes["shared_expert"] = "glm52_exact_tp16_shared_expert_rank1_qlora_v1";
  EXPECT_TRUE(Mentions(Compare(current, old), RefusalCode::kContractMismatch,
                       "lora.lanes.shared_expert", "v1 feeds the two-round SwiGLU"));
  // Two builds that are equally old do not agree on it either: nothing runs it.
  EXPECT_TRUE(Mentions(Compare(old, old), RefusalCode::kContractMismatch,
                       "lora.lanes.shared_expert", "nothing runs this version"));
}

TEST(AgreementTest, AdaptersOnOneSideAreOneDifference) {
  const std::vector<Difference> differences =
      CompareContracts(Glm(InLane(Lane::kActiveLora)), Glm());
  ASSERT_NE(Find(differences, "lora"), nullptr);
  EXPECT_EQ(Find(differences, "lora")->trainer, "active@v2");
  EXPECT_EQ(Find(differences, "lora")->sampler, "none");
  ASSERT_NE(Find(differences, "sites.lora.program"), nullptr);
  EXPECT_EQ(Find(differences, "sites.lora.program")->sampler, "absent");
  EXPECT_EQ(differences.size(), 2u);
}

TEST(AgreementTest, FamilyComesFirst) {
  const std::vector<Difference> differences =
      CompareContracts(Glm(), *Resolve(GlmConfig()).contract);
  ASSERT_FALSE(differences.empty());
  EXPECT_EQ(differences[0].part, "family");
  EXPECT_TRUE(
      absl::StrContains(differences[0].remedy, "resolve the sampler's config with --exact"));
}

TEST(AgreementTest, RealisationNamesHowRareTheDifferenceIs) {
  ResolveOptions triton;
  triton.realisation = "silu/sm90_triton@v1";
  const std::vector<Difference> differences = CompareContracts(
      *Resolve(QwenDenseConfig()).contract, *Resolve(QwenDenseConfig(), triton).contract);
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(differences[0].part, "sites.dense_mlp.realisation");
  EXPECT_TRUE(absl::StrContains(differences[0].changes, "24,194 of 2^32"));
}

TEST(AgreementTest, LayoutIsComparedByItself) {
  Contract trainer = Glm();
  Contract sampler = trainer;
  trainer.layout = Blake2b256("a");
  EXPECT_TRUE(Compare(trainer, sampler).empty());  // the sampler takes the trainer's
  sampler.layout = Blake2b256("b");
  EXPECT_EQ(ContractId(trainer), ContractId(sampler));
  const std::vector<Refusal> refusals = Compare(trainer, sampler);
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_EQ(refusals[0].code, RefusalCode::kManifestMismatch);
}

TEST(AgreementTest, EngineCountsOnlyWhenPinned) {
  Contract trainer = Glm();
  Contract sampler = trainer;
  sampler.engine.sampler = "build 8";
  EXPECT_TRUE(Compare(trainer, sampler).empty());
  trainer.engine.pinned = sampler.engine.pinned = true;
  EXPECT_TRUE(
      Mentions(Compare(trainer, sampler), RefusalCode::kContractMismatch, "engine", "build 8"));
}

// ---------------------------------------------------------------- evidence

TEST(EvidenceTest, OneOtherTableEntryIsAKernelMismatch) {
  const Contract contract = Glm();
  std::string table(65'536 * 4, '\0');
  Evidence trainer = Shown(contract);
  Evidence sampler = trainer;
  trainer.tables["silu/user_h100@v1"] = Blake2b256(table);
  sampler.tables["silu/user_h100@v1"] = Blake2b256(table);
  EXPECT_TRUE(CompareShown(contract, trainer, sampler).empty());
  table[4 * 12'345] ^= 1;
  sampler.tables["silu/user_h100@v1"] = Blake2b256(table);
  EXPECT_TRUE(Mentions(CompareShown(contract, trainer, sampler), RefusalCode::kKernelMismatch,
                       "evidence.tables.silu/user_h100@v1", "at least one of the 65,536"));
}

TEST(EvidenceTest, TableOtherThanTheContractsIsRefusedEvenWhenBothHoldIt) {
  const Contract contract = Glm();
  Evidence evidence = Shown(contract);
  evidence.tables["silu/ieee@v1"][0] ^= 1;
  EXPECT_TRUE(Mentions(CompareShown(contract, evidence, evidence), RefusalCode::kKernelMismatch,
                       "evidence.tables.silu/ieee@v1", "not the contract's"));
}

TEST(EvidenceTest, ProbeIsComparedComponentByComponent) {
  const Contract contract = Glm();
  const Evidence trainer = Shown(contract);
  Evidence sampler = trainer;
  sampler.probe["norm"][31] ^= 1;
  std::vector<Refusal> refusals = CompareShown(contract, trainer, sampler);
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_EQ(refusals[0].code, RefusalCode::kKernelMismatch);
  EXPECT_EQ(refusals[0].key, "evidence.probe.norm");
  sampler.probe.erase("norm");
  EXPECT_TRUE(Mentions(CompareShown(contract, trainer, sampler), RefusalCode::kKernelMismatch,
                       "evidence.probe.norm", "absent"));
}

TEST(EvidenceTest, ExactFamilyWithoutEvidenceIsRefusedAndNoneIsNot) {
  const Evidence nothing;
  const std::vector<Refusal> refusals = CompareShown(Glm(), nothing, nothing);
  EXPECT_TRUE(Mentions(refusals, RefusalCode::kKernelMismatch, "evidence.tables.silu/ieee@v1",
                       "proves nothing"));
  EXPECT_TRUE(Mentions(refusals, RefusalCode::kKernelMismatch, "evidence.probe", "proves nothing"));
  EXPECT_TRUE(CompareShown(*Resolve(LlamaConfig()).contract, nothing, nothing).empty());
}

TEST(AgreementTest, DiffJsonCarriesBothIdsAndEachDifference) {
  ResolveOptions v3 = Exact();
  v3.local_partial = "v3";
  const nlohmann::json diff = ContractDiffJson(Glm(v3), Glm());
  EXPECT_EQ(diff["equal"], false);
  EXPECT_EQ(diff["sampler"]["contract_id"], ToHex(ContractId(Glm())));
  EXPECT_EQ(diff["differences"].size(), 3u);
  EXPECT_EQ(ContractDiffJson(Glm(), Glm())["equal"], true);
}

// ---------------------------------------------------------------- properties

std::vector<Difference> Mirrored(std::vector<Difference> differences) {
  for (Difference& difference : differences) std::swap(difference.trainer, difference.sampler);
  return differences;
}

void ExpectMirror(const std::vector<Difference>& forward, std::vector<Difference> backward) {
  backward = Mirrored(std::move(backward));
  RC_ASSERT(forward.size() == backward.size());
  for (size_t i = 0; i < forward.size(); ++i) {
    backward[i].remedy = forward[i].remedy;  // speaks of either side by name
    RC_ASSERT(forward[i] == backward[i]);
  }
}

RC_GTEST_PROP(AgreementPropertyTest, AgreementIsSymmetric, ()) {
  static const std::vector<Contract> samples = SampleContracts();
  const Contract a = *rc::gen::elementOf(samples);
  Contract b = *rc::gen::elementOf(samples);
  for (int i = *rc::gen::inRange(0, 3); i > 0; --i) {
    const std::vector<Change> changes = OneFieldChanges(b, *rc::gen::arbitrary<uint32_t>());
    changes[*rc::gen::inRange<size_t>(0, changes.size())](b);
  }
  ExpectMirror(CompareContracts(a, b), CompareContracts(b, a));
  const bool equal = ContractId(a) == ContractId(b);
  RC_ASSERT(CompareContracts(a, b).empty() == equal);
  RC_ASSERT(Compare(a, b).empty() == Compare(b, a).empty());
}

RC_GTEST_PROP(AgreementPropertyTest, EvidenceIsSymmetric, ()) {
  const Contract contract = Glm();
  Evidence a = Shown(contract);
  Evidence b = a;
  for (Evidence* side : {&a, &b}) {
    if (*rc::gen::arbitrary<bool>()) side->tables["silu/ieee@v1"][0] ^= 1;
    if (*rc::gen::arbitrary<bool>()) side->tables.erase("silu/ieee@v1");
    if (*rc::gen::arbitrary<bool>()) side->probe["gemm"] = Blake2b256("gemm");
    if (*rc::gen::arbitrary<bool>()) side->probe.clear();
  }
  ExpectMirror(CompareEvidence({contract, a}, {contract, b}),
               CompareEvidence({contract, b}, {contract, a}));
}

RC_GTEST_PROP(AgreementPropertyTest, AnyOneFieldChangeIsReported, ()) {
  static const std::vector<Contract> samples = SampleContracts();
  const Contract contract = *rc::gen::elementOf(samples);
  const std::vector<Change> changes = OneFieldChanges(contract, *rc::gen::arbitrary<uint32_t>());
  Contract changed = contract;
  changes[*rc::gen::inRange<size_t>(0, changes.size())](changed);
  const std::vector<Difference> differences = CompareContracts(contract, changed);
  RC_ASSERT(!differences.empty());
  for (const Difference& difference : differences) {
    RC_ASSERT(!difference.part.empty());
    RC_ASSERT(!difference.changes.empty());
    RC_ASSERT(!difference.remedy.empty());
    RC_ASSERT(difference.trainer != difference.sampler);
  }
}

}  // namespace
}  // namespace lockstep
