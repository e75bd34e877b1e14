#ifndef LOCKSTEP_BRIDGE_TRANSPORT_CONTROL_CHANNEL_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_CONTROL_CHANNEL_H_

// A client's connection to the bridge: envelopes over a ZeroMQ DEALER, which reconnects by
// itself. Knows nothing of what the messages mean.
//
// Example, the client's thread:
//   LOCKSTEP_ASSIGN_OR_RETURN(auto channel, ControlChannel::Connect(address, std::nullopt));
//   LOCKSTEP_RETURN_IF_ERROR(channel->Send(hello));
//   for (;;) {
//     auto envelope = channel->Receive(std::chrono::steady_clock::now() + lease / 3);
//     if (!envelope.ok()) ...;          // one bad frame, or a refused key
//     else if (*envelope) Handle(**envelope);
//     TakeMyCommands();                 // another thread queued one and called Wake()
//   }
//
// Threads: one thread calls everything but Wake, which any thread may call.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bridge/transport/address.h"
#include "bridge/transport/unique_fd.h"
#include "bridge/wire/zmq_socket.h"
#include "policy/protocol.h"

namespace lockstep::transport {

// CURVE keys as 40 characters of Z85 (bridge/auth makes and loads them).
struct ClientKeys {
  std::string server_public;
  std::string client_public;
  std::string client_secret;
};

// Messages that wait in either direction before Send gives Unavailable and the bridge's
// sender stops.
inline constexpr int kControlHighWaterMark = 1'000;

class ControlChannel {
 public:
  // Returns at once, whether or not a bridge is there (BridgePresent tells). Keys are needed
  // for tcp and unused for ipc. InvalidArgument for an address or a key that cannot be used.
  static absl::StatusOr<std::unique_ptr<ControlChannel>> Connect(
      const Address& address, const std::optional<ClientKeys>& keys);

  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  // Queues; does not wait. Unavailable when the queue is full, ResourceExhausted when the
  // message is larger than any bridge takes.
  absl::Status Send(const Envelope& envelope);

  // The next message; nullopt when `deadline` passed, Wake was called, or the connection
  // changed (connections()). An error concerns one frame (InvalidArgument, or
  // wire::IsProtocolVersionError) or says that the bridge refused our key (PermissionDenied);
  // the channel stays usable. Internal or Cancelled: it does not.
  absl::StatusOr<std::optional<Envelope>> Receive(std::chrono::steady_clock::time_point deadline);

  // How long the destructor waits for queued messages to leave; 0 unless set. A client that
  // says Goodbye and closes sets a little.
  absl::Status SetLinger(std::chrono::milliseconds linger);

  // Makes the Receive in progress, or the next one, return.
  void Wake();

  // How often a connection was made (and authenticated), for noticing that one was lost: look
  // after every Receive, with a message too. At least the connection the message came over
  // is counted.
  uint64_t connections() const { return connections_; }
  bool connected() const { return connected_; }

 private:
  ControlChannel(wire::ZmqContext context, wire::ZmqSocket socket, wire::ZmqSocket monitor,
                 UniqueFd wake, bool uses_keys);

  absl::StatusOr<std::optional<Envelope>> TakeMessage();
  // Reads the monitor; true when the connection changed.
  absl::StatusOr<bool> TakeConnectionEvents();

  wire::ZmqContext context_;
  wire::ZmqSocket socket_;
  wire::ZmqSocket monitor_;
  UniqueFd wake_;  // eventfd
  uint64_t connections_ = 0;
  bool connected_ = false;
  bool uses_keys_;
  int failed_handshakes_ = 0;  // in a row
  absl::Status held_error_;    // of the connection, while a message was handed out first
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_CONTROL_CHANNEL_H_
