#ifndef LOCKSTEP_BRIDGE_TRANSPORT_FD_FRAMES_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_FD_FRAMES_H_

// The frames on the Unix stream socket that passes arenas (FdServer, FdClient). Strictly one
// request, one reply; all integers little-endian.
//
//   request, 48 bytes                        reply, 32 bytes and `text_bytes` of UTF-8
//    0  u32 magic 0x4446534C ("LSFD")         0  u32 magic
//    4  u16 version 1                         4  u16 version
//    6  u16 kind: 1 Join, 2 Put, 3 Get        6  u16 code: absl::StatusCode, 0 = granted
//    8  16 bytes incarnation                  8  u64 arena_id of the request
//   24  u64 arena_id (Join: 0)               16  u64 bytes of the arena (Get), else 0
//   32  u64 bytes of the arena (Put), else 0 24  u32 text_bytes, at most 1024
//   40  u64 reserved, 0                      28  u32 reserved, 0
//
// Join comes first and binds the connection to an incarnation; the connection is also that
// process's lifeline: when it ends, the process is gone. Put carries exactly one descriptor
// (SCM_RIGHTS) with its frame, and a granted Get's reply carries one.
//
// Example:
//   FdRequestBytes frame = EncodeFdRequest({FdRequestKind::kGet, incarnation, arena_id, 0});

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "bridge/transport/unique_fd.h"
#include "policy/ids.h"

namespace lockstep::transport {

inline constexpr uint32_t kFdMagic = 0x4446534C;
inline constexpr uint16_t kFdVersion = 1;
inline constexpr size_t kFdRequestBytes = 48;
inline constexpr size_t kFdReplyBytes = 32;
inline constexpr size_t kMaxFdReplyText = 1'024;

enum class FdRequestKind : uint16_t { kJoin = 1, kPut = 2, kGet = 3 };

struct FdRequest {
  FdRequestKind kind = FdRequestKind::kJoin;
  Incarnation incarnation{};
  uint64_t arena_id = 0;
  uint64_t bytes = 0;
};

struct FdReply {
  absl::StatusCode code = absl::StatusCode::kOk;
  uint64_t arena_id = 0;
  uint64_t bytes = 0;
  uint32_t text_bytes = 0;
};

using FdRequestBytes = std::array<uint8_t, kFdRequestBytes>;
using FdReplyBytes = std::array<uint8_t, kFdReplyBytes>;

FdRequestBytes EncodeFdRequest(const FdRequest& request);
absl::StatusOr<FdRequest> DecodeFdRequest(const FdRequestBytes& frame);

// The frame and its text; a text over the limit is cut.
std::string EncodeFdReply(const FdReply& reply, absl::string_view text);
absl::StatusOr<FdReply> DecodeFdReply(const FdReplyBytes& frame);

// The address of a Unix socket; InvalidArgument when `path` is too long for one.
absl::Status FillUnixAddress(const std::string& path, struct sockaddr_storage& address,
                             socklen_t& length);

// The peer of a connected Unix socket must run as our user; PermissionDenied otherwise.
absl::Status CheckPeerIsOurUser(int socket_fd);

// One sendmsg of all of `bytes`, with `passed_fd` unless it is -1. Unavailable when the peer
// does not take them at once (the frames are far smaller than a socket's buffer) or is gone.
absl::Status SendWithFd(int socket_fd, absl::string_view bytes, int passed_fd);

struct Received {
  size_t bytes = 0;            // 0: end of stream
  std::optional<UniqueFd> fd;  // at most one
  bool would_block = false;
};

// One recvmsg into `buffer`, not blocking. InvalidArgument when the peer passed more than one
// descriptor; all that came are closed then.
absl::StatusOr<Received> ReceiveWithFd(int socket_fd, absl::Span<uint8_t> buffer);

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_FD_FRAMES_H_
