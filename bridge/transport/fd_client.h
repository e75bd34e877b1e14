#ifndef LOCKSTEP_BRIDGE_TRANSPORT_FD_CLIENT_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_FD_CLIENT_H_

// A client's end of the socket that passes arenas (fd_frames.h). Blocking, with deadlines;
// one thread at a time. Keep it for as long as the process is a peer: the connection is the
// lifeline by which the bridge sees a death at once.
//
// Example:
//   auto client = FdClient::Connect(welcome.fd_socket_path, incarnation, absl::Seconds(5));
//   auto fd = client->Get(arena_id, layout.total_bytes, absl::Seconds(5));   // sampler
//   absl::Status s = client->Put(arena_id, arena.fd(), bytes, absl::Seconds(5));  // trainer

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bridge/transport/fd_frames.h"
#include "bridge/transport/unique_fd.h"
#include "policy/ids.h"

namespace lockstep::transport {

class FdClient {
 public:
  // Connects and joins. Unavailable when nobody listens, PermissionDenied when the listener is
  // another user's, DeadlineExceeded when it does not answer.
  static absl::StatusOr<FdClient> Connect(const std::string& path, const Incarnation& incarnation,
                                          absl::Duration timeout);

  // The bridge's refusal comes back with its own code and text. After DeadlineExceeded,
  // Unavailable or DataLoss the connection is of no further use.
  absl::Status Put(uint64_t arena_id, int arena_fd, uint64_t bytes, absl::Duration timeout);
  absl::StatusOr<UniqueFd> Get(uint64_t arena_id, uint64_t bytes, absl::Duration timeout);

 private:
  struct Answer {
    FdReply reply;
    UniqueFd fd;
  };

  FdClient(UniqueFd socket, const Incarnation& incarnation)
      : socket_(std::move(socket)), incarnation_(incarnation) {}

  absl::StatusOr<Answer> Ask(const FdRequest& request, int passed_fd, absl::Duration timeout);
  absl::Status ReadExactly(absl::Span<uint8_t> into, absl::Time deadline, UniqueFd& passed);

  UniqueFd socket_;
  Incarnation incarnation_{};
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_FD_CLIENT_H_
