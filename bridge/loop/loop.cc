#include "bridge/loop/loop.h"

#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bridge/loop/stop_signals.h"
#include "policy/status_macros.h"

namespace lockstep::loop {
namespace {

constexpr int64_t kLongestWaitMs = 60'000;

static_assert(Loop::kMaxMessagesPerBatch < core::kMaxRecentDecisions);

// The system's randomness is there from boot on; without it no key would be one.
void FillRandom(uint8_t* bytes, size_t size) {
  while (size > 0) {
    const ssize_t got = ::getrandom(bytes, size, 0);
    if (got < 0 && errno != EINTR) std::abort();
    if (got < 0) continue;
    bytes += got;
    size -= static_cast<size_t>(got);
  }
}

int64_t MonotonicMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A dual-stack socket shows an IPv4 address as [::ffff:A.B.C.D].
std::string PlainAddress(const std::string& address) {
  constexpr char kMapped[] = "tcp://[::ffff:";
  const size_t end = address.find("]:");
  if (!absl::StartsWith(address, kMapped) || end == std::string::npos) return address;
  const size_t begin = sizeof(kMapped) - 1;
  return absl::StrCat("tcp://", address.substr(begin, end - begin), address.substr(end + 1));
}

template <typename T>
void Append(std::vector<T>& to, std::vector<T>&& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

std::array<uint8_t, 32> Entropy::Take() {
  std::array<uint8_t, 32> bytes;
  if (used_ + bytes.size() > pool_.size()) {
    FillRandom(pool_.data(), pool_.size());
    used_ = 0;
  }
  std::memcpy(bytes.data(), pool_.data() + used_, bytes.size());
  used_ += bytes.size();
  return bytes;
}

Loop::Loop(LoopOptions options, std::unique_ptr<ledger::Ledger> ledger)
    : options_(std::move(options)),
      log_(options_.log_level),
      spool_(options_.state_dir),
      ledger_(std::move(ledger)) {}

Loop::~Loop() = default;

absl::StatusOr<std::unique_ptr<Loop>> Loop::Create(LoopOptions options,
                                                   std::unique_ptr<ledger::Ledger> ledger) {
  std::unique_ptr<Loop> loop(new Loop(std::move(options), std::move(ledger)));
  LOCKSTEP_RETURN_IF_ERROR(loop->Open());
  return loop;
}

absl::Status Loop::Open() {
  core::Config& config = options_.config;
  const bool ipc = options_.listen.kind == transport::Address::Kind::kIpc;
  LOCKSTEP_ASSIGN_OR_RETURN(control_,
                            ControlSocket::Bind(options_.listen, std::move(options_.keys)));
  config.listen = control_->endpoint();
  if (ipc) {
    config.fd_socket_path = transport::FdSocketPath(options_.listen);
    LOCKSTEP_ASSIGN_OR_RETURN(transport::FdServer server,
                              transport::FdServer::Listen(config.fd_socket_path, store_));
    descriptors_.emplace(std::move(server));
  }
  FillRandom(config.bulk_key.data(), config.bulk_key.size());
  FillRandom(config.incarnation.data(), config.incarnation.size());
  const std::string host = ipc ? "127.0.0.1" : options_.listen.host;
  LOCKSTEP_ASSIGN_OR_RETURN(bulk_, transport::BulkServer::Listen(absl::StrCat("tcp://", host, ":0"),
                                                                 config.bulk_key, store_));
  config.bulk_address = PlainAddress(bulk_->address());
  config.ticket_key = ledger_->ticket_key();
  config.boot = ledger_->boot();
  LOCKSTEP_ASSIGN_OR_RETURN(core::RecoveredState recovered, ledger_->Recover());
  core_ = std::make_unique<core::Core>(config, std::move(recovered));
  LOCKSTEP_ASSIGN_OR_RETURN(mailbox_, Mailbox::Create());
  digests_ = std::make_unique<Worker>(*mailbox_);
  disk_ = std::make_unique<Worker>(*mailbox_);
  unmapping_ = std::make_unique<Worker>(*mailbox_);
  return absl::OkStatus();
}

absl::Status Loop::Run() {
  batch_.outputs = core_->Start(Now());
  LOCKSTEP_RETURN_IF_ERROR(Commit());
  while (!done_) {
    LOCKSTEP_RETURN_IF_ERROR(Wait());
    LOCKSTEP_RETURN_IF_ERROR(TakeSignals());
    TakeFollowUps();
    TakeMailbox();
    TakeDescriptors();
    TakeBulk();
    TakeVerdicts();
    LOCKSTEP_RETURN_IF_ERROR(TakeControl());
    TickIfDue();
    LOCKSTEP_RETURN_IF_ERROR(Commit());
  }
  return absl::OkStatus();
}

core::Time Loop::Now() const {
  return {MonotonicMs(), std::chrono::duration_cast<std::chrono::milliseconds>(
                             std::chrono::system_clock::now().time_since_epoch())
                             .count()};
}

int64_t Loop::WaitMs() const {
  if (control_has_more_ || bulk_readable_ || !follow_ups_.empty()) return 0;
  int64_t due_ms = grace_until_ms_.value_or(core_->NextDeadlineMs());
  due_ms = std::min(due_ms, meter_.NextDueMs());
  const int64_t now_ms = MonotonicMs();
  if (due_ms <= now_ms) return 0;
  return std::min(due_ms - now_ms, kLongestWaitMs);
}

absl::Status Loop::Wait() {
  std::vector<zmq_pollitem_t> items;
  const auto add_fd = [&items](int fd) { items.push_back({nullptr, fd, ZMQ_POLLIN, 0}); };
  for (void* socket : control_->Sockets()) items.push_back({socket, 0, ZMQ_POLLIN, 0});
  add_fd(mailbox_->fd());
  if (options_.stop_fd >= 0) add_fd(options_.stop_fd);
  const size_t bulk_begin = items.size();
  for (void* socket : bulk_->Sockets()) items.push_back({socket, 0, ZMQ_POLLIN, 0});
  const size_t fds_begin = items.size();
  if (descriptors_.has_value()) {
    for (const int fd : descriptors_->Fds()) add_fd(fd);
  }
  const int ready = zmq_poll(items.data(), static_cast<int>(items.size()), WaitMs());
  if (ready < 0 && zmq_errno() != EINTR) return wire::ZmqError("zmq_poll");
  readable_descriptors_.clear();
  if (ready <= 0) return absl::OkStatus();
  for (size_t i = bulk_begin; i < items.size(); ++i) {
    if (items[i].revents == 0) continue;
    if (i < fds_begin) {
      bulk_readable_ = true;
    } else {
      readable_descriptors_.push_back(items[i].fd);
    }
  }
  return absl::OkStatus();
}

absl::Status Loop::TakeSignals() {
  while (const int signal = options_.stop_fd < 0 ? 0 : TakeStopSignal(options_.stop_fd)) {
    const std::string name = signal == SIGTERM ? "SIGTERM" : "SIGINT";
    if (std::exchange(draining_, true)) {
      return absl::CancelledError(absl::StrCat("stopped at once by a second signal (", name, ")"));
    }
    log_.Write(
        LogLevel::kInfo, "signal",
        {{"name", name}, {"text", "answering what is in flight; a second one ends at once"}});
    Step(core::Drain{});
  }
  return absl::OkStatus();
}

void Loop::TakeFollowUps() {
  std::deque<core::InputBody> bodies = std::exchange(follow_ups_, {});
  for (core::InputBody& body : bodies) Step(std::move(body));
}

void Loop::TakeMailbox() {
  for (core::InputBody& body : mailbox_->Take()) {
    const core::SpoolLoaded* loaded = std::get_if<core::SpoolLoaded>(&body);
    // The core forgets an arena that could not be filled.
    if (loaded != nullptr && !loaded->error.empty()) Close(loaded->arena_id);
    Step(std::move(body));
  }
}

void Loop::TakeDescriptors() {
  for (const int fd : readable_descriptors_) {
    for (transport::FdEvent& event : descriptors_->OnReadable(fd)) {
      if (auto* put = std::get_if<transport::ArenaPut>(&event)) {
        Step(core::ArenaArrived{put->arena_id, put->incarnation, put->bytes});
      } else if (auto* left = std::get_if<transport::FdPeerLeft>(&event)) {
        for (const core::PeerId peer : peers_.OfIncarnation(left->incarnation)) {
          Step(core::PeerGone{peer, left->reason});
          batch_.leaving.push_back(peer);
        }
      } else {
        meter_.Add(RefusalCode::kBadMessage, "descriptor socket", 1,
                   std::get<transport::FdGarbage>(event).reason);
      }
    }
  }
  readable_descriptors_.clear();
}

void Loop::TakeBulk() {
  if (!bulk_readable_) return;
  const transport::BulkEvents events = bulk_->HandleReadable();
  bulk_readable_ = events.more;
  for (const auto& [arena, mark] : events.upload_marks) Step(core::UploadMark{arena, mark});
  for (const auto& [incarnation, bytes] : events.bytes_sent) {
    Step(core::BytesSent{incarnation, bytes});
  }
  meter_.Add(RefusalCode::kBadMessage, "bulk port", events.malformed, "no chunk frame");
  meter_.Add(RefusalCode::kUnauthorised, "bulk port", events.unauthorised,
             "a password or MAC of another run");
  meter_.Add(RefusalCode::kLimitExceeded, "bulk port", events.over_limit,
             "more chunks asked for than a peer may have in flight");
}

void Loop::TakeVerdicts() {
  for (const auth::ZapVerdict& verdict : control_->JudgeWaiting(kMaxVerdictsPerBatch)) {
    if (verdict.admitted) {
      log_.Write(LogLevel::kDebug, "admitted",
                 {{"peer", verdict.user_id}, {"address", verdict.address}});
    } else {
      meter_.Add(RefusalCode::kUnauthorised, "control port", 1,
                 absl::StrCat("from ", verdict.address, ": ", verdict.reason));
    }
  }
  for (core::MalformedMessage& report : meter_.TakeDue(MonotonicMs())) Step(std::move(report));
}

absl::Status Loop::TakeControl() {
  control_has_more_ = false;
  size_t bytes = 0;
  for (size_t i = 0; i < kMaxMessagesPerBatch && bytes < kMaxBytesPerBatch; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<wire::RoutedFrame> routed, control_->Receive());
    if (!routed.has_value()) return absl::OkStatus();
    bytes += routed->frame.body.bytes().size();
    LOCKSTEP_RETURN_IF_ERROR(HandleFrame(*routed));
  }
  control_has_more_ = true;
  return absl::OkStatus();
}

void Loop::TickIfDue() {
  const int64_t now_ms = MonotonicMs();
  const int64_t due_ms = core_->NextDeadlineMs();
  if (now_ms < due_ms) {
    batches_since_due_ = 0;
    grace_until_ms_.reset();
    return;
  }
  if (control_has_more_ && ++batches_since_due_ < kMaxBatchesBeforeTick) return;
  if (now_ms - due_ms > kLateTickMs && !grace_until_ms_.has_value()) {
    grace_until_ms_ = now_ms + kLateGraceMs;
  }
  if (grace_until_ms_.has_value() && now_ms < *grace_until_ms_) return;
  Step(core::Tick{});
  batches_since_due_ = 0;
  grace_until_ms_.reset();
}

void Loop::Step(core::InputBody body) {
  core::Outputs outputs = core_->Step({entropy_.Take(), std::move(body)}, Now());
  Append(batch_.outputs.records, std::move(outputs.records));
  Append(batch_.outputs.sends, std::move(outputs.sends));
  Append(batch_.outputs.effects, std::move(outputs.effects));
}

}  // namespace lockstep::loop
