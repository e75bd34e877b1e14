#ifndef LOCKSTEP_BRIDGE_TRANSPORT_TRANSPORT_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_TRANSPORT_H_

// How a version's bytes get from a trainer to the bridge (ArenaWriter) and from the bridge
// into a sampler's slot (Installer). One file pair a transport: shm, tcp; CUDA IPC and NCCL
// would be two more. Callers see bytes at the offsets of ComputeArenaLayout and nothing of
// how they came.
//
// Example, a sampler's worker:
//   auto installed = installer->Install({start.arena_id, layout.total_bytes}, feed);
//   if (!installed.ok()) return Failed(installed.status());
//   absl::Span<const uint8_t> tensor =
//       (*installed)->bytes().subspan(layout.offsets[i], layout.sizes[i]);
//
// Example, a trainer's worker:
//   writer->Begin({accepted.arena_id, layout.total_bytes, accepted.reuse_arena});
//   for (size_t i = 0; i < tensors.size(); ++i) writer->Write(layout.offsets[i], tensors[i], feed);
//   absl::Status status = writer->Finish(feed);

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bridge/transport/round_feed.h"
#include "policy/protocol.h"

namespace lockstep::transport {

// A version's bytes in a sampler, final and never written again. Destroying it gives them
// back (ReleaseArena may then be sent); any thread may do so.
class InstalledVersion {
 public:
  virtual ~InstalledVersion() = default;

  // ArenaLayout::total_bytes of them.
  virtual absl::Span<const uint8_t> bytes() const = 0;
};

struct InstallRequest {
  uint64_t arena_id = 0;
  uint64_t total_bytes = 0;
};

class Installer {
 public:
  virtual ~Installer() = default;

  // Blocks until every byte is in place and final, or the feed is cancelled (its status comes
  // back). One thread at a time. Unavailable: the bridge is gone or silent; ResourceExhausted:
  // no memory for a slot, with the figures.
  virtual absl::StatusOr<std::unique_ptr<InstalledVersion>> Install(const InstallRequest& request,
                                                                    RoundFeed& feed) = 0;
};

struct WriteRequest {
  uint64_t arena_id = 0;
  uint64_t total_bytes = 0;
  bool reuse = false;  // OfferAccepted::reuse_arena
};

// One upload at a time, one thread at a time; Drop may come from another.
class ArenaWriter {
 public:
  virtual ~ArenaWriter() = default;

  virtual absl::Status Begin(const WriteRequest& request) = 0;

  // Offsets ascend and do not overlap; what lies between is zero. May block; the feed cancels.
  virtual absl::Status Write(uint64_t offset, absl::Span<const uint8_t> bytes, RoundFeed& feed) = 0;

  // Every byte of the version is where the bridge can read it.
  virtual absl::Status Finish(RoundFeed& feed) = 0;

  // Below it, every byte is where the bridge can read it (TransferProgress).
  virtual uint64_t mark() const = 0;

  // The arena itself, where it lies in this process, for a pass that copies and digests at
  // once; Advance then says how far it got. Empty where bytes must go through Write.
  virtual absl::Span<uint8_t> Mapped() { return {}; }
  // Keeps what Mapped() shows now in place, through Drop and the next Begin; null where there is
  // no such arena.
  virtual std::shared_ptr<const void> KeepMapped() { return nullptr; }
  virtual void Advance(uint64_t bytes_final) { (void)bytes_final; }

  // DropArena: the bridge has closed it.
  virtual void Drop(uint64_t arena_id) = 0;
};

// The first of `wanted` that works here: shared memory needs the same host and a descriptor
// socket, TCP needs a bulk port. FailedPrecondition says for each why it does not.
struct TransportFacts {
  bool same_host = false;
  bool fd_socket = false;  // Welcome::fd_socket_path is not empty
  bool bulk_port = false;  // Welcome::bulk_address is not empty
};
absl::StatusOr<TransportKind> ChooseTransport(const std::vector<TransportKind>& wanted,
                                              const TransportFacts& facts);

// What a peer wants when nothing was said: shared memory, then TCP.
std::vector<TransportKind> DefaultTransports();

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_TRANSPORT_H_
