#ifndef LOCKSTEP_BRIDGE_TRANSPORT_BULK_CLIENT_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_BULK_CLIENT_H_

// What BulkReader and BulkWriter share: where the bulk port is, the limits of a transfer, and
// a connection that sends headers and receives checked answers.
//
// Example:
//   BulkEndpoint endpoint{welcome.bulk_address, welcome.bulk_key, incarnation};
//   auto connection = BulkConnection::Open(endpoint);

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bridge/transport/bulk_frames.h"
#include "bridge/wire/zmq_socket.h"
#include "policy/ids.h"

namespace lockstep::transport {

struct BulkEndpoint {
  std::string address;  // tcp://HOST:PORT, from Welcome
  Digest256 key{};      // from Welcome
  Incarnation incarnation{};
};

struct BulkOptions {
  uint64_t chunk_bytes = uint64_t{1} << 20;  // at most kMaxChunkBytes
  int credit = 8;                            // chunks under way; at most kMaxCredit
  // A chunk without an answer for this long is asked for again, `retries` times in a row.
  absl::Duration stall_timeout = absl::Seconds(5);
  int retries = 3;  // also of one damaged chunk
};

inline constexpr int kMaxCredit = 16;

// InvalidArgument when a limit is outside its range.
absl::Status CheckBulkOptions(const BulkOptions& options);

class BulkConnection {
 public:
  // Connects in the background; ZeroMQ reconnects by itself. InvalidArgument for an address
  // that is none.
  static absl::StatusOr<BulkConnection> Open(const BulkEndpoint& endpoint);

  // A header as the only frame. Unavailable when the queue is full.
  absl::Status Send(const BulkHeader& header);
  // A message made by the caller, who keeps his own reference.
  absl::Status SendCopy(zmq_msg_t* message);

  struct Answer {
    BulkHeader header;
    wire::ZmqMessage payload;  // of a Chunk; its length is the header's
  };
  // Waits up to `wait` for an answer; nullopt when none came, or one that is not genuine or
  // not whole (counted in bad_answers).
  absl::StatusOr<std::optional<Answer>> Receive(absl::Duration wait);

  uint64_t bad_answers() const { return bad_answers_; }
  const Digest256& key() const { return key_; }
  const Incarnation& incarnation() const { return incarnation_; }

 private:
  BulkConnection(wire::ZmqContext context, wire::ZmqSocket socket, const BulkEndpoint& endpoint)
      : context_(std::move(context)),
        socket_(std::move(socket)),
        key_(endpoint.key),
        incarnation_(endpoint.incarnation) {}

  // A context of its own: bulk traffic never delays the control channel's IO thread.
  wire::ZmqContext context_;
  wire::ZmqSocket socket_;
  Digest256 key_;
  Incarnation incarnation_;
  uint64_t bad_answers_ = 0;
};

// The error for a Refused answer.
absl::Status RefusedStatus(const BulkHeader& answer);

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_BULK_CLIENT_H_
