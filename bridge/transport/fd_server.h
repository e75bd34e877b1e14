#ifndef LOCKSTEP_BRIDGE_TRANSPORT_FD_SERVER_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_FD_SERVER_H_

// The bridge's end of the socket that passes arenas (fd_frames.h). It never blocks: the loop
// polls Fds() for reading and calls OnReadable.
//
// Example:
//   auto server = FdServer::Listen(path, store);
//   for (int fd : server->Fds()) if (readable(fd)) {
//     for (FdEvent& event : server->OnReadable(fd)) Handle(event);
//   }

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "bridge/transport/arena_store.h"
#include "bridge/transport/fd_frames.h"
#include "bridge/transport/unique_fd.h"
#include "policy/ids.h"

namespace lockstep::transport {

// A trainer's arena was received, its seals checked, mapped, and put into the store.
struct ArenaPut {
  uint64_t arena_id = 0;
  Incarnation incarnation{};
  uint64_t bytes = 0;
};

// The connection that an incarnation joined on has ended: its process is gone, or it sent
// what nobody may send.
struct FdPeerLeft {
  Incarnation incarnation{};
  std::string reason;
};

// Something that no peer of ours sends; the connection is closed.
struct FdGarbage {
  std::string reason;
};

using FdEvent = std::variant<ArenaPut, FdPeerLeft, FdGarbage>;

class FdServer {
 public:
  static constexpr size_t kMaxConnections = 4'096;

  // `store` outlives the server. PermissionDenied unless the socket's folder belongs to our
  // user and to nobody else; AlreadyExists when a live server listens there; a socket that a
  // dead one left behind is replaced.
  static absl::StatusOr<FdServer> Listen(const std::string& path, ArenaStore& store);

  FdServer(FdServer&&) = default;
  FdServer& operator=(FdServer&&) = delete;
  // Removes the socket file if it is still ours.
  ~FdServer();

  // The listening socket first, then the connections.
  std::vector<int> Fds() const;

  // `fd` is one of Fds(); others are ignored.
  std::vector<FdEvent> OnReadable(int fd);

  size_t connections() const { return connections_.size(); }

 private:
  struct Connection {
    UniqueFd socket;
    FdRequestBytes frame{};
    size_t have = 0;
    std::optional<UniqueFd> passed;
    std::optional<Incarnation> joined;
  };

  FdServer(std::string path, UniqueFd listener, uint64_t inode, ArenaStore& store);

  void Accept(std::vector<FdEvent>& events);
  // An error closes the connection.
  absl::Status Read(Connection& connection, std::vector<FdEvent>& events);
  absl::Status Serve(Connection& connection, const FdRequest& request,
                     std::vector<FdEvent>& events);
  absl::Status Put(Connection& connection, const FdRequest& request, std::vector<FdEvent>& events);
  absl::Status Get(Connection& connection, const FdRequest& request);

  std::string path_;
  UniqueFd listener_;
  uint64_t inode_ = 0;
  ArenaStore* store_;
  std::map<int, Connection> connections_;
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_FD_SERVER_H_
