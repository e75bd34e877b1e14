#include "bridge/loop/control_socket.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bridge/wire/limits.h"
#include "policy/status_macros.h"

namespace lockstep::loop {
namespace {

using transport::Address;

constexpr std::chrono::milliseconds kPresenceTimeout{500};
constexpr std::chrono::seconds kSelfTestTimeout{10};
constexpr int kBacklog = 512;

// libzmq removes whatever file lies at the path and listens in its stead, so a live bridge
// must be noticed first.
absl::Status CheckIpcPlace(const Address& address) {
  const std::filesystem::path path(address.path);
  if (!path.is_absolute()) {
    return absl::InvalidArgumentError(absl::StrCat(
        address.ToString(), ": the socket's path must be absolute, so that clients find it"));
  }
  LOCKSTEP_RETURN_IF_ERROR(transport::PrepareOwnerOnlyFolder(path.parent_path().string()));
  struct stat found {};
  if (::lstat(address.path.c_str(), &found) == 0 && !S_ISSOCK(found.st_mode)) {
    return absl::AlreadyExistsError(absl::StrCat(
        "'", address.path, "' exists and is not a socket; move it or name another --listen"));
  }
  return absl::OkStatus();
}

absl::Status CheckTcpPlace(const Address& address) {
  for (const absl::string_view any : {"0.0.0.0", "[::]", "*"}) {
    if (address.host == any) {
      return absl::InvalidArgumentError(
          absl::StrCat(address.ToString(),
                       ": peers are told the host for bulk bytes, so name the address of this "
                       "machine that they reach, for one machine tcp://127.0.0.1:PORT"));
    }
  }
  return absl::OkStatus();
}

absl::Status SetOptions(wire::ZmqSocket& router, const Address& address) {
  LOCKSTEP_RETURN_IF_ERROR(router.SetInt(ZMQ_LINGER, ControlSocket::kLingerMs));
  LOCKSTEP_RETURN_IF_ERROR(router.SetInt(ZMQ_ROUTER_MANDATORY, 1));
  LOCKSTEP_RETURN_IF_ERROR(router.SetInt(ZMQ_BACKLOG, kBacklog));
  LOCKSTEP_RETURN_IF_ERROR(router.SetInt(ZMQ_SNDHWM, ControlSocket::kSendHighWaterMark));
  LOCKSTEP_RETURN_IF_ERROR(router.SetInt(ZMQ_RCVHWM, ControlSocket::kReceiveHighWaterMark));
  LOCKSTEP_RETURN_IF_ERROR(router.SetInt64(ZMQ_MAXMSGSIZE, wire::kMaxControlFrameBytes));
  const bool ipv6 = address.kind == Address::Kind::kTcp && absl::StartsWith(address.host, "[");
  return router.SetInt(ZMQ_IPV6, ipv6 ? 1 : 0);
}

}  // namespace

absl::Status ControlSocket::CheckFree(const Address& address) {
  const bool tcp = address.kind == Address::Kind::kTcp;
  LOCKSTEP_RETURN_IF_ERROR(tcp ? CheckTcpPlace(address) : CheckIpcPlace(address));
  if ((!tcp || address.port != 0) && transport::BridgePresent(address, kPresenceTimeout).ok()) {
    return absl::AlreadyExistsError(absl::StrCat("a bridge listens at ", address.ToString(),
                                                 " already; stop it or name another --listen"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ControlSocket>> ControlSocket::Bind(const Address& address,
                                                                   std::optional<ServerKeys> keys) {
  const bool tcp = address.kind == Address::Kind::kTcp;
  LOCKSTEP_RETURN_IF_ERROR(CheckFree(address));
  if (tcp && !keys.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(address.ToString(), " needs keys"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(wire::ZmqContext context, wire::ZmqContext::Create());
  std::unique_ptr<ControlSocket> socket(new ControlSocket(std::move(context)));
  LOCKSTEP_ASSIGN_OR_RETURN(wire::ZmqSocket router,
                            wire::ZmqSocket::Create(socket->context_, ZMQ_ROUTER));
  LOCKSTEP_RETURN_IF_ERROR(SetOptions(router, address));
  if (tcp) {
    LOCKSTEP_ASSIGN_OR_RETURN(socket->zap_,
                              auth::ZapHandler::Start(socket->context_, std::move(keys->allowed)));
    LOCKSTEP_RETURN_IF_ERROR(auth::SelfTest(socket->context_, *socket->zap_,
                                            std::chrono::steady_clock::now() + kSelfTestTimeout));
    LOCKSTEP_RETURN_IF_ERROR(socket->zap_->Secure(router, keys->pair));
  }
  if (absl::Status bound = router.Bind(address.ToString()); !bound.ok()) {
    return absl::Status(
        bound.code(),
        absl::StrCat(bound.message(), tcp ? "; name a numeric address of this machine" : ""));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(socket->endpoint_, router.LastEndpoint());
  socket->router_ = std::move(router);
  struct stat made {};
  if (!tcp && ::stat(address.path.c_str(), &made) == 0) {
    socket->socket_file_ = address.path;
    socket->socket_inode_ = made.st_ino;
  }
  return socket;
}

ControlSocket::~ControlSocket() {
  router_.reset();
  struct stat found {};
  if (socket_file_.empty() || ::stat(socket_file_.c_str(), &found) != 0) return;
  if (found.st_ino == socket_inode_) ::unlink(socket_file_.c_str());
}

std::vector<void*> ControlSocket::Sockets() const {
  std::vector<void*> sockets = {router_->get()};
  if (zap_ != nullptr) sockets.push_back(zap_->socket().get());
  return sockets;
}

absl::StatusOr<std::optional<wire::RoutedFrame>> ControlSocket::Receive() {
  return wire::TryReceiveRouted(*router_);
}

absl::Status ControlSocket::Send(absl::string_view routing_id, absl::Span<const uint8_t> frame) {
  return wire::SendRouted(*router_, routing_id, frame);
}

std::vector<auth::ZapVerdict> ControlSocket::JudgeWaiting(size_t limit) {
  std::vector<auth::ZapVerdict> verdicts;
  while (zap_ != nullptr && verdicts.size() < limit) {
    absl::StatusOr<std::optional<auth::ZapVerdict>> verdict = zap_->HandleOne();
    if (!verdict.ok() || !verdict->has_value()) break;
    verdicts.push_back(**std::move(verdict));
  }
  return verdicts;
}

}  // namespace lockstep::loop
