// The trainer's client against the real loop in this process; the sampler is played by the test.

#include <array>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "bridge/loop/loop_testing.h"
#include "bridge/transport/probe_runner.h"
#include "bridge/transport/shm.h"
#include "bridge/transport/tcp.h"
#include "bridge/transport/version_digest.h"
#include "trainer_client/trainer.h"

namespace lockstep {
namespace {

using loop::Place;
using loop::RunningLoop;
using loop::TestPeer;
using Outcome = absl::StatusOr<PublishOutcome>;
using Bytes = std::vector<uint8_t>;

const absl::Duration kTimeout = absl::Seconds(20);
// More than one piece of the pass, and no whole number of pages.
constexpr uint64_t kBigBytes = (uint64_t{9} << 20) + 12'345;

Manifest TestManifest() {
  Manifest manifest;
  manifest.tensors = {{"big", Dtype::kU8, {kBigBytes}, TensorOrigin::kSynced},
                      {"frozen", Dtype::kF32, {4}, TensorOrigin::kFrozen},
                      {"head.weight", Dtype::kBF16, {64, 32}, TensorOrigin::kSynced},
                      {"scale", Dtype::kF32, {1'000}, TensorOrigin::kSynced},
                      {"tied.a", Dtype::kBF16, {16, 32}, TensorOrigin::kSynced},
                      {"tied.b", Dtype::kBF16, {16, 32}, TensorOrigin::kSynced}};
  manifest.alias_groups = {{"tied.a", "tied.b"}};
  return manifest;
}

Contract TestContract() {
  Contract contract;
  contract.family = "none";
  return contract;
}

// A model's tensors, each in memory of its own.
class Model {
 public:
  explicit Model(uint8_t seed) : manifest_(TestManifest()) {
    for (const TensorSpec& tensor : manifest_.tensors) {
      Bytes bytes(TensorBytes(tensor).value());
      for (size_t i = 0; i < bytes.size(); ++i) {
        // Small enough to make no NaN of any dtype.
        bytes[i] = static_cast<uint8_t>((seed + i * 13 + i / 251) & 0x3F);
      }
      bytes_.push_back(std::move(bytes));
    }
    (*this)["tied.b"] = (*this)["tied.a"];
  }

  Bytes& operator[](absl::string_view name) {
    for (size_t i = 0; i < bytes_.size(); ++i) {
      if (manifest_.tensors[i].name == name) return bytes_[i];
    }
    ADD_FAILURE() << "no tensor " << name;
    return bytes_.front();
  }

  // The synced ones, last first: their order means nothing.
  std::vector<TensorBytesView> Views() const {
    std::vector<TensorBytesView> views;
    for (size_t i = bytes_.size(); i-- > 0;) {
      if (manifest_.tensors[i].origin == TensorOrigin::kSynced) {
        views.push_back({manifest_.tensors[i].name, bytes_[i]});
      }
    }
    return views;
  }

  Bytes Arena() const {
    const ArenaLayout layout = ComputeArenaLayout(manifest_);
    Bytes arena(layout.total_bytes);
    for (size_t i = 0; i < bytes_.size(); ++i) {
      if (layout.sizes[i] == 0) continue;
      std::memcpy(arena.data() + layout.offsets[i], bytes_[i].data(), layout.sizes[i]);
    }
    return arena;
  }

 private:
  Manifest manifest_;
  std::vector<Bytes> bytes_;
};

class PlayedSampler {
 public:
  PlayedSampler(const RunningLoop& bridge, TransportKind kind)
      : peer_(bridge.address(), PeerRole::kSampler, "s1") {
    welcome_ = peer_.Meet();
    peer_.Ask<Registered>(RegisterSampler{ContractToJson(TestContract()),
                                          transport::MakeEvidence().value(),
                                          TestManifest(),
                                          {kind},
                                          {}});
  }

  // Takes one version, digesting and probing what is installed; its bytes.
  Bytes TakeRound() {
    RoundStart round;
    uint64_t ready = 0;
    while (const std::optional<Envelope> heard = peer_.Hear()) {
      if (const auto* start = std::get_if<RoundStart>(&heard->body)) {
        round = *start;
        ready = start->bytes_ready;
        installed_.reset();
      } else if (const auto* progress = std::get_if<RoundProgress>(&heard->body)) {
        ready = progress->bytes_ready;
      } else if (const auto* key = std::get_if<RoundKey>(&heard->body)) {
        Verify(round, *key);
      } else if (std::holds_alternative<Activate>(heard->body)) {
        peer_.Request(Activated{round.round_id, ++cache_epoch_, "flushed"});
      } else if (std::holds_alternative<Live>(heard->body)) {
        return {installed_->bytes().begin(), installed_->bytes().end()};
      } else if (std::holds_alternative<Refused>(heard->body)) {
        ADD_FAILURE() << std::get<Refused>(heard->body).refusals.front().message;
        return {};
      }
      if (round.round_id != 0 && installed_ == nullptr && ready == layout_.total_bytes) {
        Install(round);
        peer_.Request(Sealed{round.round_id});
      }
    }
    ADD_FAILURE() << "the round did not end";
    return {};
  }

  TestPeer& peer() { return peer_; }

 private:
  void Install(const RoundStart& round) {
    transport::RoundFeed feed;
    feed.Advance(layout_.total_bytes);
    if (installer_ == nullptr && round.transport == TransportKind::kShm) {
      installer_ = std::make_unique<transport::ShmInstaller>(welcome_.fd_socket_path,
                                                             peer_.incarnation(), kTimeout);
    } else if (installer_ == nullptr) {
      installer_ = std::make_unique<transport::TcpInstaller>(
          transport::BulkEndpoint{welcome_.bulk_address, welcome_.bulk_key, peer_.incarnation()},
          transport::BulkOptions());
    }
    auto installed = installer_->Install({round.arena_id, layout_.total_bytes}, feed);
    ASSERT_TRUE(installed.ok()) << installed.status();
    installed_ = *std::move(installed);
  }

  void Verify(const RoundStart& round, const RoundKey& key) {
    const absl::Span<const uint8_t> bytes = installed_->bytes();
    const ProbePlan plan = DeriveProbePlan(manifest_, TestContract(), key.probe_seed);
    auto components = transport::RunProbe(
        plan, [&](size_t i) { return bytes.subspan(layout_.offsets[i], layout_.sizes[i]); }, 1);
    ASSERT_TRUE(components.ok()) << components.status();
    ASSERT_FALSE(components->empty());
    peer_.Request(Verified{
        round.round_id,
        transport::DigestArena("default", round.version, key.key, manifest_, bytes, 1).value(),
        *components});
  }

  const Manifest manifest_ = TestManifest();
  const ArenaLayout layout_ = ComputeArenaLayout(manifest_);
  TestPeer peer_;
  Welcome welcome_;
  std::unique_ptr<transport::Installer> installer_;
  std::unique_ptr<transport::InstalledVersion> installed_;
  uint64_t cache_epoch_ = 0;
};

class TrainerClientTest : public testing::TestWithParam<TransportKind> {
 protected:
  TrainerClientTest() { place_.config.drain_timeout_ms = 1; }

  TrainerOptions Options(const std::string& name = "t") const {
    TrainerOptions options;
    options.bridge.address = place_.listen.ToString();
    options.name = name;
    options.contract_json = ContractToJson(TestContract());
    options.manifest = TestManifest();
    options.transport = GetParam();
    options.threads = 2;
    return options;
  }

  std::unique_ptr<Trainer> Connect(const std::string& name = "t") const {
    auto trainer = Trainer::Connect(Options(name));
    EXPECT_TRUE(trainer.ok()) << trainer.status();
    return *std::move(trainer);
  }

  Place place_;
};

TEST_P(TrainerClientTest, PublishedTensorsGoLiveWithEveryComponentVerified) {
  RunningLoop bridge(place_);
  const auto trainer = Connect();
  EXPECT_EQ(trainer->transport(), GetParam());
  EXPECT_EQ(trainer->epoch(), 1u);
  PlayedSampler sampler(bridge, GetParam());
  for (uint8_t version = 1; version <= 4; ++version) {
    const Model model(version);
    auto outcome = trainer->Publish(version, model.Views());
    EXPECT_EQ(sampler.TakeRound(), model.Arena()) << int{version};
    const Outcome result = outcome.get();
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->samplers.size(), 1u);
    EXPECT_EQ(result->samplers[0].state, "live");
    EXPECT_GT(result->samplers[0].components_total, 0u);
    EXPECT_EQ(result->samplers[0].components_verified, result->samplers[0].components_total);
    EXPECT_EQ(result->nan_elements, 0u);
  }
}

TEST_P(TrainerClientTest, TensorsMayChangeOnceReleased) {
  RunningLoop bridge(place_);
  const auto trainer = Connect();
  PlayedSampler sampler(bridge, GetParam());
  Model model(7);
  const Bytes before = model.Arena();
  PublishOptions options;
  options.on_released = [&] { model["big"].assign(kBigBytes, 0xEE); };
  auto outcome = trainer->Publish(1, model.Views(), options);
  EXPECT_EQ(sampler.TakeRound(), before);
  EXPECT_TRUE(outcome.get().ok());
}

TEST_P(TrainerClientTest, TensorsThatAreNotTheManifestsAreNamedAndNothingIsOffered) {
  RunningLoop bridge(place_);
  const auto trainer = Connect();
  Model model(1);
  const auto refused = [&](const std::vector<TensorBytesView>& views, absl::string_view words) {
    bool released = false;
    PublishOptions options;
    options.on_released = [&] { released = true; };
    const absl::Status status = trainer->Publish(1, views, options).get().status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), words)) << status;
    EXPECT_TRUE(released);
  };
  const std::vector<TensorBytesView> whole = model.Views();
  std::vector<TensorBytesView> views(whole.begin() + 1, whole.end());
  refused(views, "tensor 'tied.b': is missing");
  views = whole;
  views.push_back(whole[0]);
  refused(views, "tensor 'tied.b': is given twice");
  views = whole;
  views.push_back({"stranger", {}});
  refused(views, "tensor 'stranger': is not in the manifest");
  views = whole;
  views.push_back({"frozen", model["frozen"]});
  refused(views, "tensor 'frozen': is frozen");
  views = whole;
  views[2].bytes.remove_suffix(1);
  refused(views, "tensor 'scale': expected 4000 bytes for F32 [1000]");
  model["tied.b"][5] ^= 1;
  refused(model.Views(), "tensor 'tied.b': is tied to 'tied.a'");
  TestPeer op(bridge.address(), PeerRole::kOperator, "op");
  EXPECT_TRUE(op.Ask<StatusReply>(StatusRequest{}).versions.empty());
}

TEST_P(TrainerClientTest, PublishesQueueInOrderAndNanElementsAreCounted) {
  RunningLoop bridge(place_);
  const auto trainer = Connect();
  Model model(1);
  const uint32_t nan = 0x7FC00001;
  std::memcpy(model["scale"].data() + 40, &nan, sizeof(nan));
  const std::array<uint8_t, 2> bf16_nan = {0xC1, 0x7F};
  std::memcpy(model["head.weight"].data(), bf16_nan.data(), bf16_nan.size());
  std::vector<std::future<Outcome>> outcomes;
  for (uint64_t version = 1; version <= 5; ++version) {
    outcomes.push_back(trainer->Publish(version, model.Views()));
  }
  for (uint64_t version = 1; version <= 5; ++version) {
    const Outcome outcome = outcomes[version - 1].get();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->version, version);
    EXPECT_EQ(outcome->nan_elements, 2u);
    EXPECT_EQ(outcome->zero_change, version > 1);
  }
}

TEST_P(TrainerClientTest, RefusedPublishHasTheReasonAndTheNextOneGoesOn) {
  RunningLoop bridge(place_);
  const auto trainer = Connect();
  const Model model(1);
  ASSERT_TRUE(trainer->Publish(5, model.Views()).get().ok());
  const absl::Status status = trainer->Publish(4, model.Views()).get().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "version_backwards")) << status;
  ASSERT_EQ(trainer->last_refusals().size(), 1u);
  EXPECT_EQ(trainer->last_refusals()[0].code, RefusalCode::kVersionBackwards);
  EXPECT_TRUE(trainer->Publish(6, model.Views()).get().ok());
}

TEST_P(TrainerClientTest, SameVersionAgainIsTheSameOrAConflict) {
  RunningLoop bridge(place_);
  const auto trainer = Connect();
  ASSERT_TRUE(trainer->Publish(1, Model(1).Views()).get().ok());
  const Outcome again = trainer->Publish(1, Model(1).Views()).get();
  EXPECT_TRUE(again.ok()) << again.status();
  const absl::Status other = trainer->Publish(1, Model(2).Views()).get().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  EXPECT_EQ(trainer->last_refusals()[0].code, RefusalCode::kVersionConflict);
}

TEST_P(TrainerClientTest, BridgeRestartedBetweenCopyAndSealIsMadeGoodFromTheOwnCopy) {
  auto bridge = std::make_unique<RunningLoop>(place_);
  const auto trainer = Connect();
  ASSERT_TRUE(trainer->Publish(1, Model(1).Views()).get().ok());
  Model model(2);
  const Bytes before = model.Arena();
  PublishOptions options;
  options.on_released = [&] {
    // The seal is still to come; the tensors are gone.
    bridge.reset();
    model["big"].assign(kBigBytes, 0xEE);
    bridge = std::make_unique<RunningLoop>(place_);
  };
  const Outcome outcome = trainer->Publish(2, model.Views(), options).get();
  if (GetParam() == TransportKind::kTcp) {
    EXPECT_TRUE(absl::IsUnavailable(outcome.status())) << outcome.status();
    EXPECT_TRUE(absl::StrContains(outcome.status().message(), "no longer held"));
    EXPECT_TRUE(trainer->Publish(3, Model(3).Views()).get().ok());
    return;
  }
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  PlayedSampler sampler(*bridge, GetParam());
  EXPECT_EQ(sampler.TakeRound(), before);
  const Model next(3);
  auto third = trainer->Publish(3, next.Views());
  EXPECT_EQ(sampler.TakeRound(), next.Arena());
  EXPECT_TRUE(third.get().ok());
}

TEST_P(TrainerClientTest, BridgeRestartedAfterTheSealAnswersTheSamePublish) {
  auto bridge = std::make_unique<RunningLoop>(place_);
  const auto trainer = Connect();
  // A sampler that does nothing keeps the outcome open.
  auto sampler = std::make_unique<PlayedSampler>(*bridge, GetParam());
  const Model model(1);
  auto outcome = trainer->Publish(1, model.Views());
  {
    TestPeer op(bridge->address(), PeerRole::kOperator, "op");
    ASSERT_TRUE(loop::StatusBecomes(op, [](const StatusReply& status) {
      return !status.versions.empty() && status.versions[0].on_disk;
    }));
  }
  bridge.reset();
  sampler.reset();
  bridge = std::make_unique<RunningLoop>(place_);
  const Outcome result = outcome.get();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->version, 1u);
  PlayedSampler late(*bridge, GetParam());
  EXPECT_EQ(late.TakeRound(), model.Arena());
}

TEST_P(TrainerClientTest, PublishMadeWhileNoBridgeIsThereWaitsForOne) {
  auto bridge = std::make_unique<RunningLoop>(place_);
  const auto trainer = Connect();
  bridge.reset();
  const Model model(1);
  auto outcome = trainer->Publish(1, model.Views());
  bridge = std::make_unique<RunningLoop>(place_);
  const Outcome result = outcome.get();
  EXPECT_TRUE(result.ok()) << result.status();
}

TEST_P(TrainerClientTest, NewerTrainerTakesTheEpochAndTheOlderIsToldAndStaysOut) {
  auto bridge = std::make_unique<RunningLoop>(place_);
  const auto older = Connect("older");
  const Model model(1);
  ASSERT_TRUE(older->Publish(1, model.Views()).get().ok());
  const auto newer = Connect("newer");
  EXPECT_GT(newer->epoch(), older->epoch());
  const absl::Status status = older->Publish(2, model.Views()).get().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(older->last_refusals()[0].code, RefusalCode::kStaleEpoch);
  bridge.reset();
  bridge = std::make_unique<RunningLoop>(place_);
  EXPECT_TRUE(newer->Publish(2, model.Views()).get().ok());
  // It did not take the epoch back by registering with the new bridge.
  EXPECT_TRUE(absl::IsFailedPrecondition(older->Publish(3, model.Views()).get().status()));
}

TEST_P(TrainerClientTest, LeavingCancelsThePublishThatWaitsAndTheOnesBehindIt) {
  RunningLoop bridge(place_);
  auto trainer = Connect();
  PlayedSampler idle(bridge, GetParam());
  const Model model(1);
  std::promise<void> released;
  PublishOptions options;
  options.on_released = [&] { released.set_value(); };
  auto first = trainer->Publish(1, model.Views(), options);
  auto second = trainer->Publish(2, model.Views());
  released.get_future().wait();
  trainer.reset();
  EXPECT_TRUE(absl::IsCancelled(first.get().status()));
  EXPECT_TRUE(absl::IsCancelled(second.get().status()));
}

TEST_P(TrainerClientTest, RescoreOfAnUnknownRolloutIsRefused) {
  RunningLoop bridge(place_);
  const auto trainer = Connect();
  const std::vector<float> logprobs = {-0.5f};
  const absl::Status status = trainer->SubmitRescore("nobody", logprobs).get().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(trainer->last_refusals()[0].code, RefusalCode::kBadMessage);
}

TEST_P(TrainerClientTest, ConnectSaysWhyItCannot) {
  EXPECT_TRUE(absl::IsUnavailable(Trainer::Connect(Options()).status()));
  RunningLoop bridge(place_);
  TrainerOptions options = Options();
  options.contract_json = "{}";
  EXPECT_TRUE(absl::IsFailedPrecondition(Trainer::Connect(options).status()));
  options = Options();
  options.source_role = SourceRole::kCritic;
  const absl::Status role = Trainer::Connect(options).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(role)) << role;
  EXPECT_TRUE(absl::StrContains(role.message(), "wrong_source_role")) << role;
  options = Options();
  options.bridge.run = "another";
  EXPECT_TRUE(absl::IsFailedPrecondition(Trainer::Connect(options).status()));
}

INSTANTIATE_TEST_SUITE_P(BothTransports, TrainerClientTest,
                         testing::Values(TransportKind::kShm, TransportKind::kTcp),
                         [](const testing::TestParamInfo<TransportKind>& info) {
                           return info.param == TransportKind::kShm ? "Shm" : "Tcp";
                         });

}  // namespace
}  // namespace lockstep
