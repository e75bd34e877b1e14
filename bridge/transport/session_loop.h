#ifndef LOCKSTEP_BRIDGE_TRANSPORT_SESSION_LOOP_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_SESSION_LOOP_H_

// The thread behind a ClientSession. Internal to client_session.
//
// What the thread is doing:
//   kAway     no connection; requests wait
//   kGreeting Hello was sent
//   kReady    Welcome came; a registration may be under way, and until its answer requests wait
//   kTurnedAway  the bridge refused the Hello; requests end with its words until there is a
//             new connection
// Whatever ends a session (the connection broke or was made anew, another incarnation answers,
// unknown_peer) leads back to kGreeting; a Hello is said once for each.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bridge/transport/address.h"
#include "bridge/transport/client_session.h"
#include "bridge/transport/control_channel.h"
#include "bridge/transport/request_book.h"
#include "policy/protocol.h"

namespace lockstep::transport {

struct PostCommand {
  Message message;
};
struct CancelCommand {
  uint64_t id = 0;
};
struct RegisterCommand {};
using SessionCommand = std::variant<PostCommand, OpenRequest, CancelCommand, RegisterCommand>;

class SessionLoop {
 public:
  SessionLoop(Address address, SessionOptions options, SessionHooks hooks,
              const Incarnation& incarnation)
      : address_(std::move(address)),
        options_(std::move(options)),
        hooks_(std::move(hooks)),
        incarnation_(incarnation) {}
  // Says Goodbye; requests end with Cancelled.
  ~SessionLoop();
  SessionLoop(const SessionLoop&) = delete;
  SessionLoop& operator=(const SessionLoop&) = delete;

  // Connects, starts the thread and waits until the bridge has answered. Errors as
  // ClientSession::Open.
  absl::Status Open();

  // From any thread.
  void Enqueue(SessionCommand command);
  bool OnThisThread() const { return std::this_thread::get_id() == thread_.get_id(); }
  Welcome welcome() const;
  const Address& address() const { return address_; }
  const Incarnation& incarnation() const { return incarnation_; }

 private:
  enum class Stage { kAway, kGreeting, kReady, kTurnedAway };

  // All of these run on the thread.
  void Run();
  void TakeCommands();
  void Take(PostCommand command);
  void Take(OpenRequest command);
  void Take(CancelCommand command);
  void Take(RegisterCommand command);
  std::chrono::steady_clock::time_point NextWake() const;
  void PingIfDue();
  void NoticeConnection();
  void HandleReceiveError(const absl::Status& error);
  void Handle(Envelope envelope);
  void HandleWelcome(const Envelope& envelope, const Welcome& welcome);
  void HandleTurnedAway(const absl::Status& why);
  void HandleRegistrationAnswer(const Message& answer);
  void SayHello();
  void Register();
  void SendWaiting();
  void EndSession(const absl::Status& why);
  void GiveUp(const absl::Status& why);
  void SayGoodbye();
  absl::StatusOr<uint64_t> SendNumbered(const Message& message);
  void Opened(const absl::Status& status);

  const Address address_;
  const SessionOptions options_;
  const SessionHooks hooks_;
  const Incarnation incarnation_;
  std::unique_ptr<ControlChannel> channel_;

  // The thread's own.
  Stage stage_ = Stage::kAway;
  RequestBook book_;
  uint64_t newest_seq_ = 0;
  uint64_t hello_seq_ = 0;
  uint64_t registration_seq_ = 0;  // 0: none is under way
  bool registration_answered_ = false;
  uint64_t connections_seen_ = 0;
  bool lost_told_ = false;  // on_bridge heard that it is gone, and not yet that it is back
  std::optional<Incarnation> bridge_;
  absl::Status turned_away_;
  std::chrono::milliseconds ping_every_{0};
  std::chrono::steady_clock::time_point next_ping_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable opened_changed_;
  std::optional<absl::Status> opened_;
  std::vector<SessionCommand> commands_;
  bool stop_ = false;
  std::optional<absl::Status> ended_;  // what a request meets once the thread takes none
  Welcome welcome_;

  std::thread thread_;
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_SESSION_LOOP_H_
