#include "bridge/transport/fd_frames.h"

#include <errno.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bridge/transport/little_endian.h"

namespace lockstep::transport {
namespace {

// More than any honest peer sends, so that what a hostile one sends arrives here to be closed.
constexpr size_t kMaxFdsInControl = 16;
constexpr uint16_t kMaxStatusCode = 16;

absl::Status CheckPrologue(const uint8_t* frame) {
  const uint32_t magic = LoadLe<uint32_t>(frame);
  const uint16_t version = LoadLe<uint16_t>(frame + 4);
  if (magic != kFdMagic) {
    return absl::InvalidArgumentError("the frame does not start with the magic number LSFD");
  }
  if (version != kFdVersion) {
    return absl::InvalidArgumentError(absl::StrCat("the peer speaks version ", version,
                                                   " of the descriptor protocol, this build ",
                                                   kFdVersion));
  }
  return absl::OkStatus();
}

// Takes ownership of every descriptor in the control data.
std::vector<UniqueFd> TakeFds(msghdr& message) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

FdRequestBytes EncodeFdRequest(const FdRequest& request) {
  FdRequestBytes frame{};
  StoreLe<uint32_t>(frame.data(), kFdMagic);
  StoreLe<uint16_t>(frame.data() + 4, kFdVersion);
  StoreLe<uint16_t>(frame.data() + 6, static_cast<uint16_t>(request.kind));
  std::copy(request.incarnation.begin(), request.incarnation.end(), frame.begin() + 8);
  StoreLe<uint64_t>(frame.data() + 24, request.arena_id);
  StoreLe<uint64_t>(frame.data() + 32, request.bytes);
  return frame;
}

absl::StatusOr<FdRequest> DecodeFdRequest(const FdRequestBytes& frame) {
  if (absl::Status status = CheckPrologue(frame.data()); !status.ok()) return status;
  const uint16_t kind = LoadLe<uint16_t>(frame.data() + 6);
  if (kind < 1 || kind > 3) {
    return absl::InvalidArgumentError(absl::StrCat("unknown request kind ", kind));
  }
  if (LoadLe<uint64_t>(frame.data() + 40) != 0) {
    return absl::InvalidArgumentError("the reserved bytes of a request are not zero");
  }
  FdRequest request;
  request.kind = static_cast<FdRequestKind>(kind);
  std::copy(frame.begin() + 8, frame.begin() + 24, request.incarnation.begin());
  request.arena_id = LoadLe<uint64_t>(frame.data() + 24);
  request.bytes = LoadLe<uint64_t>(frame.data() + 32);
  return request;
}

std::string EncodeFdReply(const FdReply& reply, absl::string_view text) {
  text = text.substr(0, kMaxFdReplyText);
  FdReplyBytes frame{};
  StoreLe<uint32_t>(frame.data(), kFdMagic);
  StoreLe<uint16_t>(frame.data() + 4, kFdVersion);
  StoreLe<uint16_t>(frame.data() + 6, static_cast<uint16_t>(reply.code));
  StoreLe<uint64_t>(frame.data() + 8, reply.arena_id);
  StoreLe<uint64_t>(frame.data() + 16, reply.bytes);
  StoreLe<uint32_t>(frame.data() + 24, static_cast<uint32_t>(text.size()));
  return absl::StrCat(absl::string_view(reinterpret_cast<const char*>(frame.data()), frame.size()),
                      text);
}

absl::StatusOr<FdReply> DecodeFdReply(const FdReplyBytes& frame) {
  if (absl::Status status = CheckPrologue(frame.data()); !status.ok()) return status;
  const uint16_t code = LoadLe<uint16_t>(frame.data() + 6);
  FdReply reply;
  reply.code = static_cast<absl::StatusCode>(code);
  reply.arena_id = LoadLe<uint64_t>(frame.data() + 8);
  reply.bytes = LoadLe<uint64_t>(frame.data() + 16);
  reply.text_bytes = LoadLe<uint32_t>(frame.data() + 24);
  if (code > kMaxStatusCode || reply.text_bytes > kMaxFdReplyText) {
    return absl::InvalidArgumentError(
        absl::StrCat("the reply has code ", code, " and a text of ", reply.text_bytes, " bytes"));
  }
  return reply;
}

absl::Status FillUnixAddress(const std::string& path, struct sockaddr_storage& address,
                             socklen_t& length) {
  sockaddr_un unix_address{};
  unix_address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(unix_address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", path, "' cannot be a Unix socket: its name must have 1 to ",
        sizeof(unix_address.sun_path) - 1, " bytes, got ", path.size(), "; use a shorter folder"));
  }
  memcpy(unix_address.sun_path, path.data(), path.size());
  memcpy(&address, &unix_address, sizeof(unix_address));
  length = sizeof(unix_address);
  return absl::OkStatus();
}

absl::Status CheckPeerIsOurUser(int socket_fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return absl::ErrnoToStatus(errno, "SO_PEERCRED");
  }
  if (peer.uid == ::geteuid()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("the peer runs as user ", peer.uid,
                                                  ", this process as ", ::geteuid(),
                                                  "; run both as one user"));
}

absl::Status SendWithFd(int socket_fd, absl::string_view bytes, int passed_fd) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (passed_fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &passed_fd, sizeof(int));
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(bytes.size())) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the peer did not take ", bytes.size(),
                   " bytes: ", sent < 0 ? strerror(errno) : "its socket buffer is full"));
}

absl::StatusOr<Received> ReceiveWithFd(int socket_fd, absl::Span<uint8_t> buffer) {
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFdsInControl)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket_fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  Received received;
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      received.would_block = true;
      return received;
    }
    return absl::UnavailableError(absl::StrCat("recvmsg: ", strerror(errno)));
  }
  std::vector<UniqueFd> fds = TakeFds(message);
  if ((message.msg_flags & MSG_CTRUNC) != 0 || fds.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("the peer passed ", fds.size(),
                                                   " descriptors or more in one message; one "
                                                   "is the most a frame carries"));
  }
  received.bytes = static_cast<size_t>(got);
  if (!fds.empty()) received.fd = std::move(fds.front());
  return received;
}

}  // namespace lockstep::transport
