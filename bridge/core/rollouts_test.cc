#include <gtest/gtest.h>

#include "bridge/core/core_testing.h"

namespace lockstep::core {
namespace {

class RolloutsTest : public ::testing::Test {
 protected:
  explicit RolloutsTest(Config config = World::DefaultConfig()) : world_(std::move(config)) {
    world_.Settle();
    Publish(1);
  }

  void Publish(uint64_t version) {
    trainer_.Publish(version, {version, 0, 0});
    world_.Settle();
  }
  const Decision& Submit(const Rollout& rollout) {
    sampler_.Request(SubmitRollout{rollout});
    world_.Settle();
    return sampler_.Last<DecisionReply>()->decision;
  }
  const Decision& Rescore(const std::string& id, std::vector<float> logprobs) {
    trainer_.Request(SubmitRescore{id, std::move(logprobs)});
    world_.Settle();
    return trainer_.Last<DecisionReply>()->decision;
  }
  RefusalCode FirstReason(const Decision& decision) {
    return decision.reasons.empty() ? RefusalCode::kLimitExceeded : decision.reasons.front().code;
  }

  World world_;
  ModelTrainer& trainer_ = world_.AddTrainer("t");
  ModelSampler& sampler_ = world_.AddSampler("s1");
};

TEST_F(RolloutsTest, LevelTokensIsPendingThenAdmittedOnEqualBits) {
  const Rollout rollout = sampler_.MakeRollout("r");
  EXPECT_EQ(Submit(rollout).kind, DecisionKind::kPending);
  EXPECT_EQ(world_.core->Status(world_.time).rollouts_pending, 1u);
  const uint64_t asked = sampler_.heard.back().reply_to;
  EXPECT_EQ(Rescore("r", rollout.sampler_logprobs).kind, DecisionKind::kAdmit);
  EXPECT_EQ(sampler_.Last<DecisionReply>()->decision.kind, DecisionKind::kAdmit);
  EXPECT_EQ(sampler_.heard.back().reply_to, asked);
  EXPECT_EQ(world_.core->Status(world_.time).rollouts_admitted, 1u);
  EXPECT_EQ(world_.core->Status(world_.time).rollouts_pending, 0u);
}

TEST_F(RolloutsTest, OneBitOfOneTokenIsRefusedThoughFloat32K3IsZero) {
  Rollout rollout = sampler_.MakeRollout("r");
  Submit(rollout);
  std::vector<float> trainer = rollout.sampler_logprobs;
  trainer[1] = -1.2500001f;
  const Decision& decision = Rescore("r", trainer);
  EXPECT_EQ(decision.kind, DecisionKind::kRefuse);
  EXPECT_EQ(FirstReason(decision), RefusalCode::kLogprobMismatch);
  EXPECT_EQ(decision.k3_float32_naive, 0);
  const ExplainReply why =
      world_.core->Explain({ExplainKind::kRollout, "r"}, std::nullopt, world_.time);
  EXPECT_EQ(why.headline, "rollout r refused: logprob_mismatch");
  bool both_bits = false;
  for (const ExplainFact& fact : why.facts) {
    both_bits = both_bits || (fact.name == "token 1" &&
                              fact.value.find("0xbfa00000 (-1.25)") != std::string::npos &&
                              fact.value.find("0xbfa00001") != std::string::npos);
  }
  EXPECT_TRUE(both_bits);
}

TEST_F(RolloutsTest, ARepeatGetsTheSameDecisionAndOtherContentIsADuplicate) {
  Rollout rollout = sampler_.MakeRollout("r");
  Submit(rollout);
  const Decision decided = Rescore("r", rollout.sampler_logprobs);
  Publish(2);  // would exceed the lag now
  EXPECT_EQ(Submit(rollout), decided);
  rollout.content[0] ^= 1;
  const Decision& duplicate = Submit(rollout);
  EXPECT_EQ(duplicate.kind, DecisionKind::kRefuse);
  bool listed = false;
  for (const Refusal& reason : duplicate.reasons) {
    listed = listed || reason.code == RefusalCode::kDuplicate;
  }
  EXPECT_TRUE(listed);
  rollout.content[0] ^= 1;
  EXPECT_EQ(Submit(rollout), decided);
  EXPECT_EQ(world_.core->Status(world_.time).rollouts_admitted, 1u);
}

TEST_F(RolloutsTest, TheLedgersDecisionIsGivenAgain) {
  const Rollout rollout = sampler_.MakeRollout("r");
  Decision prior;
  prior.rollout_id = "r";
  prior.content = rollout.content;
  prior.kind = DecisionKind::kAdmit;
  sampler_.Request(SubmitRollout{rollout});
  std::get<PeerMessage>(world_.inputs.back()).prior = prior;
  world_.Settle();
  EXPECT_EQ(sampler_.Last<DecisionReply>()->decision, prior);
}

TEST_F(RolloutsTest, RescoringThatNeverComesIsRescoreTimeout) {
  Submit(sampler_.MakeRollout("r"));
  for (int i = 0; i < 34; ++i) {
    world_.Advance(9'000);
    trainer_.Request(Ping{});
    sampler_.Request(Ping{});
    world_.Settle();
  }
  const Decision& decision = sampler_.Last<DecisionReply>()->decision;
  EXPECT_EQ(FirstReason(decision), RefusalCode::kRescoreTimeout);
  EXPECT_EQ(decision.kind, DecisionKind::kRefuse);
}

TEST_F(RolloutsTest, PendingKeepsWhatWasJudgedAtSubmission) {
  const Rollout rollout = sampler_.MakeRollout("r");
  Submit(rollout);
  Publish(2);
  world_.Kill(sampler_);
  world_.Settle();
  EXPECT_EQ(Rescore("r", rollout.sampler_logprobs).kind, DecisionKind::kAdmit);
}

TEST_F(RolloutsTest, LagCountsLivePublishesAndIsStrictByDefault) {
  const Rollout old = sampler_.MakeRollout("r");
  Publish(10);
  EXPECT_EQ(FirstReason(Submit(old)), RefusalCode::kLagExceeded);
}

TEST_F(RolloutsTest, ASamplerMaySubmitOnlyItsOwnRollouts) {
  Rollout rollout = sampler_.MakeRollout("r");
  rollout.sampler = "s2";
  sampler_.Request(SubmitRollout{rollout});
  world_.Settle();
  EXPECT_EQ(sampler_.Last<Refused>()->refusals.front().code, RefusalCode::kUnauthorised);
  trainer_.Request(SubmitRollout{sampler_.MakeRollout("r")});
  world_.Settle();
  EXPECT_EQ(trainer_.Last<Refused>()->refusals.front().code, RefusalCode::kUnauthorised);
}

TEST_F(RolloutsTest, ASamplerMayNotRescoreItsOwnRollouts) {
  const Rollout rollout = sampler_.MakeRollout("r");
  Submit(rollout);
  sampler_.Request(SubmitRescore{"r", rollout.sampler_logprobs});
  world_.Settle();
  EXPECT_EQ(sampler_.Last<Refused>()->refusals.front().code, RefusalCode::kUnauthorised);
}

TEST_F(RolloutsTest, AnOperatorsRolloutIsFilledFromTheSamplerThatServedIt) {
  ModelPeer& cli = world_.AddOperator("cli");
  Rollout rollout;
  rollout.content = Blake2b256("line");
  rollout.spans = {{1, 0, 2}};
  rollout.tokens = {5, 7};
  rollout.sampler_logprobs = {-0.5f, -1.25f};
  cli.Request(SubmitRolloutFor{rollout, rollout.sampler_logprobs});
  world_.Settle();
  ASSERT_NE(cli.Last<DecisionReply>(), nullptr);
  const Decision& decision = cli.Last<DecisionReply>()->decision;
  EXPECT_EQ(decision.kind, DecisionKind::kAdmit) << FormatRefusals(decision.reasons);
  EXPECT_EQ(decision.sampler, "s1");
  EXPECT_EQ(decision.rollout_id, ToHex(rollout.content));
}

TEST_F(RolloutsTest, AnOperatorIsJudgedAtTheLevelHeAsksForASamplerAtTheContracts) {
  Rollout rollout = sampler_.MakeRollout("sampler");
  rollout.level = AdmissionLevel::kWeights;
  EXPECT_EQ(Submit(rollout).level, AdmissionLevel::kTokens);

  ModelPeer& cli = world_.AddOperator("cli");
  rollout = sampler_.MakeRollout("operator");
  std::vector<float> trainer = rollout.sampler_logprobs;
  trainer[1] = -1.2500001f;
  for (const auto& [level, kind] : {std::pair(AdmissionLevel::kWeights, DecisionKind::kAdmit),
                                    std::pair(AdmissionLevel::kKernels, DecisionKind::kAdmit),
                                    std::pair(AdmissionLevel::kTokens, DecisionKind::kRefuse)}) {
    rollout.level = level;
    rollout.id = std::string(1, static_cast<char>('a' + static_cast<int>(level)));
    cli.Request(SubmitRolloutFor{rollout, trainer});
    world_.Settle();
    const Decision& decision = cli.Last<DecisionReply>()->decision;
    EXPECT_EQ(decision.level, level);
    EXPECT_EQ(decision.kind, kind) << FormatRefusals(decision.reasons);
  }
}

TEST_F(RolloutsTest, ARolloutOfAQuarantinedSamplerIsRefused) {
  const Rollout rollout = sampler_.MakeRollout("r");
  sampler_.corrupt_installs = 100;
  trainer_.Publish(2, {2, 0, 0});
  world_.Settle();
  EXPECT_EQ(FirstReason(Submit(rollout)), RefusalCode::kQuarantined);
}

TEST_F(RolloutsTest, PendingRolloutsOutliveTheBridge) {
  const Rollout rollout = sampler_.MakeRollout("r");
  Submit(rollout);
  world_.CrashBridge();
  world_.Settle();
  EXPECT_EQ(world_.core->Status(world_.time).rollouts_pending, 1u);
  EXPECT_EQ(Rescore("r", rollout.sampler_logprobs).kind, DecisionKind::kAdmit);
}

}  // namespace
}  // namespace lockstep::core
