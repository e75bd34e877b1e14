#ifndef LOCKSTEP_BRIDGE_TRANSPORT_BULK_SERVER_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_BULK_SERVER_H_

// The bridge's bulk port (bulk_frames.h): serves chunks of arenas to samplers and takes a
// trainer's chunks. It never blocks: the loop polls Sockets() for ZMQ_POLLIN and calls
// HandleReadable. A chunk is sent from the arena itself; the message holds the arena alive.
//
// Example:
//   auto server = BulkServer::Listen("tcp://127.0.0.1:0", key, store);
//   BulkEvents events = server->HandleReadable();

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bridge/transport/arena_store.h"
#include "bridge/transport/bulk_frames.h"
#include "bridge/wire/zmq_socket.h"
#include "policy/ids.h"

namespace lockstep::transport {

struct BulkEvents {
  std::map<uint64_t, uint64_t> upload_marks;   // arena -> its new mark
  std::map<Incarnation, uint64_t> bytes_sent;  // payload bytes since the last call
  uint64_t malformed = 0;                      // frames that no peer of ours sends; dropped
  uint64_t unauthorised = 0;                   // wrong password or MAC
  uint64_t over_limit = 0;                     // requests beyond kMaxInFlightPerPeer; dropped
  bool more = false;                           // messages are left: call again soon
};

class BulkServer {
 public:
  // Chunks queued for one peer and not yet handed to the kernel.
  static constexpr int kMaxInFlightPerPeer = 32;
  static constexpr int kMaxMessagesPerCall = 64;
  // Peers remembered; those with nothing in flight are forgotten first.
  static constexpr size_t kMaxPeers = 4'096;

  // `store` outlives the server. Port 0 picks one (address()).
  static absl::StatusOr<std::unique_ptr<BulkServer>> Listen(const std::string& address,
                                                            const Digest256& key,
                                                            ArenaStore& store);
  BulkServer(const BulkServer&) = delete;
  BulkServer& operator=(const BulkServer&) = delete;

  // tcp://HOST:PORT.
  const std::string& address() const { return address_; }

  // ZeroMQ sockets for zmq_poll: the bulk port and the door that checks passwords.
  std::vector<void*> Sockets() const { return {router_.get(), door_.get()}; }

  BulkEvents HandleReadable();

 private:
  BulkServer(wire::ZmqContext context, wire::ZmqSocket door, wire::ZmqSocket router,
             const Digest256& key, ArenaStore& store);

  void HandleDoor(BulkEvents& events);
  void Handle(const wire::RoutedFrame& routed, BulkEvents& events);
  void Get(const std::string& routing_id, const BulkHeader& request, BulkEvents& events);
  void Put(const std::string& routing_id, const BulkHeader& request,
           absl::Span<const uint8_t> payload, BulkEvents& events);
  void Answer(const std::string& routing_id, BulkHeader header, BulkKind kind, uint64_t value);
  // True when the chunk was queued.
  bool SendChunk(const std::string& routing_id, const BulkHeader& request,
                 const std::shared_ptr<const StoredArena>& arena,
                 const std::shared_ptr<std::atomic<int>>& in_flight);
  std::shared_ptr<std::atomic<int>> InFlight(const Incarnation& incarnation);

  // Its own context, hence its own handler for passwords (one a context) and IO thread.
  wire::ZmqContext context_;
  wire::ZmqSocket door_;
  wire::ZmqSocket router_;
  std::string address_;
  Digest256 key_;
  std::string password_;
  ArenaStore* store_;
  // Shared with the messages in flight, whose release runs on ZeroMQ's thread.
  std::map<Incarnation, std::shared_ptr<std::atomic<int>>> peers_;
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_BULK_SERVER_H_
