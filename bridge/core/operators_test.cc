#include <gtest/gtest.h>

#include "bridge/core/core_testing.h"

namespace lockstep::core {
namespace {

class OperatorsTest : public ::testing::Test {
 protected:
  OperatorsTest() { world_.Settle(); }

  void Publish(uint64_t version) {
    trainer_.Publish(version, {version, 0, 0});
    world_.Settle();
  }
  const ActReply& Act(OperatorAction action, std::string argument) {
    cli_.Request(OperatorAct{action, std::move(argument)});
    world_.Settle();
    return *cli_.Last<ActReply>();
  }

  World world_;
  ModelTrainer& trainer_ = world_.AddTrainer("t");
  ModelSampler& sampler_ = world_.AddSampler("s1");
  ModelPeer& cli_ = world_.AddOperator("cli");
};

TEST_F(OperatorsTest, RollbackBringsThePreviousBytesBackAsANewVersion) {
  Publish(1);
  Publish(2);
  const ActReply& reply = Act(OperatorAction::kRollback, "");
  EXPECT_TRUE(reply.done) << reply.message;
  EXPECT_EQ(sampler_.live_version, 3u);
  EXPECT_EQ(sampler_.slot, (Bytes{1, 0, 0}));
  EXPECT_EQ(world_.StatusOf(uint64_t{3}).rollback_of, 1u);
  Publish(3);
  EXPECT_EQ(trainer_.Last<Refused>()->refusals.front().code, RefusalCode::kVersionConflict);
  Publish(4);
  EXPECT_EQ(sampler_.live_version, 4u);
}

TEST_F(OperatorsTest, RollbackWithNothingToGoBackToSaysWhy) {
  EXPECT_FALSE(Act(OperatorAction::kRollback, "").done);
  Publish(1);
  EXPECT_FALSE(Act(OperatorAction::kRollback, "").done);
  EXPECT_FALSE(Act(OperatorAction::kRollback, "1").done);
  EXPECT_FALSE(Act(OperatorAction::kRollback, "seven").done);
  for (uint64_t version = 2; version <= 4; ++version) Publish(version);
  const ActReply& gone = Act(OperatorAction::kRollback, "1");
  EXPECT_FALSE(gone.done);
  EXPECT_NE(gone.message.find("no longer held"), std::string::npos);
}

TEST_F(OperatorsTest, ADamagedCopyIsNotRolledBackTo) {
  Publish(1);
  const uint64_t arena = trainer_.Last<OfferAccepted>()->arena_id;
  Publish(2);
  world_.memory[arena] = {9, 9, 9};
  EXPECT_FALSE(Act(OperatorAction::kRollback, "1").done);
  EXPECT_EQ(sampler_.live_version, 2u);
}

TEST_F(OperatorsTest, ARepeatedActHasOneEffectAlsoOverANewConnection) {
  Publish(1);
  Publish(2);
  Act(OperatorAction::kRollback, "");
  const uint64_t seq = cli_.seq;
  world_.inputs.push_back(PeerGone{cli_.peer, "broke"});
  cli_.Connect();
  cli_.seq = seq - 1;
  Act(OperatorAction::kRollback, "");
  EXPECT_EQ(cli_.Count<ActReply>(), 2u);
  EXPECT_EQ(world_.Events("rollback"), 1u);
}

TEST_F(OperatorsTest, RetireDropsAnOldVersionAndNeverTheNewest) {
  Publish(1);
  Publish(2);
  EXPECT_FALSE(Act(OperatorAction::kRetire, "2").done);
  EXPECT_FALSE(Act(OperatorAction::kRetire, "9").done);
  EXPECT_TRUE(Act(OperatorAction::kRetire, "1").done);
  EXPECT_EQ(world_.StatusOf(uint64_t{1}).state, "retired");
  EXPECT_FALSE(world_.StatusOf(uint64_t{1}).bytes_held);
}

TEST_F(OperatorsTest, ReleaseFromQuarantineSyncsAnew) {
  sampler_.corrupt_installs = 3;
  Publish(1);
  EXPECT_TRUE(sampler_.fenced);
  EXPECT_FALSE(Act(OperatorAction::kQuarantineRelease, "s9").done);
  EXPECT_TRUE(Act(OperatorAction::kQuarantineRelease, "s1").done);
  EXPECT_FALSE(sampler_.fenced);
  EXPECT_EQ(sampler_.live_version, 1u);
  EXPECT_TRUE(world_.core->Status(world_.time).alarms.empty());
  EXPECT_FALSE(Act(OperatorAction::kQuarantineRelease, "s1").done);
}

TEST_F(OperatorsTest, AnotherContractIsNoWayOutOfQuarantine) {
  sampler_.corrupt_installs = 3;
  Publish(1);
  sampler_.contract = ModelContract(2);
  sampler_.Connect();
  world_.Settle();
  EXPECT_EQ(world_.StatusOf("s1").state, "quarantined");
  EXPECT_TRUE(Act(OperatorAction::kQuarantineRelease, "s1").done);
  EXPECT_EQ(world_.StatusOf("s1").state, "refused");
  EXPECT_EQ(sampler_.live_version, std::nullopt);
  sampler_.contract = ModelContract();
  sampler_.Connect();
  world_.Settle();
  EXPECT_EQ(sampler_.live_version, 1u);
}

TEST_F(OperatorsTest, OnlyOperatorsAct) {
  sampler_.Request(OperatorAct{OperatorAction::kShutdown, ""});
  world_.Settle();
  EXPECT_EQ(sampler_.Last<Refused>()->refusals.front().code, RefusalCode::kUnauthorised);
}

TEST_F(OperatorsTest, ShutdownLetsARunningRoundFinishAndTakesNothingNew) {
  sampler_.stuck = true;
  Publish(1);
  Act(OperatorAction::kShutdown, "");
  EXPECT_FALSE(world_.exited);
  Publish(2);
  EXPECT_EQ(trainer_.Last<Refused>()->refusals.front().code, RefusalCode::kShuttingDown);
  EXPECT_FALSE(trainer_.Last<Refused>()->final);
  sampler_.Request(RoundFailed{sampler_.Last<RoundStart>()->round_id,
                               {RefusalCode::kTransferFailed, "", "gave up"}});
  world_.Settle();
  EXPECT_TRUE(world_.exited);
}

TEST_F(OperatorsTest, DrainEndsAtItsDeadline) {
  sampler_.stuck = true;
  Publish(1);
  world_.Step(Drain{});
  EXPECT_FALSE(world_.exited);
  EXPECT_LE(world_.core->NextDeadlineMs(), world_.time.now_ms + world_.config.drain_timeout_ms);
  world_.Advance(world_.config.drain_timeout_ms);
  EXPECT_TRUE(world_.exited);
}

TEST_F(OperatorsTest, ABridgeRestartKeepsVersionsQuarantinesAndServesFromDisk) {
  ModelSampler& bad = world_.AddSampler("s2");
  world_.Settle();
  bad.corrupt_installs = 3;
  Publish(1);
  world_.CrashBridge();
  world_.Settle();
  EXPECT_EQ(world_.StatusOf(uint64_t{1}).state, "live");
  EXPECT_EQ(world_.StatusOf("s1").state, "live");  // by its ticket
  EXPECT_EQ(sampler_.Count<RoundStart>(), 1u);
  EXPECT_EQ(world_.StatusOf("s2").state, "quarantined");
  ModelSampler& late = world_.AddSampler("s3");
  world_.Settle();
  EXPECT_EQ(late.live_version, 1u);
  ModelSampler& again = world_.RestartSampler(bad);
  world_.Settle();
  EXPECT_EQ(again.live_version, 1u);
}

TEST_F(OperatorsTest, AnUnsealedVersionIsDiscardedByARestart) {
  trainer_.hold_seal = true;
  Publish(1);
  trainer_.publishing = 0;  // it gives up
  world_.CrashBridge();
  world_.Settle();
  EXPECT_EQ(world_.StatusOf(uint64_t{1}).state, "discarded");
  trainer_.hold_seal = false;
  Publish(1);
  EXPECT_EQ(sampler_.live_version, 1u);
}

TEST_F(OperatorsTest, WithoutASpoolALateSamplerWaitsForTheNextPublishAfterARestart) {
  world_.spool_error = "no space left on device";
  Publish(1);
  world_.CrashBridge();
  ModelSampler& late = world_.AddSampler("s2");
  world_.Settle();
  EXPECT_EQ(late.live_version, std::nullopt);
  EXPECT_NE(world_.StatusOf("s2").reason.find("not held"), std::string::npos);
  Publish(1);  // the same bytes once more
  EXPECT_EQ(late.live_version, 1u);
}

TEST_F(OperatorsTest, ExplainNamesWhatToDo) {
  Publish(1);
  const auto explain = [&](ExplainKind kind, const std::string& id) {
    return world_.core->Explain({kind, id}, std::nullopt, world_.time);
  };
  EXPECT_EQ(explain(ExplainKind::kVersion, "1").headline, "version 1 is live on 1 samplers");
  EXPECT_EQ(explain(ExplainKind::kSampler, "s1").headline, "sampler s1 is live on version 1");
  EXPECT_FALSE(explain(ExplainKind::kVersion, "x").found);
  EXPECT_FALSE(explain(ExplainKind::kRollout, "x").found);
}

}  // namespace
}  // namespace lockstep::core
