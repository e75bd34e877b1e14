#include <gtest/gtest.h>

#include "bridge/core/core_testing.h"

namespace lockstep::core {
namespace {

const Bytes kOne = {1, 2, 3};
const Bytes kTwo = {1, 2, 4};

class RoundsTest : public ::testing::Test {
 protected:
  RoundsTest() { world_.Settle(); }

  void Publish(uint64_t version, const Bytes& bytes) {
    trainer_.Publish(version, bytes);
    world_.Settle();
  }
  const SamplerOutcome& OutcomeOf(const std::string& name) {
    if (trainer_.outcome.has_value()) {
      for (const SamplerOutcome& outcome : trainer_.outcome->samplers) {
        if (outcome.sampler == name) return outcome;
      }
    }
    ADD_FAILURE() << "no outcome for " << name;
    static const SamplerOutcome kNone{"", "", {{RefusalCode::kBadMessage, "", ""}}};
    return kNone;
  }

  World world_;
  ModelTrainer& trainer_ = world_.AddTrainer("t");
  ModelSampler& sampler_ = world_.AddSampler("s1");
};

TEST_F(RoundsTest, SealedDigestMismatchQuarantinesSampler) {
  sampler_.corrupt_installs = 100;
  Publish(1, kOne);
  EXPECT_EQ(sampler_.live_version, std::nullopt);
  EXPECT_TRUE(sampler_.fenced);
  EXPECT_EQ(world_.StatusOf("s1").state, "quarantined");
  // The first try and round_retries more, each under a key of its own.
  EXPECT_EQ(sampler_.Count<RoundStart>(), 1 + world_.config.round_retries);
  EXPECT_EQ(OutcomeOf("s1").state, "quarantined");
  const Refusal& why = OutcomeOf("s1").refusals.front();
  EXPECT_EQ(why.code, RefusalCode::kDigestMismatch);
  EXPECT_EQ(why.key, "b");
}

TEST_F(RoundsTest, OneCorruptInstallIsRetriedUnderAFreshKeyAndGoesLive) {
  sampler_.corrupt_installs = 1;
  Publish(1, kOne);
  EXPECT_EQ(sampler_.live_version, 1u);
  ASSERT_EQ(sampler_.Count<RoundKey>(), 2u);
  const Digest256 version_key = trainer_.Last<OfferAccepted>()->key;
  EXPECT_NE(sampler_.Last<RoundKey>()->key, version_key);
}

TEST_F(RoundsTest, KernelProbeMismatchQuarantinesSamplerNamingTheComponent) {
  sampler_.other_kernel = true;
  Publish(1, kOne);
  EXPECT_EQ(world_.StatusOf("s1").state, "quarantined");
  const Refusal& why = OutcomeOf("s1").refusals.front();
  EXPECT_EQ(why.code, RefusalCode::kKernelMismatch);
  EXPECT_EQ(why.key, "layers.0.mlp");
}

TEST_F(RoundsTest, MissingFlushReceiptQuarantinesSampler) {
  sampler_.no_receipt = true;
  Publish(1, kOne);
  EXPECT_EQ(world_.StatusOf("s1").state, "quarantined");
  EXPECT_EQ(OutcomeOf("s1").refusals.front().code, RefusalCode::kFlushReceiptMissing);
}

TEST_F(RoundsTest, SealedIsHeldUntilTheTrainerSealedAndTheKeyComesOnlyThen) {
  trainer_.hold_seal = true;
  Publish(1, kOne);
  EXPECT_EQ(world_.StatusOf("s1").state, "sealed");
  EXPECT_EQ(sampler_.Count<RoundKey>(), 0u);
  trainer_.Seal();
  world_.Settle();
  EXPECT_EQ(sampler_.live_version, 1u);
}

TEST_F(RoundsTest, SamplerKilledMidRoundFailsAloneAndTheOthersFinish) {
  ModelSampler& other = world_.AddSampler("s2");
  world_.Settle();
  sampler_.stuck = true;
  Publish(1, kOne);
  EXPECT_FALSE(trainer_.outcome.has_value());
  EXPECT_EQ(other.live_version, 1u);
  world_.Kill(sampler_);
  world_.Settle();
  ASSERT_TRUE(trainer_.outcome.has_value());
  EXPECT_EQ(OutcomeOf("s1").state, "failed");
  EXPECT_EQ(OutcomeOf("s1").refusals.front().code, RefusalCode::kPeerLost);
  EXPECT_EQ(OutcomeOf("s2").state, "live");
  EXPECT_EQ(world_.StatusOf("s1").state, "gone");
}

TEST_F(RoundsTest, StuckSamplerTimesOutOnceThenIsQuarantined) {
  sampler_.stuck = true;
  Publish(1, kOne);
  for (int i = 0; i < 9; ++i) {
    trainer_.Request(Ping{});
    sampler_.Request(Ping{});
    world_.Settle();
    world_.Advance(9'000);
    world_.Settle();
  }
  EXPECT_EQ(sampler_.Count<RoundStart>(), 2u);
  EXPECT_EQ(world_.StatusOf("s1").state, "quarantined");
  EXPECT_EQ(OutcomeOf("s1").refusals.front().code, RefusalCode::kRoundTimeout);
}

TEST_F(RoundsTest, LateSamplerGetsTheNewestVersionAfterTheTrainerHasLeft) {
  Publish(1, kOne);
  world_.Kill(trainer_);
  world_.Settle();
  ModelSampler& late = world_.AddSampler("s2");
  world_.Settle();
  EXPECT_EQ(late.live_version, 1u);
  EXPECT_EQ(late.slot, kOne);
  // A late round is never asked under the version's own key.
  EXPECT_NE(late.Last<RoundKey>()->key, trainer_.Last<OfferAccepted>()->key);
}

TEST_F(RoundsTest, LateSamplerIsNotServedFromADamagedCopy) {
  Publish(1, kOne);
  world_.memory[trainer_.Last<OfferAccepted>()->arena_id] = kTwo;
  ModelSampler& late = world_.AddSampler("s2");
  world_.Settle();
  EXPECT_EQ(late.live_version, std::nullopt);
  EXPECT_NE(world_.StatusOf("s2").state, "quarantined");  // not its fault
  EXPECT_FALSE(world_.StatusOf(uint64_t{1}).bytes_held);
  Publish(1, kOne);  // the trainer moves the bytes again
  EXPECT_FALSE(trainer_.Last<OfferAccepted>()->verify_only);
  EXPECT_EQ(late.live_version, 1u);
}

TEST_F(RoundsTest, SamplerThatHasNotSealedSkipsToTheNewerVersion) {
  ModelSampler& slow = world_.AddSampler("s2");
  world_.Settle();
  slow.stuck = true;
  Publish(1, kOne);
  EXPECT_FALSE(trainer_.outcome.has_value());
  slow.stuck = false;
  Publish(2, kTwo);
  EXPECT_EQ(slow.live_version, 2u);
  bool superseded = false;
  for (const Envelope& envelope : trainer_.heard) {
    const PublishOutcome* outcome = std::get_if<PublishOutcome>(&envelope.body);
    if (outcome == nullptr || outcome->version != 1) continue;
    for (const SamplerOutcome& sampler : outcome->samplers) {
      superseded = superseded || (sampler.sampler == "s2" && sampler.state == "superseded");
    }
  }
  EXPECT_TRUE(superseded);
}

TEST_F(RoundsTest, ArenaOfAVanishedReaderIsNeverWrittenAgain) {
  Publish(1, kOne);
  const uint64_t arena = trainer_.Last<OfferAccepted>()->arena_id;
  world_.Kill(sampler_);  // its mapping may live on
  world_.Settle();
  for (uint64_t version = 2; version <= 8; ++version) {
    Publish(version, {version, 0, 0});
    EXPECT_NE(trainer_.Last<OfferAccepted>()->arena_id, arena);
  }
  EXPECT_EQ(trainer_.Last<DropArena>()->arena_id, arena);
}

TEST_F(RoundsTest, SealedBeforeAllBytesIsRefused) {
  sampler_.stuck = true;
  trainer_.hold_seal = true;
  trainer_.transport = TransportKind::kTcp;
  trainer_.Publish(1, kOne);
  while (sampler_.Count<RoundStart>() == 0) {
    ASSERT_FALSE(world_.inputs.empty());
    InputBody next = world_.inputs.front();
    world_.inputs.pop_front();
    world_.Step(next);
  }
  world_.inputs.clear();  // the upload stops here
  sampler_.Request(Sealed{sampler_.Last<RoundStart>()->round_id});
  world_.Settle();
  ASSERT_NE(sampler_.Last<Refused>(), nullptr);
  EXPECT_EQ(sampler_.Last<Refused>()->refusals.front().code, RefusalCode::kBadMessage);
}

TEST_F(RoundsTest, TransferFailureIsRetriedOverTheOtherTransport) {
  sampler_.stuck = true;
  Publish(1, kOne);
  EXPECT_EQ(sampler_.Last<RoundStart>()->transport, TransportKind::kShm);
  sampler_.stuck = false;
  sampler_.Request(RoundFailed{sampler_.Last<RoundStart>()->round_id,
                               {RefusalCode::kTransferFailed, "", "the descriptor did not come"}});
  world_.Settle();
  EXPECT_EQ(sampler_.Last<RoundStart>()->transport, TransportKind::kTcp);
  EXPECT_EQ(sampler_.live_version, 1u);
}

}  // namespace
}  // namespace lockstep::core
