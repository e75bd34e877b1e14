#include "policy/admission.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "policy/admission_testing.h"
#include "policy/refusal_testing.h"

namespace lockstep {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<RefusalCode> Codes(const Decision& decision) {
  std::vector<RefusalCode> out;
  for (const Refusal& refusal : decision.reasons) out.push_back(refusal.code);
  return out;
}

// Refused for exactly this one code, with `text` in the message.
testing::AssertionResult RefusedOnlyFor(AdmissionCase c, RefusalCode code, absl::string_view key,
                                        absl::string_view text) {
  const Decision decision = c.Decide();
  if (decision.kind == DecisionKind::kRefuse && decision.reasons.size() == 1 &&
      Mentions(decision.reasons, code, key, text)) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure()
         << "kind " << static_cast<int>(decision.kind) << ": " << FormatRefusals(decision.reasons);
}

TEST(AdmissionTest, RolloutThatShowsEverythingIsAdmitted) {
  const Decision decision = AdmittedCase().Decide();
  EXPECT_EQ(decision.kind, DecisionKind::kAdmit) << FormatRefusals(decision.reasons);
  EXPECT_TRUE(decision.compared);
  EXPECT_EQ(decision.compared_tokens, 5u);
  EXPECT_EQ(decision.rollout_id, "r1");
  EXPECT_EQ(decision.sampler, "s1");
  EXPECT_FALSE(decision.tolerance_mode);
}

TEST(AdmissionTest, UnknownPeerIsRefusedWithoutGuessingAboutItsHistory) {
  AdmissionCase c = AdmittedCase();
  c.facts.sampler = SamplerFacts();
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kUnknownPeer, "s1", "no sampler 's1'"));
}

TEST(AdmissionTest, OtherIncarnationIsStale) {
  AdmissionCase c = AdmittedCase();
  c.facts.sampler.live_incarnation = Incarnation{8};
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kStaleIncarnation, "s1", "now runs as 08"));
  c.facts.sampler.live_incarnation = std::nullopt;
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kStaleIncarnation, "s1", "gone"));
}

TEST(AdmissionTest, FencedSamplerIsQuarantined) {
  AdmissionCase c = AdmittedCase();
  c.facts.sampler.fenced = true;
  c.facts.sampler.fence_reason = "two digest mismatches";
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kQuarantined, "s1", "two digest mismatches"));
}

TEST(AdmissionTest, ContractIsComparedAsAWholeString) {
  AdmissionCase c = AdmittedCase();
  c.facts.sampler.contract_id = "contract-12";
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kContractMismatch, "contract_id", "'contract-12'"));
  c.facts.sampler.contract_id = c.rollout.contract_id = "";
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kContractMismatch, "contract_id", "agreed on ''"));
}

TEST(AdmissionTest, VersionNeverLiveOnThatSamplerIsRefused) {
  AdmissionCase c = AdmittedCase();
  c.rollout.spans = {{5, 0, 5}};
  c.Sign();
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kVersionNotLive, "version 5", "never live"));
}

TEST(AdmissionTest, VersionThatTheRunNeverSealedIsUnknown) {
  AdmissionCase c = AdmittedCase();
  c.rollout.spans = {{9, 0, 5}};
  c.Sign();
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kUnknownVersion, "version 9", "never sealed"));
}

TEST(AdmissionTest, SpansAgainstTheOrderOfActivationAreRefused) {
  AdmissionCase c = AdmittedCase();
  c.policy = {.max_lag = 1, .allow_mixed_versions = true};
  c.rollout.spans = {{4, 0, 2}, {3, 2, 5}};
  c.Sign();
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kVersionNotLive, "version 3", "already moved on"));
}

TEST(AdmissionTest, SpansMustCoverEveryTokenOnceInOrder) {
  const std::vector<std::vector<TokenSpan>> bad = {
      {{4, 0, 4}},             // stops short
      {{4, 0, 6}},             // goes beyond
      {{4, 1, 5}},             // begins late
      {{4, 0, 2}, {4, 3, 5}},  // gap
      {{4, 0, 3}, {4, 2, 5}},  // overlap
      {{4, 2, 5}, {4, 0, 2}},  // out of order
      {{4, 0, 0}, {4, 0, 5}},  // empty
  };
  for (const auto& spans : bad) {
    AdmissionCase c = AdmittedCase();
    c.rollout.spans = spans;
    EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kBadSpans, "spans", "in order"));
  }
}

TEST(AdmissionTest, RolloutWithoutTokensOrSpansIsRefused) {
  AdmissionCase c = AdmittedCase();
  c.rollout.tokens.clear();
  c.rollout.sampler_logprobs.clear();
  c.trainer_logprobs.clear();
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kBadSpans, "spans", "no tokens"));
  c = AdmittedCase();
  c.rollout.spans.clear();
  EXPECT_EQ(Codes(c.Decide()),
            (std::vector<RefusalCode>{RefusalCode::kBadSpans, RefusalCode::kBadTicket}));
}

TEST(AdmissionTest, CacheOlderThanTheVersionIsStale) {
  AdmissionCase c = AdmittedCase();
  c.rollout.cache_epoch = 12;
  c.Sign();
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kStaleCache, "version 4", "cache epoch 12"));
}

TEST(AdmissionTest, RolloutIsJudgedByTheActivationItRanUnder) {
  AdmissionCase c = AdmittedCase();
  // Version 4 was installed again later, and that round showed nothing.
  c.facts.sampler.activations.push_back({4, 14, false, 0, 18});
  EXPECT_EQ(c.Decide().kind, DecisionKind::kAdmit);
  c.rollout.cache_epoch = 14;
  c.Sign();
  EXPECT_EQ(Codes(c.Decide()),
            (std::vector<RefusalCode>{RefusalCode::kDigestMismatch, RefusalCode::kKernelMismatch}));
}

TEST(AdmissionTest, StrictPolicyAdmitsTheNewestVersionOnly) {
  AdmissionCase c = AdmittedCase();
  c.live_versions.push_back(5);
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kLagExceeded, "version 4", "is 1 behind"));
  c.policy.max_lag = 1;
  EXPECT_EQ(c.Decide().kind, DecisionKind::kAdmit);
}

TEST(AdmissionTest, LagCountsVersionsNotTheirNumbers) {
  AdmissionCase c = AdmittedCase();
  c.live_versions = {4, 100, 200};
  c.policy.max_lag = 2;
  EXPECT_EQ(c.Decide().kind, DecisionKind::kAdmit);
  c.policy.max_lag = 1;
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kLagExceeded, "version 4", "is 2 behind"));
}

TEST(AdmissionTest, MixedSpansNeedThePolicyAndCountLagFromTheOldest) {
  AdmissionCase c = AdmittedCase();
  c.rollout.spans = {{3, 0, 2}, {4, 2, 5}};
  c.policy.max_lag = 1;
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kMixedVersions, "spans", "2 versions (3 to 4)"));
  c.policy.allow_mixed_versions = true;
  EXPECT_EQ(c.Decide().kind, DecisionKind::kAdmit);
  c.policy.max_lag = 0;
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kLagExceeded, "version 3", "is 1 behind"));
}

TEST(AdmissionTest, AdjacentSpansOfOneVersionAreNotMixed) {
  AdmissionCase c = AdmittedCase();
  c.rollout.spans = {{4, 0, 2}, {4, 2, 5}};
  EXPECT_EQ(c.Decide().kind, DecisionKind::kAdmit);
}

TEST(AdmissionTest, UnequalDigestRefusesAtEveryLevel) {
  AdmissionCase c = AdmittedCase();
  c.facts.sampler.activations[2].digests_equal = false;
  c.rollout.level = AdmissionLevel::kWeights;
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kDigestMismatch, "version 4", "not shown equal"));
}

TEST(AdmissionTest, IncompleteProbeRefusesFromLevelKernelsOn) {
  AdmissionCase c = AdmittedCase();
  c.facts.sampler.activations[2].components_verified = 17;
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kKernelMismatch, "version 4", "17/18"));
  c.rollout.level = AdmissionLevel::kKernels;
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kKernelMismatch, "version 4", "17/18"));
  c.rollout.level = AdmissionLevel::kWeights;
  EXPECT_EQ(c.Decide().kind, DecisionKind::kAdmit);
}

TEST(AdmissionTest, EmptyProbeShowsNothingForAnExactFamily) {
  AdmissionCase c = AdmittedCase();
  c.facts.sampler.activations[2].components_verified = 0;
  c.facts.sampler.activations[2].components_total = 0;
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kKernelMismatch, "version 4", "0/0"));
  c.facts.sampler.exact_family = false;
  EXPECT_EQ(c.Decide().kind, DecisionKind::kAdmit);
}

TEST(AdmissionTest, OneBitOfOneLogprobRefusesThoughUsualK3IsZero) {
  AdmissionCase c = AdmittedCase();
  c.trainer_logprobs[2] = std::nextafter(c.trainer_logprobs[2], 0.0f);
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kLogprobMismatch, "token 2", "proves nothing"));
  const Decision decision = c.Decide();
  EXPECT_EQ(decision.mismatched_tokens, 1u);
  EXPECT_EQ(decision.k3_float32_naive, 0.0f);
  EXPECT_GT(decision.k3, 0);
  ASSERT_EQ(decision.mismatches.size(), 1u);
  EXPECT_EQ(decision.mismatches[0].index, 2u);
}

TEST(AdmissionTest, LogprobsBelowLevelTokensAreAGaugeOnly) {
  AdmissionCase c = AdmittedCase();
  c.trainer_logprobs[2] -= 0.5f;
  c.rollout.level = AdmissionLevel::kKernels;
  const Decision decision = c.Decide();
  EXPECT_EQ(decision.kind, DecisionKind::kAdmit);
  EXPECT_TRUE(decision.compared);
  EXPECT_EQ(decision.mismatched_tokens, 1u);
}

TEST(AdmissionTest, MinimumLevelOfThePolicyRaisesTheRollouts) {
  AdmissionCase c = AdmittedCase();
  c.trainer_logprobs[2] -= 0.5f;
  c.rollout.level = AdmissionLevel::kWeights;
  c.policy.minimum_level = AdmissionLevel::kTokens;
  const Decision decision = c.Decide();
  EXPECT_EQ(decision.kind, DecisionKind::kRefuse);
  EXPECT_EQ(decision.level, AdmissionLevel::kTokens);
}

TEST(AdmissionTest, AwaitedRescorePendsOnlyWhenNothingElseFails) {
  AdmissionCase c = AdmittedCase();
  c.facts.rescore = RescoreState::kAwaited;
  c.trainer_logprobs.clear();
  EXPECT_EQ(c.Decide().kind, DecisionKind::kPending);
  EXPECT_TRUE(c.Decide().reasons.empty());
  c.rollout.level = AdmissionLevel::kKernels;
  EXPECT_EQ(c.Decide().kind, DecisionKind::kAdmit);
  c.rollout.level = AdmissionLevel::kTokens;
  c.facts.sampler.fenced = true;
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kQuarantined, "s1", "quarantined"));
}

TEST(AdmissionTest, LateRescoreTimesOut) {
  AdmissionCase c = AdmittedCase();
  c.facts.rescore = RescoreState::kTimedOut;
  c.facts.rescore_timeout_ms = 300'000;
  c.trainer_logprobs.clear();
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kRescoreTimeout, "", "300000 ms"));
}

TEST(AdmissionTest, LogprobCountsMustMatchTokens) {
  AdmissionCase c = AdmittedCase();
  c.rollout.sampler_logprobs.pop_back();
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kLogprobMismatch, "sampler_logprobs", "one a token"));
  c = AdmittedCase();
  c.trainer_logprobs.pop_back();
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kLogprobMismatch, "trainer_logprobs", "re-scored 4"));
  c = AdmittedCase();
  c.rollout.sampler_logprobs.clear();
  c.rollout.level = AdmissionLevel::kKernels;
  EXPECT_EQ(c.Decide().kind, DecisionKind::kAdmit);
}

TEST(AdmissionTest, UnusableLogprobRefusesAlsoWhenTheTrainerAgrees) {
  for (const float bad : {kNan, 0.5f, -std::numeric_limits<float>::infinity()}) {
    AdmissionCase c = AdmittedCase();
    c.rollout.sampler_logprobs[3] = c.trainer_logprobs[3] = bad;
    EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kLogprobMismatch, "token 3", "no chosen token"));
    c.rollout.level = AdmissionLevel::kWeights;
    EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kLogprobMismatch, "token 3", "no chosen token"));
  }
}

TEST(AdmissionTest, ToleranceReplacesBitsForFamilyNoneOnlyAndSaysSo) {
  AdmissionCase c = AdmittedCase();
  c.trainer_logprobs[2] += 0.01f;
  c.policy.tolerance = Tolerance{.max_abs_delta = 0.02f, .mean_k3 = 0.001f};
  EXPECT_EQ(Codes(c.Decide()), (std::vector<RefusalCode>{RefusalCode::kLogprobMismatch}));
  c.facts.sampler.exact_family = false;
  EXPECT_EQ(c.Decide().kind, DecisionKind::kAdmit);
  EXPECT_TRUE(c.Decide().tolerance_mode);
  c.policy.tolerance->max_abs_delta = 0.005f;
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kToleranceExceeded, "", "max |d|"));
  c.policy.tolerance = Tolerance{.max_abs_delta = 1.0f, .mean_k3 = 1e-7f};
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kToleranceExceeded, "", "mean K3"));
}

TEST(AdmissionTest, NanFromTheTrainerExceedsEveryTolerance) {
  AdmissionCase c = AdmittedCase();
  c.facts.sampler.exact_family = false;
  c.policy.tolerance = Tolerance{.max_abs_delta = 1e30f, .mean_k3 = 1e30f};
  c.trainer_logprobs[1] = kNan;
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kToleranceExceeded, "", "nan"));
}

TEST(AdmissionTest, SameIdWithOtherContentIsADuplicate) {
  AdmissionCase c = AdmittedCase();
  c.facts.prior_content = Blake2b256("other");
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kDuplicate, "r1", "other content"));
  c.facts.prior_content = c.rollout.content;
  EXPECT_EQ(c.Decide().kind, DecisionKind::kAdmit);
}

TEST(AdmissionTest, ForgedTicketIsRefused) {
  AdmissionCase c = AdmittedCase();
  c.rollout.ticket[0] ^= 1;
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kBadTicket, "", "version 4"));
  c = AdmittedCase();
  c.rollout.cache_epoch = 14;  // flushed once more than the bridge knows
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kBadTicket, "", "cache epoch 14"));
}

TEST(AdmissionTest, GiantRolloutsAreRefusedWithoutALook) {
  AdmissionCase c = AdmittedCase();
  c.rollout.id = std::string(kMaxRolloutIdBytes + 1, 'x');
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kLimitExceeded, "id bytes", "257"));
  c = AdmittedCase();
  c.rollout.spans.assign(kMaxRolloutSpans + 1, {4, 0, 5});
  EXPECT_TRUE(RefusedOnlyFor(c, RefusalCode::kLimitExceeded, "spans", "1025"));
}

TEST(AdmissionTest, ManyReasonsOfOneKindDoNotCrowdOutOthers) {
  AdmissionCase c = AdmittedCase();
  c.rollout.spans.clear();
  for (uint64_t i = 0; i < 1000; ++i) c.rollout.spans.push_back({100 + i, i, i + 1});
  const auto codes = Codes(c.Decide());
  EXPECT_LT(codes.size(), 100u);
  EXPECT_EQ(codes.front(), RefusalCode::kUnknownVersion);
  EXPECT_EQ(codes.back(), RefusalCode::kBadTicket);
}

}  // namespace
}  // namespace lockstep
