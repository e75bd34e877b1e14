#include "tools/cli/bridge_submit.h"

#include <gtest/gtest.h>

#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lockstep::tools {
namespace {

std::string Line(int version) {
  return absl::StrCat("{\"policy_version\": ", version,
                      ", \"tokens\": [1], \"trainer_logprobs\": [-0.5]}\n");
}

// A bridge that keeps every question, and answers them last first once it has `batch` of them.
class BackwardsBridge {
 public:
  explicit BackwardsBridge(size_t batch) : batch_(batch) {}

  void Send(SubmitRolloutFor message, SubmitAnswer answer) {
    sent_.push_back(message);
    waiting_.emplace_back(std::move(message), std::move(answer));
    most_ = std::max(most_, waiting_.size());
    if (waiting_.size() == batch_) AnswerAll();
  }
  void AnswerAll() {
    while (!waiting_.empty()) {
      auto [message, answer] = std::move(waiting_.back());
      waiting_.pop_back();
      Decision decision;
      decision.rollout_id = message.rollout.id;
      decision.kind = DecisionKind::kAdmit;
      answer(Message(DecisionReply{decision}));
    }
  }
  SendRollout sender() {
    return [this](SubmitRolloutFor message, SubmitAnswer answer) {
      Send(std::move(message), std::move(answer));
    };
  }

  const std::vector<SubmitRolloutFor>& sent() const { return sent_; }
  size_t most() const { return most_; }

 private:
  size_t batch_;
  size_t most_ = 0;
  std::vector<SubmitRolloutFor> sent_;
  std::vector<std::pair<SubmitRolloutFor, SubmitAnswer>> waiting_;
};

TEST(SubmitTest, ManyLinesAreUnderWayAndAnswersComeInTheOrderOfTheFile) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += Line(i);
  std::istringstream in(text);
  RolloutFile file(in);
  BackwardsBridge bridge(4);
  std::vector<uint64_t> numbers;
  std::vector<std::string> ids;
  const absl::Status status =
      SubmitRollouts(file, {.in_flight = 4}, bridge.sender(), [&](const SubmittedLine& line) {
        numbers.push_back(line.number);
        ASSERT_TRUE(line.decision.ok());
        EXPECT_EQ(line.decision->rollout_id, line.id);
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(numbers, (std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(bridge.most(), 4u);
}

TEST(SubmitTest, SamplerAndLevelAreTheOptionsAndTheTrainersLogprobsGoAlong) {
  std::istringstream in(Line(3));
  RolloutFile file(in);
  BackwardsBridge bridge(1);
  const SubmitOptions options{.sampler = "s2", .level = AdmissionLevel::kKernels};
  ASSERT_TRUE(SubmitRollouts(file, options, bridge.sender(), [](const SubmittedLine&) {}).ok());
  ASSERT_EQ(bridge.sent().size(), 1u);
  EXPECT_EQ(bridge.sent()[0].rollout.sampler, "s2");
  EXPECT_EQ(bridge.sent()[0].rollout.level, AdmissionLevel::kKernels);
  EXPECT_EQ(bridge.sent()[0].trainer_logprobs, std::vector<float>{-0.5f});
}

TEST(SubmitTest, AnUnreadableLineIsReportedByNumberAndTheRestGoOn) {
  std::istringstream in(absl::StrCat(Line(0), "{\"tokens\": \n", Line(1)));
  RolloutFile file(in);
  BackwardsBridge bridge(1);
  std::vector<std::pair<uint64_t, bool>> seen;
  ASSERT_TRUE(SubmitRollouts(file, {}, bridge.sender(), [&](const SubmittedLine& line) {
                seen.emplace_back(line.number, line.decision.ok());
              }).ok());
  EXPECT_EQ(seen, (std::vector<std::pair<uint64_t, bool>>{{1, true}, {2, false}, {3, true}}));
  EXPECT_EQ(bridge.sent().size(), 2u);
}

TEST(SubmitTest, ARequestThatIsRefusedIsARefusedRolloutWithItsReasons) {
  std::istringstream in(Line(0));
  RolloutFile file(in);
  const SendRollout refuse = [](SubmitRolloutFor, SubmitAnswer answer) {
    answer(Message(Refused{{{RefusalCode::kLimitExceeded, "id", "too long"}}, true}));
  };
  ASSERT_TRUE(SubmitRollouts(file, {}, refuse, [](const SubmittedLine& line) {
                ASSERT_TRUE(line.decision.ok());
                EXPECT_EQ(line.decision->kind, DecisionKind::kRefuse);
                EXPECT_EQ(line.decision->reasons.front().code, RefusalCode::kLimitExceeded);
              }).ok());
}

TEST(SubmitTest, ABridgeThatIsGoneEndsTheSubmissionABadMessageDoesNot) {
  std::istringstream in(absl::StrCat(Line(0), Line(1), Line(2)));
  RolloutFile file(in);
  int asked = 0;
  const SendRollout failing = [&](SubmitRolloutFor, SubmitAnswer answer) {
    answer(++asked == 1 ? absl::ResourceExhaustedError("larger than any bridge takes")
                        : absl::UnavailableError("gone"));
  };
  int reported = 0;
  const absl::Status status =
      SubmitRollouts(file, {.in_flight = 1}, failing, [&](const SubmittedLine&) { ++reported; });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(reported, 1);
  EXPECT_EQ(asked, 2);
}

TEST(SubmitTest, ABridgeThatDoesNotAnswerIsATimeout) {
  std::istringstream in(Line(0));
  RolloutFile file(in);
  const SendRollout silent = [](SubmitRolloutFor, SubmitAnswer) {};
  const absl::Status status =
      SubmitRollouts(file, {.answer_timeout = absl::Milliseconds(1)}, silent,
                     [](const SubmittedLine&) { FAIL() << "there is no answer"; });
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
}

}  // namespace
}  // namespace lockstep::tools
