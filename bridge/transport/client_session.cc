#include "bridge/transport/client_session.h"

#include <sys/random.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bridge/transport/session_loop.h"
#include "policy/status_macros.h"

namespace lockstep::transport {
namespace {

absl::StatusOr<Incarnation> NewIncarnation() {
  Incarnation incarnation;
  const ssize_t got = ::getrandom(incarnation.data(), incarnation.size(), 0);
  if (got != static_cast<ssize_t>(incarnation.size())) {
    return absl::ErrnoToStatus(errno, "getrandom, for this client's incarnation");
  }
  return incarnation;
}

absl::StatusOr<Address> AddressOf(const BridgeAddress& bridge) {
  if (!bridge.address.empty()) return ParseAddress(bridge.address);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string address, DefaultBridgeAddress());
  return ParseAddress(address);
}

// Shared with the answer, which may come after the caller has gone.
struct Waiter {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<absl::StatusOr<Message>> answer;
};

}  // namespace

class ClientSession::Impl {
 public:
  Impl(Address address, SessionOptions options, SessionHooks hooks, const Incarnation& incarnation)
      : loop(std::move(address), std::move(options), std::move(hooks), incarnation) {}

  uint64_t Request(Message message, Answer answer, RequestOptions options) {
    const uint64_t id = next_id.fetch_add(1, std::memory_order_relaxed);
    loop.Enqueue(OpenRequest{id, std::move(message), std::move(answer), std::move(options)});
    return id;
  }

  SessionLoop loop;
  std::atomic<uint64_t> next_id{1};
};

ClientSession::ClientSession(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ClientSession::~ClientSession() = default;

absl::StatusOr<std::unique_ptr<ClientSession>> ClientSession::Open(SessionOptions options,
                                                                   SessionHooks hooks) {
  LOCKSTEP_ASSIGN_OR_RETURN(Address address, AddressOf(options.bridge));
  LOCKSTEP_ASSIGN_OR_RETURN(const Incarnation incarnation, NewIncarnation());
  auto impl =
      std::make_unique<Impl>(std::move(address), std::move(options), std::move(hooks), incarnation);
  LOCKSTEP_RETURN_IF_ERROR(impl->loop.Open());
  return std::unique_ptr<ClientSession>(new ClientSession(std::move(impl)));
}

void ClientSession::Post(Message message) { impl_->loop.Enqueue(PostCommand{std::move(message)}); }

void ClientSession::Request(Message message, Answer answer, RequestOptions options) {
  impl_->Request(std::move(message), std::move(answer), std::move(options));
}

absl::StatusOr<Message> ClientSession::Call(Message message, absl::Duration timeout,
                                            RequestOptions options) {
  if (impl_->loop.OnThisThread()) {
    return absl::InternalError("Call would wait for its own thread; use Request in a hook");
  }
  auto waiter = std::make_shared<Waiter>();
  const uint64_t id = impl_->Request(
      std::move(message),
      [waiter](absl::StatusOr<Message> answer) {
        const std::lock_guard<std::mutex> lock(waiter->mutex);
        waiter->answer = std::move(answer);
        waiter->changed.notify_all();
      },
      std::move(options));
  std::unique_lock<std::mutex> lock(waiter->mutex);
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
  if (!waiter->changed.wait_until(lock, deadline, [&] { return waiter->answer.has_value(); })) {
    lock.unlock();
    impl_->loop.Enqueue(CancelCommand{id});
    return absl::DeadlineExceededError(absl::StrCat("the bridge at ", address().ToString(),
                                                    " did not answer within ",
                                                    absl::FormatDuration(timeout)));
  }
  absl::StatusOr<Message> answer = *std::move(waiter->answer);
  if (!answer.ok()) return answer;
  if (const Refused* refused = std::get_if<Refused>(&*answer)) {
    return absl::FailedPreconditionError(RefusalsText(*refused));
  }
  return answer;
}

void ClientSession::RegisterAgain() { impl_->loop.Enqueue(RegisterCommand{}); }

const Incarnation& ClientSession::incarnation() const { return impl_->loop.incarnation(); }
Address ClientSession::address() const { return impl_->loop.address(); }
Welcome ClientSession::welcome() const { return impl_->loop.welcome(); }

std::string RefusalsText(const Refused& refused) {
  if (refused.refusals.empty()) return "refused without a reason";
  return FormatRefusals(refused.refusals);
}

}  // namespace lockstep::transport
