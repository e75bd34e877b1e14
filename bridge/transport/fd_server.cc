#include "bridge/transport/fd_server.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bridge/transport/address.h"
#include "policy/status_macros.h"

namespace lockstep::transport {
namespace {

constexpr int kBacklog = 128;
// Keeps one busy peer from holding the loop.
constexpr int kMaxReadsPerCall = 8;

// True when some process accepts connections at the address.
bool SomebodyListens(const sockaddr_storage& address, socklen_t length) {
  UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return false;
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0 ||
         errno == EAGAIN;
}

absl::Status Reply(int socket_fd, const FdReply& reply, absl::string_view text, int passed_fd) {
  return SendWithFd(socket_fd, EncodeFdReply(reply, text), passed_fd);
}

absl::Status ReplyStatus(int socket_fd, const FdRequest& request, const absl::Status& status) {
  return Reply(socket_fd, {status.code(), request.arena_id, 0, 0}, status.message(), -1);
}

}  // namespace

FdServer::FdServer(std::string path, UniqueFd listener, uint64_t inode, ArenaStore& store)
    : path_(std::move(path)), listener_(std::move(listener)), inode_(inode), store_(&store) {}

FdServer::~FdServer() {
  struct stat info {};
  if (!listener_.valid() || ::stat(path_.c_str(), &info) != 0) return;
  if (info.st_ino == inode_) ::unlink(path_.c_str());
}

absl::StatusOr<FdServer> FdServer::Listen(const std::string& path, ArenaStore& store) {
  sockaddr_storage address{};
  socklen_t length = 0;
  LOCKSTEP_RETURN_IF_ERROR(FillUnixAddress(path, address, length));
  LOCKSTEP_RETURN_IF_ERROR(
      PrepareOwnerOnlyFolder(std::filesystem::path(path).parent_path().string()));
  struct stat old {};
  if (::lstat(path.c_str(), &old) == 0) {
    if (!S_ISSOCK(old.st_mode)) {
      return absl::AlreadyExistsError(
          absl::StrCat("'", path, "' exists and is not a socket; move it or name another address"));
    }
    if (SomebodyListens(address, length)) {
      return absl::AlreadyExistsError(absl::StrCat("a bridge listens at '", path,
                                                   "' already; stop it or name another address"));
    }
    ::unlink(path.c_str());
  }
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return absl::ErrnoToStatus(errno, "socket");
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("bind to '", path, "'"));
  }
  if (::chmod(path.c_str(), 0600) != 0 || ::listen(listener.get(), kBacklog) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("listen at '", path, "'"));
  }
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return absl::ErrnoToStatus(errno, path);
  return FdServer(path, std::move(listener), info.st_ino, store);
}

std::vector<int> FdServer::Fds() const {
  std::vector<int> fds;
  fds.reserve(connections_.size() + 1);
  fds.push_back(listener_.get());
  for (const auto& [fd, connection] : connections_) fds.push_back(fd);
  return fds;
}

std::vector<FdEvent> FdServer::OnReadable(int fd) {
  std::vector<FdEvent> events;
  if (fd == listener_.get()) {
    Accept(events);
    return events;
  }
  const auto it = connections_.find(fd);
  if (it == connections_.end()) return events;
  const absl::Status status = Read(it->second, events);
  if (status.ok()) return events;
  if (absl::IsInvalidArgument(status)) {
    events.push_back(FdGarbage{std::string(status.message())});
  }
  if (it->second.joined.has_value()) {
    events.push_back(FdPeerLeft{*it->second.joined, std::string(status.message())});
  }
  connections_.erase(it);
  return events;
}

void FdServer::Accept(std::vector<FdEvent>& events) {
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) return;
  if (connections_.size() >= kMaxConnections) {
    events.push_back(FdGarbage{absl::StrCat("refused a connection beyond ", kMaxConnections)});
    return;
  }
  if (absl::Status status = CheckPeerIsOurUser(socket.get()); !status.ok()) {
    events.push_back(FdGarbage{std::string(status.message())});
    return;
  }
  const int fd = socket.get();
  connections_[fd].socket = std::move(socket);
}

absl::Status FdServer::Read(Connection& connection, std::vector<FdEvent>& events) {
  for (int i = 0; i < kMaxReadsPerCall; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        Received received,
        ReceiveWithFd(connection.socket.get(),
                      absl::MakeSpan(connection.frame).subspan(connection.have)));
    if (received.would_block) return absl::OkStatus();
    if (received.bytes == 0) return absl::UnavailableError("the peer closed its connection");
    if (received.fd.has_value()) {
      if (connection.passed.has_value()) {
        return absl::InvalidArgumentError("the peer passed a second descriptor with one frame");
      }
      connection.passed = std::move(received.fd);
    }
    connection.have += received.bytes;
    if (connection.have < kFdRequestBytes) continue;
    connection.have = 0;
    LOCKSTEP_ASSIGN_OR_RETURN(const FdRequest request, DecodeFdRequest(connection.frame));
    LOCKSTEP_RETURN_IF_ERROR(Serve(connection, request, events));
    if (connection.passed.has_value()) {
      return absl::InvalidArgumentError("the peer passed a descriptor with a frame that has none");
    }
  }
  return absl::OkStatus();
}

absl::Status FdServer::Serve(Connection& connection, const FdRequest& request,
                             std::vector<FdEvent>& events) {
  if (request.kind == FdRequestKind::kJoin) {
    if (connection.joined.has_value()) {
      return absl::InvalidArgumentError("the peer sent Join twice on one connection");
    }
    connection.joined = request.incarnation;
    return ReplyStatus(connection.socket.get(), request, absl::OkStatus());
  }
  if (connection.joined != request.incarnation) {
    return absl::InvalidArgumentError(
        "the peer asked in the name of an incarnation that it did not join as");
  }
  if (request.kind == FdRequestKind::kPut) return Put(connection, request, events);
  return Get(connection, request);
}

absl::Status FdServer::Put(Connection& connection, const FdRequest& request,
                           std::vector<FdEvent>& events) {
  if (!connection.passed.has_value()) {
    return absl::InvalidArgumentError("the peer sent Put without a descriptor");
  }
  UniqueFd passed = *std::exchange(connection.passed, std::nullopt);
  const int socket_fd = connection.socket.get();
  absl::Status status = store_->CheckMayWrite(request.incarnation, request.arena_id);
  if (!status.ok()) return ReplyStatus(socket_fd, request, status);
  absl::StatusOr<ReadOnlyArena> arena = ReadOnlyArena::Map(std::move(passed), request.bytes);
  if (!arena.ok()) return ReplyStatus(socket_fd, request, arena.status());
  const absl::StatusOr<bool> is_new = store_->Adopt(request.arena_id, *std::move(arena));
  if (!is_new.ok()) return ReplyStatus(socket_fd, request, is_new.status());
  if (*is_new) events.push_back(ArenaPut{request.arena_id, request.incarnation, request.bytes});
  return ReplyStatus(socket_fd, request, absl::OkStatus());
}

absl::Status FdServer::Get(Connection& connection, const FdRequest& request) {
  const int socket_fd = connection.socket.get();
  const absl::StatusOr<ArenaStore::Readable> found =
      store_->OpenForRead(request.incarnation, request.arena_id);
  if (!found.ok()) return ReplyStatus(socket_fd, request, found.status());
  return Reply(socket_fd,
               {absl::StatusCode::kOk, request.arena_id, found->arena->bytes().size(), 0}, "",
               found->arena->fd());
}

}  // namespace lockstep::transport
