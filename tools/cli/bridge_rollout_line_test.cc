#include "tools/cli/bridge_rollout_line.h"

#include <gtest/gtest.h>

#include <sstream>

#include "absl/strings/str_cat.h"

namespace lockstep::tools {
namespace {

constexpr char kLine[] =
    R"({"policy_version": 3, "prompt": [8, 7], "tokens": [2, 9],)"
    R"( "sampler_logprobs": [-0.5, 0], "trainer_logprobs": [-0.25, 0.0], "reward": 1.0})";

RecordedRollout Read(absl::string_view line) {
  absl::StatusOr<RecordedRollout> rollout = ReadRolloutLine(line);
  EXPECT_TRUE(rollout.ok()) << rollout.status();
  return rollout.ok() ? *std::move(rollout) : RecordedRollout();
}

std::string ErrorOf(absl::string_view line) {
  const absl::StatusOr<RecordedRollout> rollout = ReadRolloutLine(line);
  EXPECT_EQ(rollout.status().code(), absl::StatusCode::kInvalidArgument) << line;
  return std::string(rollout.status().message());
}

TEST(RolloutLineTest, ALineOfTheTraceIsOneSpanOfItsVersion) {
  const RecordedRollout recorded = Read(kLine);
  EXPECT_EQ(recorded.rollout.spans, (std::vector<TokenSpan>{{3, 0, 2}}));
  EXPECT_EQ(recorded.rollout.tokens, (std::vector<int64_t>{2, 9}));
  EXPECT_EQ(recorded.rollout.sampler_logprobs, (std::vector<float>{-0.5f, 0.0f}));
  ASSERT_TRUE(recorded.trainer_logprobs.has_value());
  EXPECT_EQ(*recorded.trainer_logprobs, (std::vector<float>{-0.25f, 0.0f}));
}

TEST(RolloutLineTest, TheCanonicalLineIsSortedTightAndHasFloatsAsBits) {
  EXPECT_EQ(*CanonicalRolloutLine(kLine),
            R"({"policy_version":3,"prompt":[8,7],"reward":"3f800000",)"
            R"("sampler_logprobs":["bf000000","00000000"],"tokens":[2,9],)"
            R"("trainer_logprobs":["be800000","00000000"]})");
}

TEST(RolloutLineTest, TheIdIsTheDigestOfTheCanonicalLineUnlessTheLineHasOne) {
  const RecordedRollout recorded = Read(kLine);
  EXPECT_EQ(recorded.rollout.content, Blake2b256(*CanonicalRolloutLine(kLine)));
  EXPECT_EQ(recorded.rollout.id, ToHex(recorded.rollout.content));
  const RecordedRollout named = Read(R"({"id": "r-1", "policy_version": 0, "tokens": [1]})");
  EXPECT_EQ(named.rollout.id, "r-1");
  EXPECT_EQ(named.rollout.content, Blake2b256(R"({"id":"r-1","policy_version":0,"tokens":[1]})"));
}

TEST(RolloutLineTest, KeyOrderAndWhiteSpaceDoNotChangeTheContentOneBitOfALogprobDoes) {
  const Digest256 content =
      Read(R"({"policy_version":1,"tokens":[1],"sampler_logprobs":[-0.5]})").rollout.content;
  EXPECT_EQ(Read(R"({ "tokens" : [1], "sampler_logprobs": [-5e-1], "policy_version": 1 })")
                .rollout.content,
            content);
  EXPECT_NE(
      Read(R"({"policy_version":1,"tokens":[1],"sampler_logprobs":[-0.50000006]})").rollout.content,
      content);
}

TEST(RolloutLineTest, SpansOfALineAreTakenAsTheyAre) {
  const RecordedRollout recorded =
      Read(R"({"policy_version": 9, "spans": [[1, 0, 2], [2, 2, 3]], "tokens": [1, 2, 3]})");
  EXPECT_EQ(recorded.rollout.spans, (std::vector<TokenSpan>{{1, 0, 2}, {2, 2, 3}}));
  EXPECT_FALSE(recorded.trainer_logprobs.has_value());
}

TEST(RolloutLineTest, AWrongLineSaysWhichKeyAndWhatWasExpected) {
  EXPECT_NE(ErrorOf("{\"tokens\": [1").find("not well-formed JSON"), std::string::npos);
  EXPECT_NE(ErrorOf("[1, 2]").find("expected a JSON object"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"policy_version": 1})").find("'tokens' is missing"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"tokens": [1]})").find("'policy_version' is missing"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"policy_version": -1, "tokens": [1]})").find("'policy_version'"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"policy_version": 1, "tokens": [1.5]})").find("'tokens[0]'"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"policy_version": 1, "tokens": [1], "sampler_logprobs": ["x"]})")
                .find("'sampler_logprobs[0]'"),
            std::string::npos);
  EXPECT_NE(
      ErrorOf(R"({"policy_version": 1, "tokens": [1], "sampler_logprobs": [NaN]})").find("JSON"),
      std::string::npos);
  EXPECT_NE(
      ErrorOf(R"({"policy_version": 1, "tokens": [1], "spans": [[0, 1]]})").find("'spans[0]'"),
      std::string::npos);
  EXPECT_NE(ErrorOf(R"({"policy_version": 1, "tokens": [1], "id": 7})").find("'id'"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"policy_version": 1, "policy_version": 2, "tokens": [1]})").find("twice"),
            std::string::npos);
}

TEST(RolloutFileTest, LinesAreNumberedAsEditorsDoAndABadOneDoesNotEndTheFile) {
  std::istringstream in(absl::StrCat(kLine, "\n\nnot json\n  \r\n", kLine));
  RolloutFile file(in);
  std::optional<RolloutFileLine> line = file.Next();
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->number, 1u);
  EXPECT_TRUE(line->rollout.ok());
  line = file.Next();
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->number, 3u);
  EXPECT_FALSE(line->rollout.ok());
  line = file.Next();
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->number, 5u) << "a last line without an end is a line";
  EXPECT_TRUE(line->rollout.ok());
  EXPECT_FALSE(file.Next().has_value());
}

}  // namespace
}  // namespace lockstep::tools
