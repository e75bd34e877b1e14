#ifndef LOCKSTEP_BRIDGE_WIRE_ZMQ_SOCKET_H_
#define LOCKSTEP_BRIDGE_WIRE_ZMQ_SOCKET_H_

// Owners of ZeroMQ's handles, and the one way to receive: a body of a single frame.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(ZmqContext context, ZmqContext::Create());
//   LOCKSTEP_ASSIGN_OR_RETURN(ZmqSocket socket, ZmqSocket::Create(context, ZMQ_ROUTER));
//   LOCKSTEP_RETURN_IF_ERROR(socket.SetInt64(ZMQ_MAXMSGSIZE, kMaxControlFrameBytes));
//   LOCKSTEP_RETURN_IF_ERROR(socket.Bind("ipc://..."));
//   LOCKSTEP_ASSIGN_OR_RETURN(std::optional<RoutedFrame> in, TryReceiveRouted(socket));
//
// A socket is used by one thread at a time and dies before its context. Share no memory by
// virtue of a message alone: thread checkers do not see through libzmq.

#include <zmq.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lockstep::wire {

// `what` failed with zmq's errno. EAGAIN is Unavailable, ETERM Cancelled, EADDRINUSE
// AlreadyExists, EACCES PermissionDenied, the rest Internal.
absl::Status ZmqError(absl::string_view what);

class ZmqContext {
 public:
  static absl::StatusOr<ZmqContext> Create();

  void* get() const { return context_.get(); }

 private:
  struct Terminate {
    void operator()(void* context) const { zmq_ctx_term(context); }
  };
  explicit ZmqContext(void* context) : context_(context) {}

  // Waits for the context's sockets to be closed.
  std::unique_ptr<void, Terminate> context_;
};

class ZmqMessage {
 public:
  ZmqMessage() { zmq_msg_init(&message_); }
  ZmqMessage(ZmqMessage&& other) noexcept;
  ZmqMessage& operator=(ZmqMessage&& other) noexcept;
  ~ZmqMessage() { zmq_msg_close(&message_); }

  zmq_msg_t* get() { return &message_; }
  // Valid while this message is; often not aligned.
  absl::Span<const uint8_t> bytes() const;
  absl::string_view text() const;
  bool more() const { return zmq_msg_more(&message_) != 0; }
  // A property of the connection ("User-Id", "Peer-Address"); empty when absent.
  std::string Property(const char* name) const;

 private:
  // zmq's readers take a non-const pointer and do not change what it points to.
  mutable zmq_msg_t message_;
};

class ZmqSocket {
 public:
  // `type` is a ZMQ_* socket type. Linger is 0: closing drops what was not sent.
  static absl::StatusOr<ZmqSocket> Create(const ZmqContext& context, int type);

  void* get() const { return socket_.get(); }
  absl::Status SetInt(int option, int value);
  absl::Status SetInt64(int option, int64_t value);
  absl::Status SetText(int option, absl::string_view value);
  absl::Status Bind(const std::string& address);
  absl::Status Connect(const std::string& address);
  // With the port that was chosen, for a bind to port 0.
  absl::StatusOr<std::string> LastEndpoint() const;

  // Never waits; Unavailable when the queue is full. `flags`: 0 or ZMQ_SNDMORE.
  absl::Status Send(absl::Span<const uint8_t> bytes, int flags = 0);
  // Never waits; nullopt when nothing is there.
  absl::StatusOr<std::optional<ZmqMessage>> TryReceive();

 private:
  struct Close {
    void operator()(void* socket) const { zmq_close(socket); }
  };
  explicit ZmqSocket(void* socket) : socket_(socket) {}

  std::unique_ptr<void, Close> socket_;
};

// What a peer sent. Our messages are one frame. Of a message with more, all but the first
// are dropped and counted: refuse it; the first stays only to tell whose connection it was.
struct BodyFrame {
  ZmqMessage body;
  uint64_t dropped_frames = 0;
};

// As received by a ROUTER: `routing_id` names a connection and is no identity (trust only
// bridge/auth's AuthenticatedName of the body).
struct RoutedFrame {
  std::string routing_id;
  BodyFrame frame;
};

// Never wait; nullopt when nothing is there.
absl::StatusOr<std::optional<BodyFrame>> TryReceiveBody(ZmqSocket& socket);
absl::StatusOr<std::optional<RoutedFrame>> TryReceiveRouted(ZmqSocket& router);

// To one peer of a ROUTER that has ZMQ_ROUTER_MANDATORY set: Unavailable when its queue is
// full, NotFound when it is gone.
absl::Status SendRouted(ZmqSocket& router, absl::string_view routing_id,
                        absl::Span<const uint8_t> body);

}  // namespace lockstep::wire

#endif  // LOCKSTEP_BRIDGE_WIRE_ZMQ_SOCKET_H_
