#include "tools/cli/bridge_submit.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep::tools {
namespace {

// One line under way. Shared with its answer, which may come after everyone has left.
struct Slot {
  uint64_t number = 0;
  std::string id;
  std::optional<absl::StatusOr<Decision>> decision;  // guarded by Answers::mutex
};

struct Answers {
  std::mutex mutex;
  std::condition_variable arrived;
};

// A refused request is a refused rollout: it has reasons of the same list.
absl::StatusOr<Decision> DecisionOf(absl::StatusOr<Message> answer, const std::string& id) {
  if (!answer.ok()) return answer.status();
  if (DecisionReply* reply = std::get_if<DecisionReply>(&*answer)) {
    return std::move(reply->decision);
  }
  if (Refused* refused = std::get_if<Refused>(&*answer)) {
    Decision decision;
    decision.rollout_id = id;
    decision.kind = DecisionKind::kRefuse;
    decision.reasons = std::move(refused->refusals);
    return decision;
  }
  return absl::InternalError("the bridge answered a rollout with something else than a decision");
}

bool EndsTheSubmission(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kCancelled ||
         status.code() == absl::StatusCode::kPermissionDenied;
}

std::shared_ptr<Slot> Start(RolloutFileLine line, const SubmitOptions& options,
                            const SendRollout& send, const std::shared_ptr<Answers>& answers) {
  auto slot = std::make_shared<Slot>();
  slot->number = line.number;
  if (!line.rollout.ok()) {
    slot->decision = line.rollout.status();
    return slot;
  }
  SubmitRolloutFor message{std::move(line.rollout->rollout),
                           std::move(line.rollout->trainer_logprobs)};
  message.rollout.sampler = options.sampler;
  message.rollout.level = options.level;
  slot->id = message.rollout.id;
  send(std::move(message), [slot, answers](absl::StatusOr<Message> answer) {
    absl::StatusOr<Decision> decision = DecisionOf(std::move(answer), slot->id);
    const std::lock_guard<std::mutex> lock(answers->mutex);
    slot->decision = std::move(decision);
    answers->arrived.notify_one();
  });
  return slot;
}

}  // namespace

absl::Status SubmitRollouts(RolloutFile& file, const SubmitOptions& options,
                            const SendRollout& send,
                            absl::FunctionRef<void(const SubmittedLine&)> report) {
  const auto answers = std::make_shared<Answers>();
  const auto timeout = absl::ToChronoMilliseconds(options.answer_timeout);
  std::deque<std::shared_ptr<Slot>> under_way;
  bool more = true;
  for (;;) {
    while (more && under_way.size() < options.in_flight) {
      std::optional<RolloutFileLine> line = file.Next();
      more = line.has_value();
      if (more) under_way.push_back(Start(*std::move(line), options, send, answers));
    }
    if (under_way.empty()) return absl::OkStatus();
    const std::shared_ptr<Slot> oldest = std::move(under_way.front());
    under_way.pop_front();
    std::unique_lock<std::mutex> lock(answers->mutex);
    if (!answers->arrived.wait_for(lock, timeout, [&] { return oldest->decision.has_value(); })) {
      return absl::DeadlineExceededError(absl::StrCat(
          "no answer for line ", oldest->number, " within ",
          absl::FormatDuration(options.answer_timeout),
          "; the bridge may be busy or gone: submit the file again, decided lines keep their "
          "answers"));
    }
    SubmittedLine line{oldest->number, oldest->id, *std::move(oldest->decision)};
    lock.unlock();
    if (!line.decision.ok() && EndsTheSubmission(line.decision.status())) {
      return line.decision.status();
    }
    report(line);
  }
}

}  // namespace lockstep::tools
