// SelfTest of zap.h.

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "bridge/auth/zap.h"
#include "policy/status_macros.h"

namespace lockstep::auth {
namespace {

absl::StatusOr<wire::ZmqSocket> Knock(const wire::ZmqContext& context, const std::string& endpoint,
                                      const std::string& server_public, const KeyPair& keys) {
  LOCKSTEP_ASSIGN_OR_RETURN(wire::ZmqSocket client, wire::ZmqSocket::Create(context, ZMQ_DEALER));
  const auto with_nul = [](const std::string& key) {
    return absl::string_view(key.c_str(), key.size() + 1);
  };
  LOCKSTEP_RETURN_IF_ERROR(client.SetText(ZMQ_CURVE_SERVERKEY, with_nul(server_public)));
  LOCKSTEP_RETURN_IF_ERROR(client.SetText(ZMQ_CURVE_PUBLICKEY, with_nul(keys.public_key)));
  LOCKSTEP_RETURN_IF_ERROR(client.SetText(ZMQ_CURVE_SECRETKEY, with_nul(keys.secret_key)));
  LOCKSTEP_RETURN_IF_ERROR(client.Connect(endpoint));
  constexpr uint8_t kKnock[] = {'?'};
  LOCKSTEP_RETURN_IF_ERROR(client.Send(kKnock));
  return client;
}

}  // namespace

absl::Status SelfTest(const wire::ZmqContext& context, ZapHandler& handler,
                      std::chrono::steady_clock::time_point deadline) {
  LOCKSTEP_ASSIGN_OR_RETURN(const KeyPair server_keys, GenerateKeyPair());
  LOCKSTEP_ASSIGN_OR_RETURN(const KeyPair stranger_keys, GenerateKeyPair());
  LOCKSTEP_ASSIGN_OR_RETURN(const KeyPair friend_keys, GenerateKeyPair());
  LOCKSTEP_ASSIGN_OR_RETURN(wire::ZmqSocket server, wire::ZmqSocket::Create(context, ZMQ_ROUTER));
  LOCKSTEP_RETURN_IF_ERROR(handler.Secure(server, server_keys));
  LOCKSTEP_RETURN_IF_ERROR(server.Bind("tcp://127.0.0.1:0"));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string endpoint, server.LastEndpoint());
  LOCKSTEP_ASSIGN_OR_RETURN(const wire::ZmqSocket stranger,
                            Knock(context, endpoint, server_keys.public_key, stranger_keys));
  LOCKSTEP_ASSIGN_OR_RETURN(const wire::ZmqSocket known,
                            Knock(context, endpoint, server_keys.public_key, friend_keys));

  struct Admitting {
    Admitting(std::string& key, const std::string& value) : key(key) { key = value; }
    ~Admitting() { key.clear(); }
    std::string& key;
  };
  const Admitting admitting(handler.self_test_key_, friend_keys.public_key);
  bool stranger_refused = false;
  bool friend_came = false;
  while (!stranger_refused || !friend_came) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      return absl::DeadlineExceededError(
          absl::StrCat("key check: after the given time the unlisted key was ",
                       stranger_refused ? "refused" : "not judged", " and the listed one ",
                       friend_came ? "admitted" : "not admitted", "; nothing was bound"));
    }
    zmq_pollitem_t items[] = {{handler.socket().get(), 0, ZMQ_POLLIN, 0},
                              {server.get(), 0, ZMQ_POLLIN, 0}};
    if (zmq_poll(items, 2, static_cast<long>(left.count())) < 0 && zmq_errno() != EINTR) {
      return wire::ZmqError("zmq_poll");
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<ZapVerdict> verdict, handler.HandleOne());
    if (verdict.has_value() && verdict->public_key == stranger_keys.public_key) {
      stranger_refused = !verdict->admitted;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<wire::RoutedFrame> knock,
                              wire::TryReceiveRouted(server));
    if (!knock.has_value()) continue;
    const absl::StatusOr<std::string> name = AuthenticatedName(knock->frame.body);
    if (!name.ok() || *name != kSelfTestUserId) {
      return absl::PermissionDeniedError(
          "key check: an unlisted key was let in; nothing was bound. Does another part of this "
          "process run a ZAP handler, or none?");
    }
    friend_came = true;
  }
  return absl::OkStatus();
}

}  // namespace lockstep::auth
