#include <gtest/gtest.h>

#include "bridge/core/core_testing.h"

namespace lockstep::core {
namespace {

const Bytes kOne = {1, 2, 3};

RefusalCode FirstCode(const ModelPeer& peer) {
  const Refused* refused = peer.Last<Refused>();
  return refused == nullptr ? RefusalCode::kLimitExceeded : refused->refusals.front().code;
}

TEST(PeersTest, NothingIsTakenFromAConnectionWithoutHello) {
  World world;
  ModelPeer stranger(world, PeerRole::kOperator, "x", 77);
  world.inputs.push_back(
      PeerMessage{99,
                  "",
                  true,
                  Envelope{IncarnationOf(77), 1, 0, OperatorAct{OperatorAction::kShutdown, ""}},
                  {}});
  world.Settle();
  EXPECT_FALSE(world.core->Status(world.time).draining);
  EXPECT_EQ(world.core->Status(world.time).refusals.front().reason, "unknown_peer");
}

TEST(PeersTest, AnotherRunIsRefusedWithBothNames) {
  World world;
  ModelPeer& peer = world.AddOperator("cli");
  world.inputs.clear();
  peer.Request(Hello{PeerRole::kOperator, "cli", "elsewhere", ""});
  world.Settle();
  const std::string& message = peer.Last<Refused>()->refusals.front().message;
  EXPECT_NE(message.find("'run'"), std::string::npos);
  EXPECT_NE(message.find("'elsewhere'"), std::string::npos);
}

TEST(PeersTest, AKeyOfAnotherNameOrRoleIsUnauthorised) {
  World world;
  for (const char* user : {"s2:sampler", "s1:trainer", "s1"}) {
    ModelSampler& sampler = world.AddSampler("s1");
    PeerMessage hello = std::get<PeerMessage>(world.inputs.front());
    world.inputs.clear();
    hello.authenticated_name = user;
    world.inputs.push_back(hello);
    world.Settle();
    EXPECT_EQ(FirstCode(sampler), RefusalCode::kUnauthorised) << user;
  }
}

TEST(PeersTest, ANewProcessUnderANameReplacesTheOldWhichCanNotComeBack) {
  World world;
  ModelTrainer& trainer = world.AddTrainer("t");
  ModelSampler& old = world.AddSampler("s1");
  world.Settle();
  trainer.Publish(1, kOne);
  world.Settle();
  ModelSampler& fresh = world.AddSampler("s1");
  world.Settle();
  EXPECT_EQ(FirstCode(old), RefusalCode::kStaleIncarnation);
  EXPECT_EQ(fresh.live_version, 1u);
  old.Connect();
  world.Settle();
  EXPECT_EQ(FirstCode(old), RefusalCode::kStaleIncarnation);
  EXPECT_TRUE(world.StatusOf("s1").connected);
  EXPECT_EQ(world.StatusOf("s1").incarnation, fresh.incarnation);
}

TEST(PeersTest, ASilentPeerIsGoneAfterItsLeaseAndAnyMessageRenewsIt) {
  World world;
  ModelTrainer& trainer = world.AddTrainer("t");
  world.AddSampler("s1");
  world.Settle();
  for (int i = 0; i < 3; ++i) {
    world.Advance(6'000);
    trainer.Request(Ping{});
    world.Settle();
  }
  EXPECT_EQ(trainer.Count<Pong>(), 3u);
  EXPECT_TRUE(world.core->Status(world.time).trainer->connected);
  EXPECT_EQ(world.StatusOf("s1").state, "gone");
}

TEST(PeersTest, ALapsedSamplerComesBackAndIsLiveByItsTicketWithoutATransfer) {
  World world;
  ModelTrainer& trainer = world.AddTrainer("t");
  ModelSampler& sampler = world.AddSampler("s1");
  world.Settle();
  trainer.Publish(1, kOne);
  world.Settle();
  world.Advance(20'000);
  EXPECT_EQ(world.StatusOf("s1").state, "gone");
  sampler.Request(Ping{});  // refused: unknown; it says Hello again
  world.Settle();
  EXPECT_EQ(world.StatusOf("s1").state, "live");
  EXPECT_EQ(sampler.Count<RoundStart>(), 1u);
}

TEST(PeersTest, AForgedClaimIsSyncedAnew) {
  World world;
  ModelTrainer& trainer = world.AddTrainer("t");
  ModelSampler& sampler = world.AddSampler("s1");
  world.Settle();
  trainer.Publish(1, kOne);
  world.Settle();
  sampler.ticket[0] ^= 1;
  sampler.Connect();
  world.Settle();
  EXPECT_EQ(sampler.Count<RoundStart>(), 2u);
  EXPECT_EQ(sampler.live_version, 1u);
}

TEST(PeersTest, ALowerUnseenRequestNumberIsRefusedAndMayBeAskedAgain) {
  World world;
  ModelPeer& cli = world.AddOperator("cli");
  world.Settle();
  cli.seq = 10;
  cli.Request(OperatorAct{OperatorAction::kRetire, "1"});
  cli.seq = 4;
  cli.Request(OperatorAct{OperatorAction::kShutdown, ""});
  world.Settle();
  EXPECT_FALSE(cli.Last<Refused>()->final);
  EXPECT_FALSE(world.core->Status(world.time).draining);
}

TEST(PeersTest, MalformedMessageIsAnsweredUnderItsNumberCountedAndEndsTheSession) {
  World world;
  ModelSampler& sampler = world.AddSampler("s1");
  world.Settle();
  const Refusal why{RefusalCode::kProtocolVersion, "frame", "version 2, this bridge speaks 1"};
  world.Step(MalformedMessage{sampler.peer, 41, why});
  ASSERT_NE(sampler.Last<Refused>(), nullptr);
  EXPECT_EQ(sampler.heard.back().reply_to, 41u);
  EXPECT_EQ(sampler.Last<Refused>()->refusals.front(), why);
  EXPECT_FALSE(world.StatusOf("s1").connected);
  ASSERT_EQ(world.core->Status(world.time).refusals.size(), 1u);
  EXPECT_EQ(world.core->Status(world.time).refusals[0].reason, "protocol_version");
}

TEST(PeersTest, GarbageOfNobodyIsCountedAndNobodyIsAnswered) {
  World world;
  ModelSampler& sampler = world.AddSampler("s1");
  world.Settle();
  const size_t heard = sampler.heard.size();
  world.Step(MalformedMessage{0, 0, {RefusalCode::kBadMessage, "bulk", "3 frames"}});
  EXPECT_EQ(sampler.heard.size(), heard);
  EXPECT_EQ(world.core->Status(world.time).refusals.size(), 1u);
}

TEST(RegistrationTest, SamplerBeforeAnyTrainerWaitsAndIsAgreedWhenOneComes) {
  World world;
  ModelSampler& sampler = world.AddSampler("s1");
  world.Settle();
  EXPECT_TRUE(sampler.Last<Registered>()->waiting);
  EXPECT_EQ(world.StatusOf("s1").state, "waiting");
  world.AddTrainer("t");
  world.Settle();
  EXPECT_FALSE(sampler.Last<Registered>()->waiting);
  EXPECT_EQ(sampler.heard.back().reply_to, 0u);
  EXPECT_EQ(world.StatusOf("s1").state, "assigned");
}

TEST(RegistrationTest, AnotherContractIsRefusedVisibleAndNeverSentAByte) {
  World world;
  ModelTrainer& trainer = world.AddTrainer("t");
  world.Settle();
  ModelSampler& sampler = world.AddSampler("s1");
  sampler.contract = ModelContract(2);
  world.Settle();
  EXPECT_EQ(FirstCode(sampler), RefusalCode::kContractMismatch);
  trainer.Publish(1, kOne);
  world.Settle();
  EXPECT_EQ(sampler.Count<RoundStart>(), 0u);
  EXPECT_EQ(world.StatusOf("s1").state, "refused");
  EXPECT_NE(world.StatusOf("s1").reason.find("contract_mismatch"), std::string::npos);
  ASSERT_EQ(trainer.outcome->samplers.size(), 1u);
  EXPECT_EQ(trainer.outcome->samplers[0].state, "refused");
  const ExplainReply why =
      world.core->Explain({ExplainKind::kSampler, "s1"}, std::nullopt, world.time);
  EXPECT_EQ(why.headline, "sampler s1 is refused: contract_mismatch");
  EXPECT_GE(why.paragraphs.size(), 2u);
}

TEST(RegistrationTest, ANewTrainersContractRefusesTheSamplersOfTheOld) {
  World world;
  ModelTrainer& trainer = world.AddTrainer("t");
  ModelSampler& sampler = world.AddSampler("s1");
  world.Settle();
  trainer.Publish(1, kOne);
  world.Settle();
  ModelTrainer& second = world.AddTrainer("t2");
  second.contract = ModelContract(2);
  world.Settle();
  EXPECT_EQ(FirstCode(sampler), RefusalCode::kContractMismatch);
  EXPECT_EQ(world.StatusOf("s1").state, "refused");
  EXPECT_EQ(world.StatusOf("s1").live_version, std::nullopt);
}

TEST(RegistrationTest, TheSameTrainerKeepsItsEpochAcrossReconnectAndBridgeRestart) {
  World world;
  ModelTrainer& trainer = world.AddTrainer("t");
  world.Settle();
  trainer.Connect();
  world.Settle();
  EXPECT_EQ(trainer.epoch, 1u);
  world.CrashBridge();
  world.Settle();
  EXPECT_EQ(trainer.epoch, 1u);
  EXPECT_EQ(world.core->Status(world.time).trainer->epoch, 1u);
}

TEST(RegistrationTest, UnreadableContractIsRefusedWithReasons) {
  World world;
  ModelPeer& peer = world.AddTrainer("t");
  world.inputs.pop_back();
  peer.Request(Hello{PeerRole::kTrainer, "t", "run", ""});
  world.Settle();
  peer.Request(RegisterTrainer{"{", {}, ModelManifest(), SourceRole::kActor});
  world.Settle();
  EXPECT_EQ(FirstCode(peer), RefusalCode::kBadConfig);
}

}  // namespace
}  // namespace lockstep::core
