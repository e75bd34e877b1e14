// The trainer's and the sampler's client against the real loop, all in this process.

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bridge/loop/loop_testing.h"
#include "policy/contract.h"
#include "sampler_client/sampler.h"
#include "trainer_client/trainer.h"

namespace lockstep {
namespace {

using loop::Place;
using loop::RunningLoop;
using loop::TestPeer;
using Bytes = std::vector<uint8_t>;

const absl::Duration kTimeout = absl::Seconds(30);

Manifest TestManifest() {
  Manifest manifest;
  manifest.tensors = {{"big", Dtype::kU8, {(uint64_t{1} << 20) + 345}, TensorOrigin::kSynced},
                      {"head.weight", Dtype::kBF16, {64, 32}, TensorOrigin::kSynced},
                      {"scale", Dtype::kF32, {1'000}, TensorOrigin::kSynced}};
  return manifest;
}

std::string ContractJson(Level level, const std::string& engine = "") {
  Contract contract;
  contract.family = "none";
  contract.level = level;
  contract.engine.trainer = engine;
  contract.engine.pinned = !engine.empty();
  return ContractToJson(contract);
}

// A version's tensors: the same for the same number.
class Model {
 public:
  explicit Model(uint64_t version) : manifest_(TestManifest()) {
    for (const TensorSpec& tensor : manifest_.tensors) {
      Bytes bytes(TensorBytes(tensor).value());
      for (size_t i = 0; i < bytes.size(); ++i) {
        // Small enough to make no NaN of any dtype.
        bytes[i] = static_cast<uint8_t>((version * 7 + i * 13 + i / 251) & 0x3F);
      }
      bytes_.push_back(std::move(bytes));
    }
  }

  std::vector<TensorBytesView> Views() const {
    std::vector<TensorBytesView> views;
    for (size_t i = 0; i < bytes_.size(); ++i)
      views.push_back({manifest_.tensors[i].name, bytes_[i]});
    return views;
  }

  bool IsWhat(const WeightsGuard& weights) const {
    for (size_t i = 0; i < bytes_.size(); ++i) {
      const absl::Span<const uint8_t> tensor = weights->Tensor(i);
      if (tensor.size() != bytes_[i].size()) return false;
      if (std::memcmp(tensor.data(), bytes_[i].data(), tensor.size()) != 0) return false;
    }
    return true;
  }

 private:
  Manifest manifest_;
  std::vector<Bytes> bytes_;
};

// What callbacks said, in order.
class Heard {
 public:
  void Say(std::string word) {
    const std::lock_guard<std::mutex> lock(mutex_);
    words_.push_back(std::move(word));
    changed_.notify_all();
  }
  testing::AssertionResult Wait(const std::string& word) {
    std::unique_lock<std::mutex> lock(mutex_);
    const bool came = changed_.wait_until(lock, loop::TestDeadline(), [&] {
      return std::find(words_.begin(), words_.end(), word) != words_.end();
    });
    if (came) return testing::AssertionSuccess();
    return testing::AssertionFailure()
           << word << " never came, only " << absl::StrJoin(words_, " ");
  }
  std::string All() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return absl::StrJoin(words_, " ");
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> words_;
};

class ClientsTest : public testing::TestWithParam<TransportKind> {
 protected:
  ClientsTest() { place_.config.drain_timeout_ms = 1; }

  std::unique_ptr<Trainer> ConnectTrainer(const std::string& name = "t") const {
    TrainerOptions options;
    options.bridge.address = place_.listen.ToString();
    options.name = name;
    options.contract_json = ContractJson(level_);
    options.manifest = TestManifest();
    options.transport = GetParam();
    options.threads = 2;
    auto trainer = Trainer::Connect(options);
    EXPECT_TRUE(trainer.ok()) << trainer.status();
    return *std::move(trainer);
  }

  SamplerOptions Options(const std::string& name = "s1") {
    SamplerOptions options;
    options.bridge.address = place_.listen.ToString();
    options.name = name;
    options.contract_json = ContractJson(level_);
    options.transports = {GetParam()};
    options.threads = 2;
    options.on_pause = [this](uint64_t version) {
      heard_.Say(absl::StrCat("pause", version));
      return absl::OkStatus();
    };
    options.on_flush_cache = [this](uint64_t version) -> absl::StatusOr<std::string> {
      heard_.Say(absl::StrCat("flush", version));
      return absl::StrCat("flushed for ", version);
    };
    options.on_activate = [this](const WeightsGuard& weights) {
      heard_.Say(absl::StrCat("activate", weights->version));
      return absl::OkStatus();
    };
    options.on_resume = [this](uint64_t version) { heard_.Say(absl::StrCat("resume", version)); };
    options.on_live = [this](uint64_t version) { heard_.Say(absl::StrCat("live", version)); };
    options.on_state = [this](const SamplerState& state) {
      heard_.Say(absl::StrCat("state:", state.state));
    };
    return options;
  }

  static std::unique_ptr<Sampler> Connect(const SamplerOptions& options) {
    auto sampler = Sampler::Connect(options);
    EXPECT_TRUE(sampler.ok()) << sampler.status();
    return *std::move(sampler);
  }

  // The outcome's one sampler.
  static SamplerOutcome Publish(Trainer& trainer, uint64_t version) {
    auto outcome = trainer.Publish(version, Model(version).Views()).get();
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    if (!outcome.ok()) return {};
    EXPECT_EQ(outcome->samplers.size(), 1u);
    return outcome->samplers.empty() ? SamplerOutcome{} : outcome->samplers[0];
  }

  static Rollout MakeRollout(uint64_t version, int64_t token = 5) {
    Rollout rollout;
    rollout.spans = {{version, 0, 3}};
    rollout.level = AdmissionLevel::kWeights;
    rollout.tokens = {token, 6, 7};
    rollout.sampler_logprobs = {-0.5f, -0.25f, -1.0f};
    return rollout;
  }

  Level level_ = Level::kWeights;
  Place place_;
  Heard heard_;
};

TEST_P(ClientsTest, ThreeVersionsGoLiveAndNoReaderSeesTwo) {
  RunningLoop bridge(place_);
  const auto trainer = ConnectTrainer();
  const auto sampler = Connect(Options());
  EXPECT_FALSE(sampler->Weights());
  std::map<uint64_t, Model> models;
  for (uint64_t version = 1; version <= 3; ++version) models.emplace(version, Model(version));
  std::atomic<bool> stop{false};
  std::atomic<int> torn{0};
  std::array<std::atomic<int>, 4> seen{};
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!stop) {
        const WeightsGuard weights = sampler->Weights();
        if (!weights) {
          std::this_thread::yield();
          continue;
        }
        const uint64_t version = weights->version;
        if (!models.at(version).IsWhat(weights) || weights->version != version) ++torn;
        ++seen[version];
      }
    });
  }
  const auto deadline = loop::TestDeadline();
  for (uint64_t version = 1; version <= 3; ++version) {
    const SamplerOutcome outcome = Publish(*trainer, version);
    EXPECT_EQ(outcome.state, "live");
    EXPECT_GT(outcome.components_total, 0u);
    EXPECT_EQ(outcome.components_verified, outcome.components_total);
    EXPECT_TRUE(sampler->WaitLive(version, kTimeout).ok());
    while (seen[version] < 2 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(torn, 0);
  for (uint64_t version = 1; version <= 3; ++version) {
    EXPECT_GT(seen[version], 0) << version;
    EXPECT_TRUE(absl::StrContains(
        heard_.All(), absl::StrCat("state:activating pause", version, " flush", version)))
        << heard_.All();
  }
  EXPECT_EQ(sampler->state().state, "live");
  EXPECT_EQ(sampler->state().live_version, 3u);
}

TEST_P(ClientsTest, ManyVersionsReuseArenasAndSlots) {
  RunningLoop bridge(place_);
  const auto trainer = ConnectTrainer();
  const auto sampler = Connect(Options());
  for (uint64_t version = 1; version <= 12; ++version) {
    ASSERT_EQ(Publish(*trainer, version).state, "live") << version;
    ASSERT_TRUE(Model(version).IsWhat(sampler->Weights())) << version;
  }
}

TEST_P(ClientsTest, ReaderOfAnOldVersionKeepsItsBytesAndHoldsUpOnlyTheVersionAfterNext) {
  RunningLoop bridge(place_);
  const auto trainer = ConnectTrainer();
  const auto sampler = Connect(Options());
  ASSERT_EQ(Publish(*trainer, 1).state, "live");
  WeightsGuard old = sampler->Weights();
  ASSERT_EQ(Publish(*trainer, 2).state, "live");
  EXPECT_TRUE(Model(2).IsWhat(sampler->Weights()));
  const Model third(3);
  auto outcome = trainer->Publish(3, third.Views());
  EXPECT_TRUE(absl::IsDeadlineExceeded(sampler->WaitLive(3, absl::Milliseconds(100))));
  EXPECT_TRUE(Model(1).IsWhat(old));
  old.Release();
  EXPECT_TRUE(sampler->WaitLive(3, kTimeout).ok());
  EXPECT_TRUE(outcome.get().ok());
}

TEST_P(ClientsTest, MissingFlushReceiptFailsTheRoundAndFencesTheSamplerUntilReleased) {
  RunningLoop bridge(place_);
  const auto trainer = ConnectTrainer();
  SamplerOptions options = Options();
  std::atomic<bool> silent{false};
  options.on_flush_cache = [&](uint64_t) -> absl::StatusOr<std::string> {
    return silent ? "" : "flushed";
  };
  const auto sampler = Connect(options);
  ASSERT_EQ(Publish(*trainer, 1).state, "live");
  silent = true;
  const SamplerOutcome outcome = Publish(*trainer, 2);
  ASSERT_EQ(outcome.state, "quarantined");
  EXPECT_EQ(outcome.refusals.at(0).code, RefusalCode::kFlushReceiptMissing);
  EXPECT_TRUE(heard_.Wait("resume2"));
  EXPECT_TRUE(heard_.Wait("state:quarantined"));
  EXPECT_EQ(sampler->state().reasons.at(0).code, RefusalCode::kFlushReceiptMissing);
  EXPECT_FALSE(absl::StrContains(heard_.All(), "activate2")) << heard_.All();
  silent = false;
  TestPeer op(bridge.address(), PeerRole::kOperator, "op");
  EXPECT_TRUE(op.Ask<ActReply>(OperatorAct{OperatorAction::kQuarantineRelease, "s1"}).done);
  EXPECT_TRUE(sampler->WaitLive(2, kTimeout).ok());
  EXPECT_TRUE(Model(2).IsWhat(sampler->Weights()));
}

TEST_P(ClientsTest, EngineThatCannotPauseKeepsServingAndIsAskedAgain) {
  RunningLoop bridge(place_);
  const auto trainer = ConnectTrainer();
  SamplerOptions options = Options();
  std::atomic<int> busy{0};
  std::atomic<bool> served_old{false};
  const Sampler* self = nullptr;
  options.on_pause = [&](uint64_t) {
    if (busy-- > 0) return absl::UnavailableError("the engine is busy");
    return absl::OkStatus();
  };
  options.on_resume = [&](uint64_t) { served_old = self->Weights()->version == 1; };
  const auto sampler = Connect(options);
  self = sampler.get();
  ASSERT_EQ(Publish(*trainer, 1).state, "live");
  busy = 1;
  EXPECT_EQ(Publish(*trainer, 2).state, "live");
  EXPECT_TRUE(served_old);
}

TEST_P(ClientsTest, FailedActivationLeavesReadersWithoutAVersionUntilItIsTriedAgain) {
  RunningLoop bridge(place_);
  const auto trainer = ConnectTrainer();
  SamplerOptions options = Options();
  std::atomic<int> broken{0};
  options.on_activate = [&](const WeightsGuard&) {
    if (broken-- > 0) return absl::InternalError("a graph could not be captured");
    return absl::OkStatus();
  };
  const auto sampler = Connect(options);
  ASSERT_EQ(Publish(*trainer, 1).state, "live");
  broken = 1;
  EXPECT_EQ(Publish(*trainer, 2).state, "live");
  EXPECT_TRUE(Model(2).IsWhat(sampler->Weights()));
}

TEST_P(ClientsTest, RestartedBridgeTakesTheSamplersWordAndJudgesItsRollouts) {
  auto bridge = std::make_unique<RunningLoop>(place_);
  const auto trainer = ConnectTrainer();
  const auto sampler = Connect(Options());
  ASSERT_EQ(Publish(*trainer, 1).state, "live");
  ASSERT_TRUE(sampler->WaitLive(1, kTimeout).ok());
  bridge.reset();
  EXPECT_TRUE(heard_.Wait("state:disconnected"));
  EXPECT_TRUE(Model(1).IsWhat(sampler->Weights()));
  auto decision = sampler->SubmitRollout(MakeRollout(1));
  bridge = std::make_unique<RunningLoop>(place_);
  const absl::StatusOr<Decision> decided = decision.get();
  ASSERT_TRUE(decided.ok()) << decided.status();
  EXPECT_EQ(decided->kind, DecisionKind::kAdmit) << FormatRefusals(decided->reasons);
  EXPECT_EQ(sampler->state().state, "live");
  EXPECT_EQ(sampler->state().live_version, 1u);
  // Not one round was played for it.
  const std::string heard = heard_.All();
  EXPECT_EQ(heard.find("flush1"), heard.rfind("flush1")) << heard;
  EXPECT_EQ(Publish(*trainer, 2).state, "live");
  EXPECT_TRUE(Model(2).IsWhat(sampler->Weights()));
}

TEST_P(ClientsTest, BridgeRestartedInARoundDropsItAndTheNextOneTakesTheVersion) {
  auto bridge = std::make_unique<RunningLoop>(place_);
  const auto trainer = ConnectTrainer();
  SamplerOptions options = Options();
  std::promise<void> in_round;
  std::promise<void> restarted;
  std::shared_future<void> go_on = restarted.get_future().share();
  std::atomic<int> rounds{0};
  options.on_pause = [&](uint64_t version) {
    if (version == 2 && rounds++ == 0) {
      in_round.set_value();
      go_on.wait();
    }
    return absl::OkStatus();
  };
  const auto sampler = Connect(options);
  ASSERT_EQ(Publish(*trainer, 1).state, "live");
  const Model second(2);
  auto outcome = trainer->Publish(2, second.Views());
  in_round.get_future().wait();
  bridge.reset();
  bridge = std::make_unique<RunningLoop>(place_);
  EXPECT_TRUE(heard_.Wait("state:disconnected"));
  EXPECT_TRUE(Model(1).IsWhat(sampler->Weights()));
  restarted.set_value();
  EXPECT_TRUE(sampler->WaitLive(2, kTimeout).ok()) << heard_.All();
  EXPECT_TRUE(second.IsWhat(sampler->Weights()));
  EXPECT_TRUE(outcome.get().ok());
  EXPECT_EQ(rounds, 2);
  EXPECT_TRUE(heard_.Wait("resume2"));
}

TEST_P(ClientsTest, BridgeWithAnOlderEpochIsRefusedAndItsVersionIsNotServed) {
  auto bridge = std::make_unique<RunningLoop>(place_);
  { ConnectTrainer("first"); }
  auto trainer = ConnectTrainer("second");
  const auto sampler = Connect(Options());
  ASSERT_EQ(trainer->epoch(), 2u);
  ASSERT_EQ(Publish(*trainer, 7).state, "live");
  trainer.reset();
  bridge.reset();
  place_.state_dir += ".other";
  bridge = std::make_unique<RunningLoop>(place_);
  trainer = ConnectTrainer("third");
  ASSERT_EQ(trainer->epoch(), 1u);
  auto outcome = trainer->Publish(8, Model(8).Views());
  EXPECT_TRUE(heard_.Wait("state:quarantined"));
  EXPECT_EQ(sampler->state().reasons.at(0).code, RefusalCode::kStaleEpoch);
  EXPECT_FALSE(absl::StrContains(heard_.All(), "activate8")) << heard_.All();
  EXPECT_TRUE(outcome.get().ok());
}

TEST_P(ClientsTest, LateSamplerGetsTheVersionOfATrainerThatHasLeft) {
  RunningLoop bridge(place_);
  auto trainer = ConnectTrainer();
  ASSERT_TRUE(trainer->Publish(1, Model(1).Views()).get().ok());
  trainer.reset();
  const auto sampler = Connect(Options());
  EXPECT_TRUE(sampler->WaitLive(1, kTimeout).ok());
  EXPECT_TRUE(Model(1).IsWhat(sampler->Weights()));
}

TEST_P(ClientsTest, SamplerOfAnotherContractStaysRefusedWithTheReasonAndGetsNothing) {
  RunningLoop bridge(place_);
  const auto trainer = ConnectTrainer();
  SamplerOptions options = Options();
  options.contract_json = ContractJson(level_, "another build");
  const auto sampler = Connect(options);
  EXPECT_TRUE(heard_.Wait("state:refused"));
  ASSERT_FALSE(sampler->state().reasons.empty());
  EXPECT_EQ(sampler->state().reasons[0].code, RefusalCode::kContractMismatch);
  ASSERT_TRUE(trainer->Publish(1, Model(1).Views()).get().ok());
  EXPECT_FALSE(sampler->Weights());
  EXPECT_EQ(sampler->state().state, "refused");
}

TEST_P(ClientsTest, RolloutIsJudgedByTheTicketOfTheVersionItWasDecodedUnder) {
  place_.config.max_lag = 1;
  RunningLoop bridge(place_);
  const auto trainer = ConnectTrainer();
  const auto sampler = Connect(Options());
  for (uint64_t version = 1; version <= 2; ++version) {
    ASSERT_EQ(Publish(*trainer, version).state, "live");
    ASSERT_TRUE(sampler->WaitLive(version, kTimeout).ok());
  }
  for (uint64_t version = 1; version <= 2; ++version) {
    const auto decision = sampler->SubmitRollout(MakeRollout(version)).get();
    ASSERT_TRUE(decision.ok()) << decision.status();
    EXPECT_EQ(decision->kind, DecisionKind::kAdmit) << FormatRefusals(decision->reasons);
    EXPECT_EQ(decision->rollout_id, ToHex(decision->content));
  }
  ASSERT_EQ(Publish(*trainer, 3).state, "live");
  const auto late = sampler->SubmitRollout(MakeRollout(1, 9)).get();
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_EQ(late->kind, DecisionKind::kRefuse);
  EXPECT_EQ(late->reasons.at(0).code, RefusalCode::kLagExceeded);
  const auto again = sampler->SubmitRollout(MakeRollout(1)).get();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->kind, DecisionKind::kAdmit) << "the same rollout has the same answer";
  Rollout other = MakeRollout(3, 11);
  other.id = again->rollout_id;
  EXPECT_EQ(sampler->SubmitRollout(other).get()->reasons.back().code, RefusalCode::kDuplicate);
}

TEST_P(ClientsTest, RolloutAtLevelTokensWaitsForTheTrainersRescoring) {
  level_ = Level::kTokens;
  RunningLoop bridge(place_);
  const auto trainer = ConnectTrainer();
  const auto sampler = Connect(Options());
  ASSERT_EQ(Publish(*trainer, 1).state, "live");
  ASSERT_TRUE(sampler->WaitLive(1, kTimeout).ok());
  TestPeer op(bridge.address(), PeerRole::kOperator, "op");
  for (const bool equal : {true, false}) {
    Rollout rollout = MakeRollout(1, equal ? 1 : 2);
    rollout.id = absl::StrCat("r", equal);
    rollout.level = AdmissionLevel::kTokens;
    std::vector<float> logprobs = rollout.sampler_logprobs;
    if (!equal) logprobs[1] = -0.25000003f;
    auto decision = sampler->SubmitRollout(rollout);
    ASSERT_TRUE(loop::StatusBecomes(
        op, [](const StatusReply& status) { return status.rollouts_pending == 1; }));
    const auto judged = trainer->SubmitRescore(rollout.id, logprobs).get();
    ASSERT_TRUE(judged.ok()) << judged.status();
    const auto decided = decision.get();
    ASSERT_TRUE(decided.ok()) << decided.status();
    EXPECT_EQ(*decided, *judged);
    EXPECT_EQ(decided->kind, equal ? DecisionKind::kAdmit : DecisionKind::kRefuse);
    EXPECT_EQ(decided->mismatched_tokens, equal ? 0u : 1u);
  }
}

TEST_P(ClientsTest, LeavingEndsWhatWaits) {
  level_ = Level::kTokens;
  RunningLoop bridge(place_);
  const auto trainer = ConnectTrainer();
  auto sampler = Connect(Options());
  ASSERT_EQ(Publish(*trainer, 1).state, "live");
  ASSERT_TRUE(sampler->WaitLive(1, kTimeout).ok());
  Rollout rollout = MakeRollout(1);
  rollout.level = AdmissionLevel::kTokens;
  auto decision = sampler->SubmitRollout(rollout);
  sampler.reset();
  EXPECT_TRUE(absl::IsCancelled(decision.get().status()));
}

INSTANTIATE_TEST_SUITE_P(BothTransports, ClientsTest,
                         testing::Values(TransportKind::kShm, TransportKind::kTcp),
                         [](const testing::TestParamInfo<TransportKind>& info) {
                           return info.param == TransportKind::kShm ? "Shm" : "Tcp";
                         });

}  // namespace
}  // namespace lockstep
