// kill -9 of every process at chosen points, with the real binaries, and what must come of it.

#include <signal.h>

#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"

namespace lockstep::e2e {
namespace {

using nlohmann::json;
using tools::Finished;

const json* Find(const json& status, const char* list, const char* key, const json& value) {
  for (const json& entry : status[list]) {
    if (entry.contains(key) && entry[key] == value) return &entry;
  }
  return nullptr;
}

std::string VersionState(const json& status, uint64_t version) {
  const json* found = Find(status, "versions", "version", version);
  return found == nullptr ? "absent" : (*found)["state"].get<std::string>();
}

bool IsLive(const json& status, const char* sampler, uint64_t version) {
  const json* found = Find(status, "samplers", "name", sampler);
  return found != nullptr && (*found)["state"] == "live" && (*found)["live_version"] == version;
}

class KillTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.StartBridge();
    cluster_.StartSampler("s1", "shm");
    cluster_.StartSampler("s2", "tcp");
    ASSERT_EQ(cluster_.Publish(0).exit_code, 0);
    ASSERT_TRUE(cluster_.WaitLive(0, 2));
  }

  Cluster cluster_{Trace::Get("qwen3_5_dense")};
};

TEST_F(KillTest, SamplerKilledInItsRoundLeavesTheOthersAloneAndComesBackToTheNewest) {
  cluster_.sampler("s2").Signal(SIGSTOP);  // its round cannot end
  auto publish = cluster_.StartPublish(1);
  ASSERT_TRUE(cluster_.WaitUntil([](const json& status) { return IsLive(status, "s1", 1); }));
  cluster_.KillSampler("s2");
  const auto code = publish->Wait(kCommandTimeout);
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(*code, 1) << "a sampler failed, and publish says so";
  cluster_.StartSampler("s2", "tcp");
  ASSERT_TRUE(cluster_.WaitLive(1, 2));
  EXPECT_TRUE(cluster_.DumpEqualsPublished("s1", 1));
  EXPECT_TRUE(cluster_.DumpEqualsPublished("s2", 1));
}

TEST_F(KillTest, TrainerKilledBeforeTheSealLeavesTheLastVersionAndTheNextTrainerGoesOn) {
  // The bridge does not read while it is stopped, so the trainer dies between offer and seal
  // or before the offer, never after the seal.
  cluster_.bridge().Signal(SIGSTOP);
  auto publish = cluster_.StartPublish(1);
  publish->Signal(SIGKILL);
  ASSERT_TRUE(publish->Wait(kCommandTimeout).ok());
  cluster_.bridge().Signal(SIGCONT);
  ASSERT_TRUE(cluster_.WaitUntil([](const json& status) {
    const std::string state = VersionState(status, 1);
    return IsLive(status, "s1", 0) && IsLive(status, "s2", 0) &&
           (state == "absent" || state == "discarded");
  }));
  EXPECT_EQ(cluster_.Publish(1).exit_code, 0);
  ASSERT_TRUE(cluster_.WaitLive(1, 2));
  EXPECT_TRUE(cluster_.DumpEqualsPublished("s2", 1));
}

TEST_F(KillTest, BridgeKilledWhileIdleKnowsEverythingAfterwardsAndSamplersKeepServing) {
  const std::string id = "before-the-crash";
  const std::string line = absl::StrCat(
      R"({"id":")", id, R"(","policy_version":0,"tokens":[1,2],"sampler_logprobs":[-0.5,-0.25],)",
      R"("trainer_logprobs":[-0.5,-0.25]})");
  const std::string path = cluster_.folder() + "/one.jsonl";
  std::ofstream(path) << line << "\n";
  const Finished before = cluster_.Cli({"rollout", "submit", path, "-o", "json"});
  ASSERT_EQ(before.exit_code, 0) << before.err << before.out;
  cluster_.KillBridge();
  cluster_.StartBridge();
  ASSERT_TRUE(cluster_.WaitUntil(
      [](const json& status) { return IsLive(status, "s1", 0) && IsLive(status, "s2", 0); }));
  const Finished after = cluster_.Cli({"rollout", "submit", path, "-o", "json"});
  EXPECT_EQ(after.out, before.out) << "the same answer to the same rollout";
  EXPECT_EQ(cluster_.Publish(1).exit_code, 0);
  ASSERT_TRUE(cluster_.WaitLive(1, 2));
}

TEST_F(KillTest, BridgeKilledAmidAPublishFinishesItAfterwards) {
  cluster_.sampler("s2").Signal(SIGSTOP);
  auto publish = cluster_.StartPublish(1);
  ASSERT_TRUE(cluster_.WaitUntil([](const json& status) { return IsLive(status, "s1", 1); }));
  cluster_.KillBridge();
  cluster_.sampler("s2").Signal(SIGCONT);
  cluster_.StartBridge();
  ASSERT_TRUE(cluster_.WaitLive(1, 2));
  const auto code = publish->Wait(kCommandTimeout);
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(*code, 0);
  EXPECT_TRUE(cluster_.DumpEqualsPublished("s1", 1));
  EXPECT_TRUE(cluster_.DumpEqualsPublished("s2", 1));
}

TEST_F(KillTest, LateSamplerGetsTheNewestFromARestartedBridgeWithoutATrainer) {
  ASSERT_EQ(cluster_.Publish(1).exit_code, 0);
  ASSERT_TRUE(cluster_.WaitUntil([](const json& status) {
    const json* version = Find(status, "versions", "version", 1);
    return version != nullptr && (*version)["on_disk"] == true;
  }));
  cluster_.KillBridge();
  cluster_.StartBridge();
  cluster_.StartSampler("s3", "shm");
  cluster_.StartSampler("s4", "tcp");
  ASSERT_TRUE(cluster_.WaitLive(1, 4));
  EXPECT_TRUE(cluster_.DumpEqualsPublished("s3", 1));
  EXPECT_TRUE(cluster_.DumpEqualsPublished("s4", 1));
}

// Any process, at any moment, twelve times over while four versions are published; then the
// dust settles.
TEST_F(KillTest, AnythingKilledAtAnyMomentStillConvergesToThePublishedBytes) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  for (uint64_t version = 1; version <= 4; ++version) {
    for (int strike = 0; strike < 3; ++strike) {
      auto publish = cluster_.StartPublish(version);
      const auto moment = absl::Microseconds(random() % 400'000);
      (void)publish->Wait(moment);  // or it is done before
      switch (random() % 4) {
        case 0:
          publish->Signal(SIGKILL);
          break;
        case 1:
          cluster_.KillBridge();
          cluster_.StartBridge();
          break;
        case 2:
          cluster_.KillSampler("s1");
          cluster_.StartSampler("s1", "shm");
          break;
        default:
          cluster_.KillSampler("s2");
          cluster_.StartSampler("s2", "tcp");
      }
      ASSERT_TRUE(publish->Wait(kCommandTimeout).ok()) << "a publish that never ends";
    }
    const Finished last = cluster_.Publish(version);
    EXPECT_TRUE(last.exit_code == 0 || last.exit_code == 1) << last.err;
    ASSERT_TRUE(cluster_.WaitLive(version, 2)) << "seed " << seed;
    EXPECT_TRUE(cluster_.DumpEqualsPublished("s1", version)) << "seed " << seed;
    EXPECT_TRUE(cluster_.DumpEqualsPublished("s2", version)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace lockstep::e2e
