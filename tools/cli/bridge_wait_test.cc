#include "tools/cli/bridge_wait.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"

namespace lockstep::tools {
namespace {

VersionStatus MakeVersion(uint64_t number, std::string state) {
  VersionStatus version;
  version.version = number;
  version.state = std::move(state);
  return version;
}

SamplerStatus MakeSampler(std::string name, std::string state, std::optional<uint64_t> live) {
  SamplerStatus sampler;
  sampler.name = std::move(name);
  sampler.state = std::move(state);
  sampler.live_version = live;
  sampler.connected = true;
  return sampler;
}

TEST(WaitTest, ReachedOnceThatManySamplersAreLiveRefusedOnesNotCounted) {
  StatusReply status;
  status.versions = {MakeVersion(3, "live")};
  status.samplers = {MakeSampler("s1", "live", 3), MakeSampler("s3", "refused", std::nullopt)};
  EXPECT_EQ(JudgeWait(status, {3, 1}).state, WaitState::kReached);
  EXPECT_EQ(JudgeWait(status, {3, 1}).live, std::vector<std::string>{"s1"});
  const WaitVerdict two = JudgeWait(status, {3, 2});
  EXPECT_EQ(two.state, WaitState::kNotYet);
  EXPECT_TRUE(absl::StrContains(two.why, "1 sampler of 2 wanted")) << two.why;
  EXPECT_TRUE(absl::StrContains(two.why, "refused")) << two.why;
}

TEST(WaitTest, ZeroSamplersIsReachedOnceTheVersionIsSealed) {
  StatusReply status;
  EXPECT_EQ(JudgeWait(status, {0, 0}).state, WaitState::kNotYet);
  status.versions = {MakeVersion(0, "transferring")};
  EXPECT_EQ(JudgeWait(status, {0, 0}).state, WaitState::kNotYet);
  status.versions = {MakeVersion(0, "sealed")};
  EXPECT_EQ(JudgeWait(status, {0, 0}).state, WaitState::kReached);
}

TEST(WaitTest, HopelessOnceANewerVersionIsSealedAndNobodyIsOnItsWay) {
  StatusReply status;
  status.versions = {MakeVersion(3, "sealed"), MakeVersion(4, "live")};
  status.samplers = {MakeSampler("s1", "live", 4)};
  EXPECT_EQ(JudgeWait(status, {3, 1}).state, WaitState::kHopeless);
  EXPECT_EQ(JudgeWait(status, {2, 1}).state, WaitState::kHopeless) << "never offered, and older";
  EXPECT_EQ(JudgeWait(status, {5, 1}).state, WaitState::kNotYet) << "may still be offered";
  status.samplers.push_back(MakeSampler("s2", "verifying", std::nullopt));
  EXPECT_EQ(JudgeWait(status, {3, 1}).state, WaitState::kNotYet) << "may be verifying version 3";
}

TEST(WaitTest, ANewerVersionThatIsNotSealedDoesNotEndTheHope) {
  StatusReply status;
  status.versions = {MakeVersion(3, "sealed"), MakeVersion(4, "transferring")};
  EXPECT_EQ(JudgeWait(status, {3, 1}).state, WaitState::kNotYet);
}

TEST(WaitTest, HopelessOnceTheVersionIsRetiredThoughEnoughWereLiveIsReached) {
  StatusReply status;
  status.versions = {MakeVersion(3, "retired")};
  EXPECT_EQ(JudgeWait(status, {3, 1}).state, WaitState::kHopeless);
  status.versions = {MakeVersion(3, "live")};
  status.samplers = {MakeSampler("s1", "live", 3)};
  EXPECT_EQ(JudgeWait(status, {3, 1}).state, WaitState::kReached);
}

TEST(DegradationsTest, NoneWhenEveryAgreedSamplerServesTheNewestSealedVersion) {
  StatusReply status;
  EXPECT_TRUE(Degradations(status).empty()) << "nothing published, nobody there";
  status.versions = {MakeVersion(3, "live"), MakeVersion(4, "transferring")};
  status.samplers = {MakeSampler("s1", "live", 3), MakeSampler("s3", "refused", std::nullopt),
                     MakeSampler("w", "waiting", std::nullopt)};
  EXPECT_TRUE(Degradations(status).empty());
  SamplerStatus gone = MakeSampler("g", "gone", std::nullopt);
  gone.connected = false;
  status.samplers.push_back(gone);
  EXPECT_TRUE(Degradations(status).empty()) << "a process that left is not behind";
}

TEST(DegradationsTest, ASamplerBehindAnAlarmAndAQuarantineEachHaveASentence) {
  StatusReply status;
  status.versions = {MakeVersion(3, "live")};
  status.samplers = {MakeSampler("s1", "live", 2), MakeSampler("s2", "quarantined", std::nullopt)};
  status.alarms = {"zero_change"};
  const std::vector<std::string> reasons = Degradations(status);
  ASSERT_EQ(reasons.size(), 3u);
  EXPECT_EQ(reasons[0], "zero_change");
  EXPECT_TRUE(absl::StrContains(reasons[1], "not live on version 3")) << reasons[1];
  EXPECT_TRUE(absl::StrContains(reasons[2], "quarantined")) << reasons[2];
}

}  // namespace
}  // namespace lockstep::tools
