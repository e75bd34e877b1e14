#include "bridge/transport/control_channel.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/wire.h"
#include "policy/status_macros.h"

namespace lockstep::transport {
namespace {

constexpr char kMonitorAddress[] = "inproc://monitor";
constexpr int kMonitoredEvents =
    ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
    ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_DISCONNECTED;
constexpr int kReconnectMs = 50;
constexpr int kMaxReconnectMs = 1'000;
constexpr int kTcpHeartbeatMs = 2'000;
constexpr int kTcpHeartbeatTimeoutMs = 10'000;
constexpr size_t kZ85KeyCharacters = 40;
// A bridge that gets a message for another key hangs up without a word, and so does one that
// is killed; the first does it every time.
constexpr int kFailedHandshakesToReport = 3;

absl::Status SetKeys(wire::ZmqSocket& socket, const ClientKeys& keys) {
  for (const std::string* key : {&keys.server_public, &keys.client_public, &keys.client_secret}) {
    if (key->size() != kZ85KeyCharacters) {
      return absl::InvalidArgumentError(absl::StrCat("a CURVE key has ", kZ85KeyCharacters,
                                                     " characters of Z85, this one ", key->size()));
    }
  }
  // The terminating NUL belongs to the text form of a key.
  const auto with_nul = [](const std::string& key) {
    return absl::string_view(key.c_str(), key.size() + 1);
  };
  LOCKSTEP_RETURN_IF_ERROR(socket.SetText(ZMQ_CURVE_SERVERKEY, with_nul(keys.server_public)));
  LOCKSTEP_RETURN_IF_ERROR(socket.SetText(ZMQ_CURVE_PUBLICKEY, with_nul(keys.client_public)));
  return socket.SetText(ZMQ_CURVE_SECRETKEY, with_nul(keys.client_secret));
}

absl::Status Configure(wire::ZmqSocket& socket, const Address& address,
                       const std::optional<ClientKeys>& keys) {
  LOCKSTEP_RETURN_IF_ERROR(socket.SetInt(ZMQ_SNDHWM, kControlHighWaterMark));
  LOCKSTEP_RETURN_IF_ERROR(socket.SetInt(ZMQ_RCVHWM, kControlHighWaterMark));
  LOCKSTEP_RETURN_IF_ERROR(
      socket.SetInt64(ZMQ_MAXMSGSIZE, static_cast<int64_t>(wire::kMaxControlFrameBytes)));
  LOCKSTEP_RETURN_IF_ERROR(socket.SetInt(ZMQ_RECONNECT_IVL, kReconnectMs));
  LOCKSTEP_RETURN_IF_ERROR(socket.SetInt(ZMQ_RECONNECT_IVL_MAX, kMaxReconnectMs));
  if (address.kind == Address::Kind::kIpc) return absl::OkStatus();
  if (address.port == 0 || address.host == "*") {
    return absl::InvalidArgumentError(
        absl::StrCat(address.ToString(), " can be listened to, not connected to"));
  }
  if (!keys.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(address.ToString(),
                     " needs keys: the bridge's public key and a key pair of "
                     "ours that its allow-list names"));
  }
  LOCKSTEP_RETURN_IF_ERROR(socket.SetInt(ZMQ_IPV6, address.host[0] == '[' ? 1 : 0));
  LOCKSTEP_RETURN_IF_ERROR(socket.SetInt(ZMQ_HEARTBEAT_IVL, kTcpHeartbeatMs));
  LOCKSTEP_RETURN_IF_ERROR(socket.SetInt(ZMQ_HEARTBEAT_TIMEOUT, kTcpHeartbeatTimeoutMs));
  return SetKeys(socket, *keys);
}

}  // namespace

ControlChannel::ControlChannel(wire::ZmqContext context, wire::ZmqSocket socket,
                               wire::ZmqSocket monitor, UniqueFd wake, bool uses_keys)
    : context_(std::move(context)),
      socket_(std::move(socket)),
      monitor_(std::move(monitor)),
      wake_(std::move(wake)),
      uses_keys_(uses_keys) {}

absl::StatusOr<std::unique_ptr<ControlChannel>> ControlChannel::Connect(
    const Address& address, const std::optional<ClientKeys>& keys) {
  LOCKSTEP_ASSIGN_OR_RETURN(wire::ZmqContext context, wire::ZmqContext::Create());
  LOCKSTEP_ASSIGN_OR_RETURN(wire::ZmqSocket socket, wire::ZmqSocket::Create(context, ZMQ_DEALER));
  LOCKSTEP_RETURN_IF_ERROR(Configure(socket, address, keys));
  if (zmq_socket_monitor(socket.get(), kMonitorAddress, kMonitoredEvents) != 0) {
    return wire::ZmqError("zmq_socket_monitor");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(wire::ZmqSocket monitor, wire::ZmqSocket::Create(context, ZMQ_PAIR));
  LOCKSTEP_RETURN_IF_ERROR(monitor.Connect(kMonitorAddress));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return absl::ErrnoToStatus(errno, "eventfd");
  LOCKSTEP_RETURN_IF_ERROR(socket.Connect(address.ToString()));
  return std::unique_ptr<ControlChannel>(new ControlChannel(std::move(context), std::move(socket),
                                                            std::move(monitor), std::move(wake),
                                                            address.kind == Address::Kind::kTcp));
}

absl::Status ControlChannel::Send(const Envelope& envelope) {
  const std::vector<uint8_t> frame = wire::Encode(envelope);
  // ZeroMQ drops an oversized frame at the receiver and tells nobody.
  if (frame.size() > wire::kMaxControlFrameBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("a message of ", frame.size(),
                                                     " bytes; the bridge takes at most ",
                                                     wire::kMaxControlFrameBytes));
  }
  return socket_.Send(frame);
}

absl::StatusOr<std::optional<Envelope>> ControlChannel::Receive(
    std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    if (!held_error_.ok()) return std::exchange(held_error_, absl::OkStatus());
    LOCKSTEP_ASSIGN_OR_RETURN(std::optional<Envelope> envelope, TakeMessage());
    // After the message: the connection it came over was made before, so connections() counts it.
    const absl::StatusOr<bool> changed = TakeConnectionEvents();
    if (envelope.has_value()) {
      if (!changed.ok()) held_error_ = changed.status();
      return envelope;
    }
    if (!changed.ok()) return changed.status();
    if (*changed) return std::optional<Envelope>();

    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    constexpr int64_t kLongestPollMs = 60'000;
    const auto wait_ms = std::clamp<int64_t>(left.count(), 0, kLongestPollMs);
    zmq_pollitem_t items[] = {{socket_.get(), 0, ZMQ_POLLIN, 0},
                              {monitor_.get(), 0, ZMQ_POLLIN, 0},
                              {nullptr, wake_.get(), ZMQ_POLLIN, 0}};
    const int ready = zmq_poll(items, 3, static_cast<long>(wait_ms));
    if (ready < 0 && zmq_errno() != EINTR) return wire::ZmqError("zmq_poll");
    uint64_t wakes = 0;
    if (::read(wake_.get(), &wakes, sizeof(wakes)) > 0) return std::optional<Envelope>();
    if (ready == 0 && std::chrono::steady_clock::now() >= deadline) {
      return std::optional<Envelope>();
    }
  }
}

absl::StatusOr<std::optional<Envelope>> ControlChannel::TakeMessage() {
  LOCKSTEP_ASSIGN_OR_RETURN(std::optional<wire::BodyFrame> frame, wire::TryReceiveBody(socket_));
  if (!frame.has_value()) return std::optional<Envelope>();
  if (frame->dropped_frames > 0) {
    return absl::InvalidArgumentError(absl::StrCat("bad message: ", frame->dropped_frames,
                                                   " frames more than the one it may have"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(Envelope envelope, wire::Decode(frame->body.bytes()));
  return std::optional<Envelope>(std::move(envelope));
}

absl::StatusOr<bool> ControlChannel::TakeConnectionEvents() {
  bool changed = false;
  for (;;) {
    // A monitor's message: uint16 event and uint32 value, then the endpoint in a second frame.
    LOCKSTEP_ASSIGN_OR_RETURN(std::optional<wire::BodyFrame> event, wire::TryReceiveBody(monitor_));
    if (!event.has_value()) return changed;
    uint16_t kind = 0;
    if (event->body.bytes().size() < sizeof(kind)) continue;
    std::memcpy(&kind, event->body.bytes().data(), sizeof(kind));
    if (kind == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
      ++connections_;
      failed_handshakes_ = 0;
      connected_ = changed = true;
    } else if (kind == ZMQ_EVENT_DISCONNECTED) {
      changed |= connected_;
      connected_ = false;
    } else if (kind == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
      return absl::PermissionDeniedError(
          "the bridge refused our key; add its public half to the bridge's allow-list");
    } else if (++failed_handshakes_ >= kFailedHandshakesToReport && uses_keys_) {
      failed_handshakes_ = 0;
      return absl::PermissionDeniedError(
          "the bridge hangs up during the handshake; is the public key we have of it the right "
          "one, and is it a Lockstep bridge?");
    }
  }
}

absl::Status ControlChannel::SetLinger(std::chrono::milliseconds linger) {
  return socket_.SetInt(ZMQ_LINGER, static_cast<int>(linger.count()));
}

void ControlChannel::Wake() {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then Receive is woken anyway.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
}

}  // namespace lockstep::transport
