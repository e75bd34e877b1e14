#ifndef LOCKSTEP_BRIDGE_LOOP_CONTROL_SOCKET_H_
#define LOCKSTEP_BRIDGE_LOOP_CONTROL_SOCKET_H_

// The bridge's control port: a ROUTER on an ipc socket file in an owner-only folder, or on tcp
// behind CURVE and an allow-list. Never waits. One thread uses it.
//
// libzmq offers no way to close one connection of a ROUTER: a peer that is turned away is
// forgotten (PeerTable) and is a stranger when it speaks again. A frame above
// kMaxControlFrameBytes makes libzmq close its connection before anything is read.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(auto socket, ControlSocket::Bind(address, std::nullopt));
//   LOCKSTEP_ASSIGN_OR_RETURN(auto routed, socket->Receive());

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "bridge/auth/zap.h"
#include "bridge/transport/address.h"
#include "bridge/wire/zmq_socket.h"

namespace lockstep::loop {

// For tcp: who the bridge is, and who may come.
struct ServerKeys {
  auth::KeyPair pair;
  auth::AllowList allowed;
};

class ControlSocket {
 public:
  // Messages queued for one peer and not yet sent; one that reads too slowly is given up.
  static constexpr int kSendHighWaterMark = 8'192;
  // Received of one peer and not yet read.
  static constexpr int kReceiveHighWaterMark = 2'048;
  // How long the destructor waits for the last answers to leave.
  static constexpr int kLingerMs = 2'000;

  // AlreadyExists when a bridge listens there or the file is no socket. PermissionDenied unless
  // the socket's folder is owner-only. InvalidArgument for an address no peer could be told.
  static absl::Status CheckFree(const transport::Address& address);

  // Errors as CheckFree; a socket file that a dead bridge left is replaced. InvalidArgument for
  // tcp without keys.
  static absl::StatusOr<std::unique_ptr<ControlSocket>> Bind(const transport::Address& address,
                                                             std::optional<ServerKeys> keys);

  // Removes the socket file if it is still ours.
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  // As bound: with the port that was chosen.
  const std::string& endpoint() const { return endpoint_; }

  // ZeroMQ sockets to poll for ZMQ_POLLIN.
  std::vector<void*> Sockets() const;

  // Nullopt when nothing is there.
  absl::StatusOr<std::optional<wire::RoutedFrame>> Receive();

  // Unavailable when the peer's queue is full, NotFound when it is gone.
  absl::Status Send(absl::string_view routing_id, absl::Span<const uint8_t> frame);

  // Lets in, or not, who waits at the door of a tcp port; at most `limit` verdicts.
  std::vector<auth::ZapVerdict> JudgeWaiting(size_t limit);

 private:
  explicit ControlSocket(wire::ZmqContext context) : context_(std::move(context)) {}

  wire::ZmqContext context_;
  std::unique_ptr<auth::ZapHandler> zap_;  // tcp only
  std::optional<wire::ZmqSocket> router_;
  std::string endpoint_;
  std::string socket_file_;  // ipc only
  uint64_t socket_inode_ = 0;
};

}  // namespace lockstep::loop

#endif  // LOCKSTEP_BRIDGE_LOOP_CONTROL_SOCKET_H_
