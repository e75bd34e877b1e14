#include "trainer_client/bridge_link.h"

#include <utility>

#include "policy/status_macros.h"

namespace lockstep {
namespace {

absl::Status Closed() { return absl::CancelledError("the trainer is being closed"); }

// A bridge that shuts down takes the trainer back when it has started again.
bool IsShuttingDown(const Refused& refused) {
  return !refused.refusals.empty() && refused.refusals.front().code == RefusalCode::kShuttingDown;
}

}  // namespace

transport::SessionHooks BridgeLink::Hooks() {
  transport::SessionHooks hooks;
  hooks.registration = [this](const Welcome&) { return Registration(); };
  hooks.on_registered = [this](const Message& answer) { OnRegistered(answer); };
  hooks.on_bridge = [this](const absl::Status& status, bool new_bridge) {
    OnBridge(status, new_bridge);
  };
  hooks.on_message = [this](const Message& message) {
    if (const DropArena* drop = std::get_if<DropArena>(&message)) {
      on_drop_(drop->arena_id);
    } else if (const Refused* refused = std::get_if<Refused>(&message)) {
      OnRefused(*refused);
    }
  };
  return hooks;
}

std::optional<Message> BridgeLink::Registration() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (superseded_) return std::nullopt;
  return registration_;
}

void BridgeLink::OnRefused(const Refused& refused) {
  const std::lock_guard<std::mutex> lock(mutex_);
  last_refusals_ = refused.refusals;
  if (refused.refusals.empty() || refused.refusals.front().code != RefusalCode::kStaleEpoch) return;
  superseded_ = true;
  refused_ = absl::FailedPreconditionError(transport::RefusalsText(refused));
  changed_.notify_all();
}

absl::Status BridgeLink::Open(transport::SessionOptions options) {
  LOCKSTEP_ASSIGN_OR_RETURN(session_, transport::ClientSession::Open(std::move(options), Hooks()));
  const std::lock_guard<std::mutex> lock(mutex_);
  return refused_;
}

void BridgeLink::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  if (feed_ != nullptr) feed_->Cancel(Closed());
  changed_.notify_all();
}

void BridgeLink::OnRegistered(const Message& answer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const Registered* registered = std::get_if<Registered>(&answer)) {
    registered_ = true;
    refused_ = absl::OkStatus();
    standing_.epoch = registered->epoch;
    standing_.contract_short = registered->contract_short;
  } else if (const Refused* refused = std::get_if<Refused>(&answer)) {
    registered_ = false;
    last_refusals_ = refused->refusals;
    const bool opened = standing_.epoch != 0;
    if (opened && IsShuttingDown(*refused)) return;
    refused_ = absl::FailedPreconditionError(transport::RefusalsText(*refused));
  }
  changed_.notify_all();
}

void BridgeLink::OnBridge(const absl::Status& status, bool new_bridge) {
  const std::lock_guard<std::mutex> lock(mutex_);
  registered_ = false;
  if (!superseded_) refused_ = absl::OkStatus();
  if (status.ok()) {
    standing_.bridges += new_bridge ? 1 : 0;
    return;
  }
  ++standing_.losses;
  if (absl::IsFailedPrecondition(status) && !superseded_) refused_ = status;
  if (feed_ != nullptr) feed_->Cancel(status);
  changed_.notify_all();
}

absl::StatusOr<Standing> BridgeLink::WaitRegistered() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return stopped_ || registered_ || !refused_.ok(); });
  if (stopped_) return Closed();
  if (!refused_.ok()) return refused_;
  return standing_;
}

bool BridgeLink::LostSince(const Standing& standing) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return standing_.losses != standing.losses;
}

absl::Status BridgeLink::WaitLost(const Standing& standing) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || standing_.losses != standing.losses; });
  return stopped_ ? Closed() : absl::OkStatus();
}

absl::StatusOr<Message> BridgeLink::Ask(Message message) {
  auto answer = std::make_shared<std::optional<absl::StatusOr<Message>>>();
  session_->Request(std::move(message),
                    [this, answer](absl::StatusOr<Message> given) {
                      const std::lock_guard<std::mutex> lock(mutex_);
                      *answer = std::move(given);
                      changed_.notify_all();
                    },
                    {.resend = false, .is_last = {}});
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || answer->has_value(); });
  if (stopped_) return Closed();
  if (!(*answer)->ok()) return (*answer)->status();
  if (const Refused* refused = std::get_if<Refused>(&***answer)) {
    last_refusals_ = refused->refusals;
    return absl::FailedPreconditionError(transport::RefusalsText(*refused));
  }
  return ***std::move(answer);
}

std::future<absl::StatusOr<Decision>> BridgeLink::Rescore(const std::string& rollout_id,
                                                          absl::Span<const float> logprobs) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<Decision>>>();
  std::future<absl::StatusOr<Decision>> future = promise->get_future();
  SubmitRescore message{rollout_id, {logprobs.begin(), logprobs.end()}};
  session_->Request(std::move(message), [this, promise](absl::StatusOr<Message> answer) {
    if (!answer.ok()) return promise->set_value(answer.status());
    if (const Refused* refused = std::get_if<Refused>(&*answer)) {
      Remember(refused->refusals);
      return promise->set_value(absl::FailedPreconditionError(transport::RefusalsText(*refused)));
    }
    DecisionReply* reply = std::get_if<DecisionReply>(&*answer);
    if (reply == nullptr) {
      return promise->set_value(absl::InternalError("the bridge answered no decision"));
    }
    promise->set_value(std::move(reply->decision));
  });
  return future;
}

void BridgeLink::SetFeed(transport::RoundFeed* feed) {
  const std::lock_guard<std::mutex> lock(mutex_);
  feed_ = feed;
  if (feed_ != nullptr && stopped_) feed_->Cancel(Closed());
}

Standing BridgeLink::standing() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return standing_;
}

std::vector<Refusal> BridgeLink::last_refusals() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return last_refusals_;
}

void BridgeLink::Remember(const std::vector<Refusal>& refusals) {
  const std::lock_guard<std::mutex> lock(mutex_);
  last_refusals_ = refusals;
}

}  // namespace lockstep
