#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "bridge/core/core_testing.h"

namespace lockstep::core {
namespace {

const Bytes kOne = {1, 2, 3};
const Bytes kTwo = {1, 2, 4};

RefusalCode FirstCode(const ModelPeer& peer) {
  const Refused* refused = peer.Last<Refused>();
  return refused == nullptr ? RefusalCode::kLimitExceeded : refused->refusals.front().code;
}

class PublishTest : public ::testing::Test {
 protected:
  void Publish(uint64_t version, const Bytes& bytes) {
    trainer_.Publish(version, bytes);
    world_.Settle();
  }

  World world_;
  ModelTrainer& trainer_ = world_.AddTrainer("t");
};

TEST_F(PublishTest, PublishWithoutSamplersIsAnsweredOnceDurable) {
  world_.Settle();
  Publish(1, kOne);
  ASSERT_TRUE(trainer_.outcome.has_value());
  EXPECT_TRUE(trainer_.outcome->samplers.empty());
  EXPECT_EQ(world_.StatusOf(uint64_t{1}).state, "sealed");
  EXPECT_TRUE(world_.StatusOf(uint64_t{1}).on_disk);
}

TEST_F(PublishTest, PublishReachesEverySamplerOverBothTransports) {
  ModelSampler& shm = world_.AddSampler("s1");
  ModelSampler& tcp = world_.AddSampler("s2");
  tcp.transports = {TransportKind::kTcp};
  world_.Settle();
  for (const TransportKind kind : {TransportKind::kShm, TransportKind::kTcp}) {
    trainer_.transport = kind;
    const uint64_t version = kind == TransportKind::kShm ? 1 : 2;
    Publish(version, version == 1 ? kOne : kTwo);
    EXPECT_EQ(shm.live_version, version);
    EXPECT_EQ(tcp.live_version, version);
    ASSERT_TRUE(trainer_.outcome.has_value());
    ASSERT_EQ(trainer_.outcome->samplers.size(), 2u);
    for (const SamplerOutcome& outcome : trainer_.outcome->samplers) {
      EXPECT_EQ(outcome.state, "live");
      EXPECT_EQ(outcome.components_verified, 2u);
      EXPECT_EQ(outcome.components_total, 2u);
    }
  }
  EXPECT_EQ(world_.StatusOf("s1").transport, "shm");
  EXPECT_EQ(world_.StatusOf("s2").transport, "tcp");
}

TEST_F(PublishTest, VersionBackwardsIsRefusedWithTheNewest) {
  world_.Settle();
  Publish(3, kOne);
  Publish(2, kTwo);
  EXPECT_EQ(FirstCode(trainer_), RefusalCode::kVersionBackwards);
  EXPECT_NE(trainer_.Last<Refused>()->refusals.front().message.find("publish version 4"),
            std::string::npos);
}

TEST_F(PublishTest, SameVersionWithSameBytesIsIdempotentAndMovesNothing) {
  world_.AddSampler("s1");
  world_.Settle();
  Publish(1, kOne);
  const size_t records = world_.ledger.size();
  Publish(1, kOne);
  EXPECT_TRUE(trainer_.Last<OfferAccepted>()->verify_only);
  ASSERT_TRUE(trainer_.outcome.has_value());
  ASSERT_EQ(trainer_.outcome->samplers.size(), 1u);
  EXPECT_EQ(trainer_.outcome->samplers[0].state, "live");
  EXPECT_EQ(world_.ledger.size(), records + 1);  // the offer's event
}

TEST_F(PublishTest, SameVersionWithOtherBytesIsAConflict) {
  world_.Settle();
  Publish(1, kOne);
  Publish(1, kTwo);
  EXPECT_EQ(FirstCode(trainer_), RefusalCode::kVersionConflict);
  Publish(1, kOne);
  EXPECT_TRUE(trainer_.outcome.has_value());
}

TEST_F(PublishTest, WrongEpochRoleAndLayoutAreRefused) {
  world_.Settle();
  const Digest256 layout = LayoutDigest(ModelManifest());
  trainer_.Request(Offer{9, 1, SourceRole::kActor, layout, TransportKind::kShm});
  world_.Settle();
  EXPECT_EQ(FirstCode(trainer_), RefusalCode::kStaleEpoch);
  trainer_.Request(Offer{1, 1, SourceRole::kCritic, layout, TransportKind::kShm});
  world_.Settle();
  EXPECT_EQ(FirstCode(trainer_), RefusalCode::kWrongSourceRole);
  trainer_.Request(Offer{1, 1, SourceRole::kActor, Digest256{}, TransportKind::kShm});
  world_.Settle();
  EXPECT_EQ(FirstCode(trainer_), RefusalCode::kManifestMismatch);
}

TEST_F(PublishTest, TrainerKilledMidPublishDiscardsTheVersionAndFreesItsNumber) {
  ModelSampler& sampler = world_.AddSampler("s1");
  world_.Settle();
  Publish(1, kOne);
  trainer_.hold_seal = true;
  Publish(2, kTwo);
  EXPECT_EQ(world_.StatusOf(uint64_t{2}).state, "transferring");
  world_.Kill(trainer_);
  world_.Settle();
  EXPECT_EQ(world_.StatusOf(uint64_t{2}).state, "discarded");
  EXPECT_EQ(sampler.live_version, 1u);
  ModelTrainer& next = world_.AddTrainer("t");
  world_.Settle();
  EXPECT_EQ(next.epoch, 2u);
  next.Publish(2, kOne);
  world_.Settle();
  EXPECT_EQ(sampler.live_version, 2u);
}

TEST_F(PublishTest, SecondTrainerTakesTheEpochAndTheFirstIsToldStaleEpoch) {
  world_.Settle();
  trainer_.hold_seal = true;
  Publish(1, kOne);
  ModelTrainer& second = world_.AddTrainer("t2");
  world_.Settle();
  EXPECT_EQ(second.epoch, 2u);
  EXPECT_EQ(FirstCode(trainer_), RefusalCode::kStaleEpoch);
  EXPECT_TRUE(trainer_.Last<Refused>()->final);
  EXPECT_EQ(world_.StatusOf(uint64_t{1}).state, "discarded");
}

TEST_F(PublishTest, ZeroChangeRaisesAnAlarmAndIsInTheOutcome) {
  world_.Settle();
  Publish(1, kOne);
  Publish(2, kOne);
  EXPECT_TRUE(trainer_.outcome->zero_change);
  EXPECT_TRUE(world_.StatusOf(uint64_t{2}).zero_change);
  EXPECT_EQ(world_.core->Status(world_.time).alarms.size(), 1u);
  Publish(3, kTwo);
  EXPECT_FALSE(trainer_.outcome->zero_change);
  EXPECT_TRUE(world_.core->Status(world_.time).alarms.empty());
}

TEST_F(PublishTest, SpoolErrorIsAnAlarmButTheOutcomeStillComes) {
  world_.spool_error = "no space left on device";
  world_.Settle();
  Publish(1, kOne);
  EXPECT_TRUE(trainer_.outcome.has_value());
  EXPECT_FALSE(world_.StatusOf(uint64_t{1}).on_disk);
  EXPECT_EQ(world_.core->Status(world_.time).alarms.size(), 1u);
}

TEST_F(PublishTest, OnlyTheNewestKVersionsKeepTheirBytes) {
  ModelSampler& sampler = world_.AddSampler("s1");
  world_.Settle();
  for (uint64_t version = 1; version <= 5; ++version) Publish(version, {version, 0, 0});
  EXPECT_EQ(sampler.live_version, 5u);
  EXPECT_EQ(world_.StatusOf(uint64_t{3}).state, "retired");
  EXPECT_FALSE(world_.StatusOf(uint64_t{3}).bytes_held);
  EXPECT_TRUE(world_.StatusOf(uint64_t{4}).bytes_held);
  EXPECT_TRUE(world_.StatusOf(uint64_t{5}).bytes_held);
  EXPECT_EQ(world_.spool.size(), 2u);
  // An arena nobody reads was filled again instead of a new one.
  EXPECT_TRUE(trainer_.Last<OfferAccepted>()->reuse_arena);
}

TEST_F(PublishTest, SealBeforeTheLastUploadedByteWaitsForIt) {
  world_.Settle();
  trainer_.transport = TransportKind::kTcp;
  trainer_.hold_seal = true;
  trainer_.Publish(1, kOne);
  while (trainer_.Count<OfferAccepted>() == 0) {
    ASSERT_FALSE(world_.inputs.empty());
    const InputBody next = world_.inputs.front();
    world_.inputs.pop_front();
    world_.Step(next);
  }
  const std::deque<InputBody> marks = std::exchange(world_.inputs, {});
  trainer_.Seal();
  world_.Settle();
  EXPECT_EQ(world_.StatusOf(uint64_t{1}).state, "offered");
  world_.inputs = marks;
  world_.Settle();
  EXPECT_EQ(world_.StatusOf(uint64_t{1}).state, "sealed");
  EXPECT_TRUE(trainer_.outcome.has_value());
}

TEST_F(PublishTest, OfferingAnotherVersionGivesUpTheUnsealedOne) {
  world_.Settle();
  trainer_.hold_seal = true;
  Publish(1, kOne);
  trainer_.hold_seal = false;
  Publish(2, kTwo);
  EXPECT_EQ(world_.StatusOf(uint64_t{1}).state, "discarded");
  EXPECT_EQ(world_.StatusOf(uint64_t{2}).state, "sealed");
}

TEST_F(PublishTest, ARepeatedRequestNumberGetsTheSameAnswer) {
  world_.Settle();
  const Offer offer{1, 1, SourceRole::kActor, LayoutDigest(ModelManifest()), TransportKind::kTcp};
  trainer_.publishing = 0;
  trainer_.Request(offer);
  world_.Settle();
  const OfferAccepted first = *trainer_.Last<OfferAccepted>();
  --trainer_.seq;
  trainer_.Request(offer);
  world_.Settle();
  EXPECT_EQ(trainer_.Count<OfferAccepted>(), 2u);
  EXPECT_EQ(trainer_.Last<OfferAccepted>()->key, first.key);
  EXPECT_EQ(trainer_.Last<OfferAccepted>()->arena_id, first.arena_id);
}

TEST_F(PublishTest, ComponentNamedTwiceIsRefused) {
  world_.Settle();
  trainer_.hold_seal = true;
  Publish(1, kOne);
  const OfferAccepted accepted = *trainer_.Last<OfferAccepted>();
  std::vector<ComponentDigest> twice = ComponentsOf(accepted.probe_seed, kOne);
  twice.push_back(twice.front());
  trainer_.Request(SealVersion{1, accepted.arena_id, DigestOf(1, accepted.key, kOne), twice, 0});
  world_.Settle();
  EXPECT_EQ(FirstCode(trainer_), RefusalCode::kBadMessage);
}

// Keeps who may fill which arena, as the descriptor and chunk servers would.
class GrantingWorld : public World {
 public:
  std::set<std::pair<Incarnation, uint64_t>> writers;
  std::vector<uint64_t> granted;  // arenas, in order

 protected:
  void Carry(const Effect& effect) override {
    if (const Grant* grant = std::get_if<Grant>(&effect); grant != nullptr && grant->write) {
      writers.insert({grant->incarnation, grant->arena_id});
      granted.push_back(grant->arena_id);
    } else if (const Revoke* revoke = std::get_if<Revoke>(&effect)) {
      writers.erase({revoke->incarnation, revoke->arena_id});
    }
    World::Carry(effect);
  }
};

class GrantTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  GrantTest() {
    trainer_.transport = GetParam();
    trainer_.hold_seal = true;
    world_.Settle();
  }
  void Publish(uint64_t version, const Bytes& bytes) {
    trainer_.Publish(version, bytes);
    world_.Settle();
  }

  GrantingWorld world_;
  ModelTrainer& trainer_ = world_.AddTrainer("t");
};

TEST_P(GrantTest, OfferLetsTheTrainerFillTheArenaUntilItIsSealed) {
  Publish(1, kOne);
  const uint64_t arena = trainer_.Last<OfferAccepted>()->arena_id;
  EXPECT_TRUE(world_.writers.contains({trainer_.incarnation, arena}));
  trainer_.Seal();
  world_.Settle();
  ASSERT_TRUE(trainer_.outcome.has_value());
  EXPECT_TRUE(world_.writers.empty());
}

TEST_P(GrantTest, DiscardedOfferTakesTheWriteGrantBack) {
  Publish(1, kOne);
  EXPECT_EQ(world_.writers.size(), 1u);
  world_.Kill(trainer_);
  world_.Settle();
  EXPECT_EQ(world_.StatusOf(uint64_t{1}).state, "discarded");
  EXPECT_TRUE(world_.writers.empty());
}

TEST_P(GrantTest, OnlyANewArenaOrAnUploadNeedsAWriteGrant) {
  trainer_.hold_seal = false;
  for (uint64_t version = 1; version <= 4; ++version) {
    const size_t before = world_.granted.size();
    Publish(version, {version, version, version});
    const OfferAccepted accepted = *trainer_.Last<OfferAccepted>();
    const bool expected = GetParam() == TransportKind::kTcp || !accepted.reuse_arena;
    EXPECT_EQ(world_.granted.size() - before, expected ? 1u : 0u) << "version " << version;
  }
  EXPECT_TRUE(world_.writers.empty());
}

TEST_F(PublishTest, NoMemoryForAnUploadRefusesTheOfferAndTheNumberStaysFree) {
  trainer_.transport = TransportKind::kTcp;
  trainer_.hold_seal = true;
  world_.Settle();
  Publish(1, kOne);
  const uint64_t arena = trainer_.Last<OfferAccepted>()->arena_id;
  world_.Step(ArenaFailed{arena, "4096 bytes were asked for, 0 are left"});
  EXPECT_EQ(FirstCode(trainer_), RefusalCode::kLimitExceeded);
  EXPECT_NE(trainer_.Last<Refused>()->refusals.front().message.find("0 are left"),
            std::string::npos);
  EXPECT_EQ(world_.StatusOf(uint64_t{1}).state, "discarded");
  trainer_.hold_seal = false;
  Publish(1, kOne);
  EXPECT_NE(trainer_.Last<OfferAccepted>()->arena_id, arena);
  EXPECT_TRUE(trainer_.outcome.has_value());
}

INSTANTIATE_TEST_SUITE_P(BothTransports, GrantTest,
                         ::testing::Values(TransportKind::kShm, TransportKind::kTcp));

}  // namespace
}  // namespace lockstep::core
