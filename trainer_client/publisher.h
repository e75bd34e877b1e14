#ifndef LOCKSTEP_TRAINER_CLIENT_PUBLISHER_H_
#define LOCKSTEP_TRAINER_CLIENT_PUBLISHER_H_

// The thread that publishes, one version after the other. Internal to trainer_client.
//
// A publish is Offer, one pass over the tensors, the probe, Seal, outcome. When the bridge is
// lost on the way it starts over with what it still has: the tensors until they were released,
// then its own copy in the arena (shared memory), then nothing but the digests, which suffice
// when the bridge has the bytes.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bridge/transport/transport.h"
#include "policy/contract.h"
#include "policy/manifest.h"
#include "policy/protocol.h"
#include "trainer_client/bridge_link.h"
#include "trainer_client/publish_input.h"

namespace lockstep {

struct PublishJob {
  uint64_t version = 0;
  absl::StatusOr<TensorSources> sources;
  std::function<void()> on_released;
  std::promise<absl::StatusOr<PublishOutcome>> outcome;
};

struct PublisherOptions {
  Manifest manifest;
  Contract contract;
  SourceRole source_role = SourceRole::kActor;
  std::vector<TransportKind> transports;  // most wanted first
  int threads = 1;
};

class Publisher {
 public:
  // `link` outlives the publisher and is open before Start.
  Publisher(PublisherOptions options, BridgeLink& link)
      : options_(std::move(options)),
        layout_(ComputeArenaLayout(options_.manifest)),
        layout_digest_(LayoutDigest(options_.manifest)),
        link_(link) {}
  ~Publisher() { Stop(); }
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  // Chooses the transport, connects it and starts the thread. FailedPrecondition when none of
  // the transports reaches the bridge.
  absl::Status Start();

  // Publishes in flight and waiting end with Cancelled; stops the link.
  void Stop();

  // Thread-safe from here.
  void Add(PublishJob job);
  void DropArena(uint64_t arena_id);
  TransportKind transport() const;

 private:
  // What is left of a job's tensors, and what was computed over them.
  struct Material {
    TensorSources sources;             // empty: gone
    std::shared_ptr<const void> copy;  // keeps `sources` alive when they lie in an arena
    bool released = false;
    // Under the key of the newest OfferAccepted.
    std::optional<Digest256> key;
    uint64_t probe_seed = 0;
    SealVersion seal;
  };

  void Run();
  void Finish(PublishJob& job, absl::StatusOr<PublishOutcome> outcome);
  absl::StatusOr<PublishOutcome> Publish(PublishJob& job);
  absl::StatusOr<PublishOutcome> Attempt(const Standing& standing, PublishJob& job,
                                         Material& material);
  absl::Status Prepare(const OfferAccepted& accepted, PublishJob& job, Material& material);
  absl::Status Probe(const OfferAccepted& accepted, Material& material);
  void Release(PublishJob& job, Material& material, bool moved);
  absl::Status ConnectWriter(uint64_t bridges);
  void TakeDrops();

  const PublisherOptions options_;
  const ArenaLayout layout_;
  const Digest256 layout_digest_;
  BridgeLink& link_;

  // The thread's own after Start.
  std::unique_ptr<transport::ArenaWriter> writer_;
  uint64_t writer_bridges_ = 0;  // Standing::bridges that it was connected for

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool stopped_ = false;
  std::deque<PublishJob> jobs_;
  std::vector<uint64_t> drops_;
  TransportKind transport_ = TransportKind::kShm;

  std::thread thread_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TRAINER_CLIENT_PUBLISHER_H_
