#ifndef LOCKSTEP_BRIDGE_TRANSPORT_CLIENT_SESSION_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_CLIENT_SESSION_H_

// A client's conversation with the bridge: one thread that owns the control channel, says
// Hello, registers, keeps the lease, matches answers to requests, and does it all again when
// the bridge was restarted. Trainers, samplers and operators are all built on it.
//
// Example, an operator:
//   SessionOptions options;
//   options.name = "cli";
//   LOCKSTEP_ASSIGN_OR_RETURN(auto session, ClientSession::Open(options, {}));
//   LOCKSTEP_ASSIGN_OR_RETURN(StatusReply status,
//                             session->Call<StatusReply>(StatusRequest{}, absl::Seconds(5)));
//
// Restarts of the bridge. The session notices one by another incarnation in an envelope, by
// Refused(unknown_peer), or by a new connection; it then says Hello and registers anew and
// sends every request that is still without an answer again, under a new number, unless the
// request says otherwise. While no bridge is there, requests wait.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "bridge/transport/control_channel.h"
#include "policy/protocol.h"

namespace lockstep::transport {

// Where the bridge is, and as whom to come.
struct BridgeAddress {
  std::string address;             // ipc://PATH or tcp://HOST:PORT; empty: DefaultBridgeAddress()
  std::string run;                 // must be the bridge's; empty: any
  std::optional<ClientKeys> keys;  // needed for tcp; bridge/auth/keys.h loads them
};

struct SessionOptions {
  BridgeAddress bridge;
  PeerRole role = PeerRole::kOperator;
  std::string name = "operator";
  // How long Open waits for Welcome, and for Registered where there is a registration.
  absl::Duration connect_timeout = absl::Seconds(5);
};

// All run on the session's thread and must not block. All may be empty.
struct SessionHooks {
  // The registration to send after a Welcome; none: operators.
  std::function<std::optional<Message>(const Welcome&)> registration;
  // Registered or Refused, each time one was answered.
  std::function<void(const Message&)> on_registered;
  // A message that answers no request (RoundStart, DropArena, Fence, ...; also Registered or
  // Refused when the bridge judges a sampler anew because a trainer came).
  std::function<void(const Message&)> on_message;
  // The bridge is gone (an error that says why; before requests end because of it) or is back (OK,
  // before the registration that follows; not for the first Welcome). Either way what was under way
  // (rounds, a publish that is not sealed) has ended at the bridge; back with `new_bridge` it knows
  // no arenas either. FailedPrecondition: the bridge that is there will not have this client
  // (another run, the name taken by a newer process, ...).
  std::function<void(const absl::Status& status, bool new_bridge)> on_bridge;
};

struct RequestOptions {
  // Off for what must not have a second effect (OperatorAct): a lost bridge ends the request
  // with Unavailable "outcome unknown".
  bool resend = true;
  // More than one answer may come (a rollout's `pending`, then its decision): the request ends
  // with the first for which this is true. Empty: the first.
  std::function<bool(const Message&)> is_last;
};

class ClientSession {
 public:
  // Any message with the request's number, Refused too, or the error that ended the request.
  // Runs on the session's thread.
  using Answer = std::function<void(absl::StatusOr<Message>)>;

  // Returns when the bridge has answered. Unavailable: none is there, with what to do;
  // FailedPrecondition: it refused this client, with the refusals' text (another run, another
  // protocol version, ...); PermissionDenied: the keys are not admitted. A refused registration
  // is not an error here: on_registered has it.
  static absl::StatusOr<std::unique_ptr<ClientSession>> Open(SessionOptions options,
                                                             SessionHooks hooks);

  // Says Goodbye; requests without an answer end with Cancelled.
  ~ClientSession();
  ClientSession(const ClientSession&) = delete;
  ClientSession& operator=(const ClientSession&) = delete;

  // The rest may be called from any thread.

  // Sends what has no answer; dropped while no bridge is there.
  void Post(Message message);

  void Request(Message message, Answer answer, RequestOptions options = {});

  // Waits for the answer; not from the session's thread. DeadlineExceeded after `timeout`;
  // FailedPrecondition with the refusals' text when the answer is Refused.
  absl::StatusOr<Message> Call(Message message, absl::Duration timeout,
                               RequestOptions options = {});

  // The same for one kind of answer; Internal when another came.
  template <typename Reply>
  absl::StatusOr<Reply> Call(Message message, absl::Duration timeout, RequestOptions options = {}) {
    absl::StatusOr<Message> answer = Call(std::move(message), timeout, std::move(options));
    if (!answer.ok()) return answer.status();
    if (Reply* reply = std::get_if<Reply>(&*answer)) return std::move(*reply);
    return absl::InternalError(
        "the bridge answered with another kind of message than was asked for");
  }

  // Registers anew with what hooks.registration returns now; on_registered has the answer.
  void RegisterAgain();

  const Incarnation& incarnation() const;
  Address address() const;
  Welcome welcome() const;  // of the bridge that is there, or was last

 private:
  class Impl;
  explicit ClientSession(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// "contract_mismatch: the samplers' ...; ..." for a status.
std::string RefusalsText(const Refused& refused);

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_CLIENT_SESSION_H_
