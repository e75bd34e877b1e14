// The demo's story, played by the real binaries on every recorded run.

#include "tools/story/story.h"

#include <filesystem>

#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tools/story/cast.h"

namespace lockstep::e2e {
namespace {

class StoryTest : public ::testing::TestWithParam<const char*> {};

TEST_P(StoryTest, EveryExpectationOfTheDemoHolds) {
  transport::TemporaryFolder work;
  auto options = tools::CastFor(GetParam());
  ASSERT_TRUE(options.ok()) << options.status();
  options->trace = Trace::Get(GetParam()).folder;
  options->lockstep = LockstepBinary();
  options->lockstepd = LockstepdBinary();
  options->work = work.path();
  tools::Story story(*std::move(options));
  const absl::Status played = story.Play();
  EXPECT_TRUE(played.ok()) << played << tools::ReportText(story.report());
  EXPECT_TRUE(story.report().AllHeld()) << tools::ReportText(story.report());
}

INSTANTIATE_TEST_SUITE_P(Traces, StoryTest, ::testing::Values("qwen3_5_dense", "glm_moe_dsa"));

// A story that cannot fail would prove nothing.
TEST(StoryExpectationsTest, AnOddSamplerThatAgreesFailsTheStory) {
  transport::TemporaryFolder work;
  auto options = tools::CastFor("glm_moe_dsa");
  ASSERT_TRUE(options.ok()) << options.status();
  options->trace = Trace::Get("glm_moe_dsa").folder;
  options->lockstep = LockstepBinary();
  options->lockstepd = LockstepdBinary();
  options->work = work.path();
  options->odd_flags = options->contract_flags;
  tools::Story story(*std::move(options));
  (void)story.Play();
  EXPECT_FALSE(story.report().AllHeld());
}

}  // namespace
}  // namespace lockstep::e2e
