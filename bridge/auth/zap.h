#ifndef LOCKSTEP_BRIDGE_AUTH_ZAP_H_
#define LOCKSTEP_BRIDGE_AUTH_ZAP_H_

// Who is let in: the ZAP handler (ZeroMQ RFC 27) of a context. libzmq lets *everyone* in
// while no handler runs, so a CURVE server is made only through a handler (Secure), and
// SelfTest proves at start-up that it judges.
//
// Example, on the loop's thread:
//   LOCKSTEP_ASSIGN_OR_RETURN(auto zap, ZapHandler::Start(context, std::move(allow_list)));
//   LOCKSTEP_RETURN_IF_ERROR(SelfTest(context, *zap, deadline));
//   LOCKSTEP_RETURN_IF_ERROR(zap->Secure(router, bridge_keys));   // before Bind
//   LOCKSTEP_RETURN_IF_ERROR(router.Bind("tcp://..."));
//   ... poll zap->socket() beside the others; when readable: zap->HandleOne()
//   ... of a received message: AuthenticatedName(frame.body)
//
// Connections wait while the thread does not come to HandleOne.

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bridge/auth/allow_list.h"
#include "bridge/auth/keys.h"
#include "bridge/wire/zmq_socket.h"

namespace lockstep::auth {

// The name under which SelfTest's own key comes in; only to SelfTest's own server.
inline constexpr char kSelfTestUserId[] = "self-test:operator";

// What the handler said to one connection, for the log and the counts.
struct ZapVerdict {
  bool admitted = false;
  std::string user_id;     // "NAME:ROLE" when admitted
  std::string public_key;  // Z85; empty when none was shown
  std::string address;     // the peer's
  std::string reason;      // why not, with what to do
};

class ZapHandler {
 public:
  // AlreadyExists when the context has a handler.
  static absl::StatusOr<std::unique_ptr<ZapHandler>> Start(const wire::ZmqContext& context,
                                                           AllowList allowed);

  ZapHandler(const ZapHandler&) = delete;
  ZapHandler& operator=(const ZapHandler&) = delete;

  // Makes `server` a CURVE server with these keys, judged by this handler. Before its Bind,
  // and in the handler's context.
  absl::Status Secure(wire::ZmqSocket& server, const KeyPair& keys) const;

  // Judges one waiting connection; nullopt when none waits.
  absl::StatusOr<std::optional<ZapVerdict>> HandleOne();

  // To poll for ZMQ_POLLIN.
  const wire::ZmqSocket& socket() const { return socket_; }

  // Another list for the connections to come; those that are there stay.
  void Replace(AllowList allowed) { allowed_ = std::move(allowed); }

 private:
  friend absl::Status SelfTest(const wire::ZmqContext& context, ZapHandler& handler,
                               std::chrono::steady_clock::time_point deadline);

  ZapHandler(wire::ZmqSocket socket, AllowList allowed);
  ZapVerdict Judge(const std::string& domain, const std::string& mechanism,
                   const std::string& credentials) const;

  wire::ZmqSocket socket_;  // REP
  AllowList allowed_;
  std::string self_test_key_;  // admitted too while SelfTest runs
};

// Starts a throw-away CURVE server on loopback in `context`, knocks with a random key and
// with an admitted one, and serves `handler` meanwhile. OK when exactly the second came in,
// under its name. PermissionDenied when the first came in, DeadlineExceeded when nothing was
// decided in time: bind nothing then.
absl::Status SelfTest(const wire::ZmqContext& context, ZapHandler& handler,
                      std::chrono::steady_clock::time_point deadline);

// "NAME:ROLE" as the handler admitted the connection this message came over.
// Unauthenticated when no handler did (an ipc peer, whom the folder's mode admits).
absl::StatusOr<std::string> AuthenticatedName(const wire::ZmqMessage& message);

}  // namespace lockstep::auth

#endif  // LOCKSTEP_BRIDGE_AUTH_ZAP_H_
