#include "bridge/transport/session_loop.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "bridge/wire/wire.h"
#include "policy/status_macros.h"

namespace lockstep::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kSoftware[] = "lockstep-client";
constexpr int kPingsPerLease = 3;
constexpr std::chrono::milliseconds kShortestPing{10};
constexpr std::chrono::milliseconds kGoodbyeLinger{100};
// How soon a send is tried again that met a full queue.
constexpr std::chrono::milliseconds kFullQueuePause{5};

bool IsUnknownPeer(const Message& message) {
  const Refused* refused = std::get_if<Refused>(&message);
  return refused != nullptr && !refused->refusals.empty() &&
         refused->refusals.front().code == RefusalCode::kUnknownPeer;
}

}  // namespace

SessionLoop::~SessionLoop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  channel_->Wake();
  thread_.join();
}

absl::Status SessionLoop::Open() {
  const auto deadline = Clock::now() + absl::ToChronoMilliseconds(options_.connect_timeout);
  const auto left = [&] {
    return std::max(std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()),
                    std::chrono::milliseconds(1));
  };
  LOCKSTEP_RETURN_IF_ERROR(BridgePresent(address_, left()));
  LOCKSTEP_ASSIGN_OR_RETURN(channel_, ControlChannel::Connect(address_, options_.bridge.keys));
  LOCKSTEP_RETURN_IF_ERROR(channel_->SetLinger(kGoodbyeLinger));
  thread_ = std::thread([this] { Run(); });
  std::unique_lock<std::mutex> lock(mutex_);
  if (!opened_changed_.wait_until(lock, deadline, [this] { return opened_.has_value(); })) {
    return absl::UnavailableError(
        absl::StrCat("what listens at ", address_.ToString(), " did not answer within ",
                     absl::FormatDuration(options_.connect_timeout),
                     "; is it a Lockstep bridge, and is it busy or stopped?"));
  }
  return *opened_;
}

void SessionLoop::Opened(const absl::Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (opened_.has_value()) return;
  opened_ = status;
  opened_changed_.notify_all();
}

void SessionLoop::Enqueue(SessionCommand command) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (ended_.has_value()) {
    const absl::Status why = *ended_;
    lock.unlock();
    if (OpenRequest* request = std::get_if<OpenRequest>(&command)) request->answer(why);
    return;
  }
  const bool first = commands_.empty();
  commands_.push_back(std::move(command));
  lock.unlock();
  // The thread takes all there are, so one wake serves those that follow.
  if (first) channel_->Wake();
}

Welcome SessionLoop::welcome() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return welcome_;
}

void SessionLoop::Run() {
  for (;;) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (stop_) break;
    }
    TakeCommands();
    SendWaiting();
    PingIfDue();
    absl::StatusOr<std::optional<Envelope>> received = channel_->Receive(NextWake());
    NoticeConnection();
    if (!received.ok()) {
      HandleReceiveError(received.status());
    } else if (received->has_value()) {
      Handle(**std::move(received));
    }
  }
  SayGoodbye();
}

void SessionLoop::TakeCommands() {
  std::vector<SessionCommand> commands;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    commands.swap(commands_);
  }
  for (SessionCommand& command : commands) {
    std::visit([this](auto& one) { Take(std::move(one)); }, command);
  }
}

void SessionLoop::Take(PostCommand command) {
  if (stage_ != Stage::kReady) return;
  // A full queue drops it, as a lost bridge would.
  channel_->Send({incarnation_, 0, 0, std::move(command.message)}).IgnoreError();
}

void SessionLoop::Take(OpenRequest command) {
  if (stage_ == Stage::kTurnedAway) return command.answer(turned_away_);
  book_.Add(std::move(command));
}

void SessionLoop::Take(CancelCommand command) { book_.Cancel(command.id); }

void SessionLoop::Take(RegisterCommand) {
  // Otherwise the next Welcome does it.
  if (stage_ == Stage::kReady) Register();
}

Clock::time_point SessionLoop::NextWake() const {
  const auto now = Clock::now();
  const bool may_send = stage_ == Stage::kReady && registration_answered_;
  if (may_send && book_.anything_waits()) return now + kFullQueuePause;
  return stage_ == Stage::kReady ? next_ping_ : now + std::chrono::hours(1);
}

void SessionLoop::PingIfDue() {
  if (stage_ != Stage::kReady || Clock::now() < next_ping_) return;
  channel_->Send({incarnation_, 0, 0, Ping{}}).IgnoreError();
  next_ping_ = Clock::now() + ping_every_;
}

void SessionLoop::NoticeConnection() {
  if (channel_->connections() != connections_seen_) {
    connections_seen_ = channel_->connections();
    EndSession(absl::UnavailableError("the connection to the bridge broke and was made anew"));
    SayHello();
  } else if (!channel_->connected() && stage_ != Stage::kAway) {
    EndSession(absl::UnavailableError(
        absl::StrCat("the bridge at ", address_.ToString(), " is gone; waiting for its return")));
  }
}

void SessionLoop::HandleReceiveError(const absl::Status& error) {
  if (wire::IsProtocolVersionError(error)) return HandleTurnedAway(error);
  if (absl::IsPermissionDenied(error)) {
    Opened(error);
    return EndSession(error);
  }
  if (absl::IsInternal(error) || absl::IsCancelled(error)) return GiveUp(error);
  // One damaged frame. What it answered stays open; nothing else of the session is lost.
}

void SessionLoop::Handle(Envelope envelope) {
  const bool answers_hello = stage_ == Stage::kGreeting && envelope.reply_to == hello_seq_;
  if (answers_hello) {
    if (const Welcome* welcome = std::get_if<Welcome>(&envelope.body)) {
      HandleWelcome(envelope, *welcome);
    } else if (const Refused* refused = std::get_if<Refused>(&envelope.body)) {
      HandleTurnedAway(absl::FailedPreconditionError(RefusalsText(*refused)));
    }
    return;
  }
  // Before the Welcome only echoes of an earlier session arrive.
  if (stage_ != Stage::kReady) return;
  if (envelope.incarnation != *bridge_ || IsUnknownPeer(envelope.body)) {
    EndSession(absl::UnavailableError("the bridge was restarted, or had given this client up"));
    return SayHello();
  }
  if (envelope.reply_to == 0) {
    if (!std::holds_alternative<Pong>(envelope.body) && hooks_.on_message) {
      hooks_.on_message(envelope.body);
    }
  } else if (envelope.reply_to == registration_seq_) {
    HandleRegistrationAnswer(envelope.body);
  } else {
    book_.Answered(envelope.reply_to, std::move(envelope.body));
  }
}

void SessionLoop::HandleWelcome(const Envelope& envelope, const Welcome& welcome) {
  stage_ = Stage::kReady;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    welcome_ = welcome;
  }
  const bool new_bridge = bridge_.has_value() && *bridge_ != envelope.incarnation;
  bridge_ = envelope.incarnation;
  ping_every_ =
      std::max(std::chrono::milliseconds(welcome.lease_ms) / kPingsPerLease, kShortestPing);
  next_ping_ = Clock::now() + ping_every_;
  if (std::exchange(lost_told_, false) && hooks_.on_bridge) {
    hooks_.on_bridge(absl::OkStatus(), new_bridge);
  }
  registration_answered_ = false;
  Register();
}

void SessionLoop::HandleTurnedAway(const absl::Status& why) {
  const bool told = stage_ == Stage::kReady && !lost_told_;
  EndSession(why);
  // It has heard that a bridge was lost; this one will not have the client back.
  if (!told && bridge_.has_value() && hooks_.on_bridge) hooks_.on_bridge(why, false);
  stage_ = Stage::kTurnedAway;
  turned_away_ = why;
  book_.EndAll(why);
  Opened(why);
}

void SessionLoop::HandleRegistrationAnswer(const Message& answer) {
  registration_seq_ = 0;
  registration_answered_ = true;
  if (hooks_.on_registered) hooks_.on_registered(answer);
  Opened(absl::OkStatus());
}

void SessionLoop::SayHello() {
  Hello hello;
  hello.role = options_.role;
  hello.name = options_.name;
  hello.run = options_.bridge.run;
  hello.software = kSoftware;
  const absl::StatusOr<uint64_t> seq = SendNumbered(std::move(hello));
  // Only a queue that is full without a reader: the connection breaks or its queue empties, and
  // either is a new connection.
  if (!seq.ok()) return;
  hello_seq_ = *seq;
  stage_ = Stage::kGreeting;
}

void SessionLoop::Register() {
  std::optional<Message> registration;
  if (hooks_.registration) registration = hooks_.registration(welcome());
  if (!registration.has_value()) {
    registration_answered_ = true;
    return Opened(absl::OkStatus());
  }
  const absl::StatusOr<uint64_t> seq = SendNumbered(*registration);
  if (seq.ok()) {
    registration_seq_ = *seq;
    return;
  }
  Opened(seq.status());
  HandleTurnedAway(seq.status());
}

void SessionLoop::SendWaiting() {
  if (stage_ != Stage::kReady || !registration_answered_) return;
  book_.SendWaiting([this](const Message& message) { return SendNumbered(message); });
}

absl::StatusOr<uint64_t> SessionLoop::SendNumbered(const Message& message) {
  const uint64_t seq = newest_seq_ + 1;
  LOCKSTEP_RETURN_IF_ERROR(channel_->Send({incarnation_, seq, 0, message}));
  return newest_seq_ = seq;
}

void SessionLoop::EndSession(const absl::Status& why) {
  const bool had_one = stage_ == Stage::kReady;
  stage_ = Stage::kAway;
  registration_seq_ = 0;
  registration_answered_ = false;
  if (had_one && !std::exchange(lost_told_, true) && hooks_.on_bridge) {
    hooks_.on_bridge(why, false);
  }
  book_.BridgeLost();
}

void SessionLoop::GiveUp(const absl::Status& why) {
  const absl::Status status(
      why.code(), absl::StrCat("this client's connection cannot be used any more: ", why.message(),
                               "; start the client again"));
  HandleTurnedAway(status);
  const std::lock_guard<std::mutex> lock(mutex_);
  ended_ = status;
  stop_ = true;
}

void SessionLoop::SayGoodbye() {
  if (stage_ == Stage::kReady) channel_->Send({incarnation_, 0, 0, Goodbye{}}).IgnoreError();
  std::vector<SessionCommand> commands;
  absl::Status why = absl::CancelledError("the session was closed before the answer came");
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!ended_.has_value()) ended_ = why;
    why = *ended_;
    commands.swap(commands_);
  }
  book_.EndAll(why);
  for (SessionCommand& command : commands) {
    if (OpenRequest* request = std::get_if<OpenRequest>(&command)) request->answer(why);
  }
}

}  // namespace lockstep::transport
