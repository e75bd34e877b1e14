#include "bridge/transport/fd_client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"

namespace lockstep::transport {
namespace {

int RemainingMs(absl::Time deadline) {
  const int64_t ms = absl::ToInt64Milliseconds(deadline - absl::Now() + absl::Microseconds(999));
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 60'000));
}

}  // namespace

absl::StatusOr<FdClient> FdClient::Connect(const std::string& path, const Incarnation& incarnation,
                                           absl::Duration timeout) {
  sockaddr_storage address{};
  socklen_t length = 0;
  LOCKSTEP_RETURN_IF_ERROR(FillUnixAddress(path, address, length));
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return absl::ErrnoToStatus(errno, "socket");
  // A Unix connect waits only while the listener's backlog is full.
  const timeval limit = absl::ToTimeval(timeout);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return absl::UnavailableError(absl::StrCat("no bridge passes arenas at '", path,
                                               "': ", strerror(errno),
                                               "; start lockstepd or check the address"));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckPeerIsOurUser(socket.get()));
  FdClient client(std::move(socket), incarnation);
  LOCKSTEP_RETURN_IF_ERROR(
      client.Ask({FdRequestKind::kJoin, incarnation, 0, 0}, -1, timeout).status());
  return client;
}

absl::Status FdClient::Put(uint64_t arena_id, int arena_fd, uint64_t bytes,
                           absl::Duration timeout) {
  return Ask({FdRequestKind::kPut, incarnation_, arena_id, bytes}, arena_fd, timeout).status();
}

absl::StatusOr<UniqueFd> FdClient::Get(uint64_t arena_id, uint64_t bytes, absl::Duration timeout) {
  LOCKSTEP_ASSIGN_OR_RETURN(Answer answer,
                            Ask({FdRequestKind::kGet, incarnation_, arena_id, 0}, -1, timeout));
  if (!answer.fd.valid()) {
    return absl::DataLossError(
        absl::StrCat("the bridge granted arena ", arena_id, " and sent no descriptor"));
  }
  if (answer.reply.bytes != bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("arena ", arena_id, " holds ", answer.reply.bytes,
                     " bytes at the bridge, the round's manifest lays out ", bytes));
  }
  return std::move(answer.fd);
}

absl::StatusOr<FdClient::Answer> FdClient::Ask(const FdRequest& request, int passed_fd,
                                               absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  const FdRequestBytes frame = EncodeFdRequest(request);
  LOCKSTEP_RETURN_IF_ERROR(SendWithFd(
      socket_.get(), absl::string_view(reinterpret_cast<const char*>(frame.data()), frame.size()),
      passed_fd));
  Answer answer;
  FdReplyBytes reply{};
  LOCKSTEP_RETURN_IF_ERROR(ReadExactly(absl::MakeSpan(reply), deadline, answer.fd));
  absl::StatusOr<FdReply> decoded = DecodeFdReply(reply);
  if (!decoded.ok()) return absl::DataLossError(decoded.status().message());
  answer.reply = *decoded;
  std::string text(answer.reply.text_bytes, '\0');
  LOCKSTEP_RETURN_IF_ERROR(ReadExactly(
      absl::MakeSpan(reinterpret_cast<uint8_t*>(text.data()), text.size()), deadline, answer.fd));
  if (answer.reply.arena_id != request.arena_id) {
    return absl::DataLossError(absl::StrCat("the bridge answered for arena ", answer.reply.arena_id,
                                            ", asked for ", request.arena_id));
  }
  if (answer.reply.code != absl::StatusCode::kOk) return absl::Status(answer.reply.code, text);
  return answer;
}

absl::Status FdClient::ReadExactly(absl::Span<uint8_t> into, absl::Time deadline,
                                   UniqueFd& passed) {
  for (size_t have = 0; have < into.size();) {
    pollfd wait{socket_.get(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, RemainingMs(deadline));
    if (ready < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "poll");
    if (ready <= 0) {
      if (absl::Now() < deadline) continue;
      return absl::DeadlineExceededError("the bridge did not answer about an arena in time");
    }
    LOCKSTEP_ASSIGN_OR_RETURN(Received received, ReceiveWithFd(socket_.get(), into.subspan(have)));
    if (received.would_block) continue;
    if (received.bytes == 0) {
      return absl::UnavailableError("the bridge closed the connection that passes arenas");
    }
    if (received.fd.has_value()) passed = *std::move(received.fd);
    have += received.bytes;
  }
  return absl::OkStatus();
}

}  // namespace lockstep::transport
