// A version's way through the real loop: both transports, digests by the worker, the spool.

#include <cstring>

#include "bridge/auth/keys.h"
#include "bridge/loop/loop_testing.h"
#include "bridge/transport/bulk_reader.h"
#include "bridge/transport/shm.h"
#include "bridge/transport/tcp.h"
#include "bridge/transport/version_digest.h"

namespace lockstep::loop {
namespace {

using Bytes = std::vector<uint8_t>;

const Manifest kManifest = core::ModelManifest();
const ArenaLayout kLayout = ComputeArenaLayout(kManifest);
const absl::Duration kTimeout = absl::Seconds(20);

Bytes VersionBytes(uint8_t seed) {
  Bytes bytes(kLayout.total_bytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(seed + i * 13);
  return bytes;
}

VersionDigest DigestOf(uint64_t version, const Digest256& key, absl::Span<const uint8_t> bytes) {
  return transport::DigestArena("default", version, key, kManifest, bytes, 1).value();
}

class TestTrainer {
 public:
  TestTrainer(RunningLoop& bridge, TransportKind transport)
      : peer_(bridge.address(), PeerRole::kTrainer, "t"), transport_(transport) {
    welcome_ = peer_.Meet();
    const transport::BulkEndpoint bulk{welcome_.bulk_address, welcome_.bulk_key,
                                       peer_.incarnation()};
    if (transport == TransportKind::kShm) {
      writer_ = std::make_unique<transport::ShmWriter>(welcome_.fd_socket_path, peer_.incarnation(),
                                                       kTimeout);
    } else {
      writer_ = std::make_unique<transport::TcpWriter>(bulk, transport::BulkOptions());
    }
    epoch_ = peer_
                 .Ask<Registered>(RegisterTrainer{
                     ContractToJson(core::ModelContract()), {}, kManifest, SourceRole::kActor})
                 .epoch;
  }

  // Offers, moves the bytes, says sealed; the number of the request that PublishOutcome answers.
  uint64_t Seal(uint64_t version, const Bytes& bytes) {
    const OfferAccepted accepted = peer_.Ask<OfferAccepted>(
        Offer{epoch_, version, SourceRole::kActor, LayoutDigest(kManifest), transport_});
    if (!accepted.verify_only) Move(accepted, bytes);
    return peer_.Request(
        SealVersion{version, accepted.arena_id, DigestOf(version, accepted.key, bytes), {}, 0});
  }

  PublishOutcome Publish(uint64_t version, const Bytes& bytes) {
    return peer_.Answer<PublishOutcome>(Seal(version, bytes));
  }

  TestPeer& peer() { return peer_; }

 private:
  void Move(const OfferAccepted& accepted, const Bytes& bytes) {
    transport::RoundFeed feed;
    absl::Status moved =
        writer_->Begin({accepted.arena_id, kLayout.total_bytes, accepted.reuse_arena});
    for (size_t i = 0; moved.ok() && i < kLayout.offsets.size(); ++i) {
      moved = writer_->Write(
          kLayout.offsets[i],
          absl::MakeConstSpan(bytes).subspan(kLayout.offsets[i], kLayout.sizes[i]), feed);
    }
    if (moved.ok()) moved = writer_->Finish(feed);
    EXPECT_TRUE(moved.ok()) << moved;
  }

  TestPeer peer_;
  const TransportKind transport_;
  Welcome welcome_;
  std::unique_ptr<transport::ArenaWriter> writer_;
  uint64_t epoch_ = 0;
};

class TestSampler {
 public:
  TestSampler(RunningLoop& bridge, const std::string& name, TransportKind transport)
      : peer_(bridge.address(), PeerRole::kSampler, name) {
    welcome_ = peer_.Meet();
    peer_.Ask<Registered>(SamplerRegistration({transport}));
  }

  // Goes through one round as it should be; the bytes it serves then.
  Bytes TakeRound() {
    RoundStart round;
    uint64_t ready = 0;
    Bytes bytes;
    while (const std::optional<Envelope> heard = peer_.Hear()) {
      if (const auto* start = std::get_if<RoundStart>(&heard->body)) {
        round = *start;
        ready = start->bytes_ready;
      } else if (const auto* progress = std::get_if<RoundProgress>(&heard->body)) {
        ready = progress->bytes_ready;
      } else if (const auto* key = std::get_if<RoundKey>(&heard->body)) {
        peer_.Request(Verified{round.round_id, DigestOf(round.version, key->key, bytes), {}});
      } else if (std::holds_alternative<Activate>(heard->body)) {
        peer_.Request(Activated{round.round_id, ++cache_epoch_, "flushed"});
      } else if (const auto* live = std::get_if<Live>(&heard->body)) {
        live_ = *live;
        return bytes;
      } else if (std::holds_alternative<Refused>(heard->body)) {
        ADD_FAILURE() << std::get<Refused>(heard->body).refusals.front().message;
        return {};
      }
      if (round.round_id != 0 && bytes.empty() && ready == kLayout.total_bytes) {
        bytes = Install(round);
        peer_.Request(Sealed{round.round_id});
      }
    }
    ADD_FAILURE() << "the round did not end";
    return {};
  }

  const Live& live() const { return live_; }

 private:
  Bytes Install(const RoundStart& round) {
    transport::RoundFeed feed;
    feed.Advance(kLayout.total_bytes);
    std::unique_ptr<transport::Installer> installer;
    if (round.transport == TransportKind::kShm) {
      installer = std::make_unique<transport::ShmInstaller>(welcome_.fd_socket_path,
                                                            peer_.incarnation(), kTimeout);
    } else {
      installer = std::make_unique<transport::TcpInstaller>(
          transport::BulkEndpoint{welcome_.bulk_address, welcome_.bulk_key, peer_.incarnation()},
          transport::BulkOptions());
    }
    auto installed = installer->Install({round.arena_id, kLayout.total_bytes}, feed);
    EXPECT_TRUE(installed.ok()) << installed.status();
    if (!installed.ok()) return {};
    // Its lifeline must not end with this scope.
    installers_.push_back(std::move(installer));
    return Bytes((*installed)->bytes().begin(), (*installed)->bytes().end());
  }

  TestPeer peer_;
  Welcome welcome_;
  std::vector<std::unique_ptr<transport::Installer>> installers_;
  uint64_t cache_epoch_ = 0;
  Live live_;
};

class LoopPublishTest : public ::testing::TestWithParam<TransportKind> {};

TEST_P(LoopPublishTest, PublishedBytesReachASamplerAndGoLive) {
  Place place;
  RunningLoop bridge(place);
  TestTrainer trainer(bridge, GetParam());
  TestSampler sampler(bridge, "s1", GetParam());
  const uint64_t first = trainer.Seal(1, VersionBytes(1));
  EXPECT_EQ(sampler.TakeRound(), VersionBytes(1));
  EXPECT_EQ(sampler.live().version, 1u);
  const PublishOutcome outcome = trainer.peer().Answer<PublishOutcome>(first);
  ASSERT_EQ(outcome.samplers.size(), 1u);
  EXPECT_EQ(outcome.samplers[0].state, "live");
  EXPECT_FALSE(outcome.zero_change);
  const uint64_t second = trainer.Seal(2, VersionBytes(1));
  EXPECT_EQ(sampler.TakeRound(), VersionBytes(1));
  EXPECT_TRUE(trainer.peer().Answer<PublishOutcome>(second).zero_change);
}

TEST_P(LoopPublishTest, ALateSamplerAfterARestartGetsTheSpooledBytes) {
  Place place;
  {
    RunningLoop bridge(place);
    TestTrainer trainer(bridge, GetParam());
    trainer.Publish(1, VersionBytes(5));
    EXPECT_TRUE(bridge.Stop().ok());
  }
  RunningLoop bridge(place);
  TestSampler sampler(bridge, "late", GetParam());
  EXPECT_EQ(sampler.TakeRound(), VersionBytes(5));
  TestPeer op(bridge.address(), PeerRole::kOperator, "op");
  op.Meet();
  const StatusReply status = op.Ask<StatusReply>(StatusRequest{});
  ASSERT_EQ(status.versions.size(), 1u);
  EXPECT_EQ(status.versions[0].state, "live");
  EXPECT_TRUE(status.versions[0].on_disk);
}

INSTANTIATE_TEST_SUITE_P(BothTransports, LoopPublishTest,
                         ::testing::Values(TransportKind::kShm, TransportKind::kTcp));

TEST(LoopPublishDamageTest, ADamagedSpoolIsAnAlarmAndIsServedToNobody) {
  Place place;
  {
    RunningLoop bridge(place);
    TestTrainer trainer(bridge, TransportKind::kTcp);
    trainer.Publish(1, VersionBytes(5));
    EXPECT_TRUE(bridge.Stop().ok());
  }
  FILE* file = fopen((place.state_dir + "/versions/1.spool").c_str(), "r+b");
  ASSERT_NE(file, nullptr);
  fseek(file, -1, SEEK_END);
  fputc(0xEE, file);
  fclose(file);
  RunningLoop bridge(place);
  TestPeer op(bridge.address(), PeerRole::kOperator, "op");
  op.Meet();
  EXPECT_TRUE(StatusBecomes(op, [](const StatusReply& s) { return !s.alarms.empty(); }));
  const StatusReply status = op.Ask<StatusReply>(StatusRequest{});
  EXPECT_FALSE(status.versions[0].bytes_held);
  EXPECT_NE(status.alarms[0].find("damaged"), std::string::npos) << status.alarms[0];
}

// ---- tcp ----

class LoopTcpTest : public ::testing::Test {
 protected:
  LoopTcpTest() {
    place_.listen = {transport::Address::Kind::kTcp, "", "127.0.0.1", 0};
    place_.keys =
        ServerKeys{bridge_keys_,
                   auth::AllowList::Parse(absl::StrCat(sampler_keys_.public_key, " s1 sampler\n",
                                                       operator_keys_.public_key, " op operator\n"))
                       .value()};
  }
  transport::ClientKeys ClientKeysOf(const auth::KeyPair& pair) const {
    return {bridge_keys_.public_key, pair.public_key, pair.secret_key};
  }

  const auth::KeyPair bridge_keys_ = auth::GenerateKeyPair().value();
  const auth::KeyPair sampler_keys_ = auth::GenerateKeyPair().value();
  const auth::KeyPair operator_keys_ = auth::GenerateKeyPair().value();
  const auth::KeyPair stranger_keys_ = auth::GenerateKeyPair().value();
  Place place_;
};

TEST_F(LoopTcpTest, APeerIsWhoItsKeySaysAndGetsNoDescriptorSocket) {
  RunningLoop bridge(place_);
  TestPeer sampler(bridge.address(), PeerRole::kSampler, "s1", ClientKeysOf(sampler_keys_));
  const Welcome welcome = sampler.Meet();
  EXPECT_EQ(welcome.fd_socket_path, "");
  EXPECT_NE(welcome.bulk_address, "");
  TestPeer thief(bridge.address(), PeerRole::kOperator, "op", ClientKeysOf(sampler_keys_));
  const std::optional<Envelope> heard = thief.Hear();
  ASSERT_TRUE(heard.has_value() && std::holds_alternative<Refused>(heard->body));
  EXPECT_EQ(std::get<Refused>(heard->body).refusals[0].code, RefusalCode::kUnauthorised);
}

TEST_F(LoopTcpTest, AStrangersKeyIsTurnedAwayAndCounted) {
  RunningLoop bridge(place_);
  auto stranger = transport::ControlChannel::Connect(*transport::ParseAddress(bridge.address()),
                                                     ClientKeysOf(stranger_keys_));
  ASSERT_TRUE(stranger.ok());
  EXPECT_TRUE(absl::IsPermissionDenied((*stranger)->Receive(TestDeadline()).status()));
  TestPeer op(bridge.address(), PeerRole::kOperator, "op", ClientKeysOf(operator_keys_));
  op.Meet();
  EXPECT_TRUE(StatusBecomes(
      op, [](const StatusReply& status) { return CountOf(status.refusals, "unauthorised") > 0; }));
}

}  // namespace
}  // namespace lockstep::loop
