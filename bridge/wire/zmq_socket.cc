#include "bridge/wire/zmq_socket.h"

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"

namespace lockstep::wire {

absl::Status ZmqError(absl::string_view what) {
  const int code = zmq_errno();
  const std::string text = absl::StrCat(what, ": ", zmq_strerror(code));
  switch (code) {
    case EAGAIN:
      return absl::UnavailableError(text);
    case EHOSTUNREACH:
      return absl::NotFoundError(text);
    case ETERM:
      return absl::CancelledError(text);
    case EADDRINUSE:
      return absl::AlreadyExistsError(text);
    case EACCES:
      return absl::PermissionDeniedError(text);
    default:
      return absl::InternalError(text);
  }
}

absl::StatusOr<ZmqContext> ZmqContext::Create() {
  void* context = zmq_ctx_new();
  if (context == nullptr) return ZmqError("zmq_ctx_new");
  return ZmqContext(context);
}

ZmqMessage::ZmqMessage(ZmqMessage&& other) noexcept {
  zmq_msg_init(&message_);
  zmq_msg_move(&message_, &other.message_);
}

ZmqMessage& ZmqMessage::operator=(ZmqMessage&& other) noexcept {
  if (this != &other) zmq_msg_move(&message_, &other.message_);
  return *this;
}

absl::Span<const uint8_t> ZmqMessage::bytes() const {
  return {static_cast<const uint8_t*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)};
}

absl::string_view ZmqMessage::text() const {
  return {static_cast<const char*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)};
}

std::string ZmqMessage::Property(const char* name) const {
  const char* value = zmq_msg_gets(&message_, name);
  return value == nullptr ? std::string() : std::string(value);
}

absl::StatusOr<ZmqSocket> ZmqSocket::Create(const ZmqContext& context, int type) {
  void* handle = zmq_socket(context.get(), type);
  if (handle == nullptr) return ZmqError("zmq_socket");
  ZmqSocket socket(handle);
  LOCKSTEP_RETURN_IF_ERROR(socket.SetInt(ZMQ_LINGER, 0));
  return socket;
}

absl::Status ZmqSocket::SetInt(int option, int value) {
  if (zmq_setsockopt(get(), option, &value, sizeof(value)) == 0) return absl::OkStatus();
  return ZmqError(absl::StrCat("zmq_setsockopt ", option, " to ", value));
}

absl::Status ZmqSocket::SetInt64(int option, int64_t value) {
  if (zmq_setsockopt(get(), option, &value, sizeof(value)) == 0) return absl::OkStatus();
  return ZmqError(absl::StrCat("zmq_setsockopt ", option, " to ", value));
}

absl::Status ZmqSocket::SetText(int option, absl::string_view value) {
  if (zmq_setsockopt(get(), option, value.data(), value.size()) == 0) return absl::OkStatus();
  return ZmqError(absl::StrCat("zmq_setsockopt ", option));  // the value may be a secret
}

absl::Status ZmqSocket::Bind(const std::string& address) {
  if (zmq_bind(get(), address.c_str()) == 0) return absl::OkStatus();
  return ZmqError(absl::StrCat("binding ", address));
}

absl::Status ZmqSocket::Connect(const std::string& address) {
  if (zmq_connect(get(), address.c_str()) == 0) return absl::OkStatus();
  return ZmqError(absl::StrCat("connecting to ", address));
}

absl::StatusOr<std::string> ZmqSocket::LastEndpoint() const {
  char buffer[512];
  size_t size = sizeof(buffer);
  if (zmq_getsockopt(get(), ZMQ_LAST_ENDPOINT, buffer, &size) != 0) {
    return ZmqError("zmq_getsockopt ZMQ_LAST_ENDPOINT");
  }
  return std::string(buffer);
}

absl::Status ZmqSocket::Send(absl::Span<const uint8_t> bytes, int flags) {
  while (zmq_send(get(), bytes.data(), bytes.size(), flags | ZMQ_DONTWAIT) < 0) {
    if (zmq_errno() != EINTR) return ZmqError("zmq_send");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ZmqMessage>> ZmqSocket::TryReceive() {
  ZmqMessage message;
  while (zmq_msg_recv(message.get(), get(), ZMQ_DONTWAIT) < 0) {
    if (zmq_errno() == EAGAIN) return std::optional<ZmqMessage>();
    if (zmq_errno() != EINTR) return ZmqError("zmq_msg_recv");
  }
  return std::optional<ZmqMessage>(std::move(message));
}

absl::StatusOr<std::optional<BodyFrame>> TryReceiveBody(ZmqSocket& socket) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::optional<ZmqMessage> message, socket.TryReceive());
  if (!message.has_value()) return std::optional<BodyFrame>();
  BodyFrame frame;
  // zmq hands over a message whole: once its first frame is here, so are the others.
  bool more = message->more();
  while (more) {
    LOCKSTEP_ASSIGN_OR_RETURN(std::optional<ZmqMessage> extra, socket.TryReceive());
    if (!extra.has_value()) return absl::InternalError("zmq announced a frame and has none");
    ++frame.dropped_frames;
    more = extra->more();
  }
  frame.body = *std::move(message);
  return std::optional<BodyFrame>(std::move(frame));
}

absl::StatusOr<std::optional<RoutedFrame>> TryReceiveRouted(ZmqSocket& router) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::optional<ZmqMessage> id, router.TryReceive());
  if (!id.has_value()) return std::optional<RoutedFrame>();
  RoutedFrame routed{.routing_id = std::string(id->text()), .frame = {}};
  if (!id->more()) return absl::InternalError("zmq gave a routing id without a body");
  LOCKSTEP_ASSIGN_OR_RETURN(std::optional<BodyFrame> frame, TryReceiveBody(router));
  if (!frame.has_value()) return absl::InternalError("zmq announced a body and has none");
  routed.frame = *std::move(frame);
  return std::optional<RoutedFrame>(std::move(routed));
}

absl::Status SendRouted(ZmqSocket& router, absl::string_view routing_id,
                        absl::Span<const uint8_t> body) {
  const absl::Span<const uint8_t> id(reinterpret_cast<const uint8_t*>(routing_id.data()),
                                     routing_id.size());
  LOCKSTEP_RETURN_IF_ERROR(router.Send(id, ZMQ_SNDMORE));
  return router.Send(body);
}

}  // namespace lockstep::wire
