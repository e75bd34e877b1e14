#ifndef LOCKSTEP_BRIDGE_CORE_CORE_H_
#define LOCKSTEP_BRIDGE_CORE_CORE_H_

// The bridge's decisions as a pure state machine: Step(Input, Time) -> Outputs. No IO,
// threads, clocks, sockets or randomness of its own, so a simulation can drive it through
// any order of messages and faults. The loop (bridge/loop) turns sockets and timers into
// Inputs and carries Outputs out.
//
// Order. The loop hands in every message that has arrived before it hands in a Tick: only a
// Tick expires deadlines, so a bridge that was stopped for a while judges nobody by it.
// EventsRequest is answered by the loop from the ledger (the core only renews the lease);
// StatusRequest and ExplainRequest are answered here.
//
// Durability contract with the loop: all `records` of a batch of steps are committed
// before any of the batch's `sends` leave (I3).
//
// Example:
//   core::Core core(config, recovered);
//   core::Outputs out = core.Step({entropy, core::PeerMessage{peer, "", true, envelope}}, time);

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "bridge/core/records.h"
#include "policy/protocol.h"

namespace lockstep::core {

struct Time {
  int64_t now_ms = 0;   // monotonic; all decisions use this
  int64_t wall_ms = 0;  // a label for people, never compared
};

// A connection as the loop knows it; never reused within a process.
using PeerId = uint64_t;

// ---------------------------------------------------------------- inputs

struct PeerMessage {
  PeerId peer = 0;
  std::string authenticated_name;  // from the ZAP User-Id; empty on an owner-only ipc socket
  bool same_host = false;          // shared memory is possible
  Envelope envelope;
  // For SubmitRollout, SubmitRolloutFor, SubmitRescore and ExplainRequest of a rollout: what the
  // ledger holds of that id.
  std::optional<Decision> prior;
};

// The transport says that the peer's process or connection is gone.
struct PeerGone {
  PeerId peer = 0;
  std::string reason;
};

struct MalformedMessage {
  PeerId peer = 0;   // 0: on no connection of the control port; counted, nobody is answered
  uint64_t seq = 0;  // the request's number, when the frame's header could be read
  Refusal refusal;   // kBadMessage, kProtocolVersion, kUnauthorised or kLimitExceeded
};

// A trainer's shared-memory arena was received, sealed as required, and mapped.
struct ArenaArrived {
  uint64_t arena_id = 0;
  Incarnation incarnation{};
  uint64_t bytes = 0;
};

// CreateArena could not be carried out.
struct ArenaFailed {
  uint64_t arena_id = 0;
  std::string reason;
};

// A trainer's upload over TCP: bytes [0, bytes_ready) of the arena are here.
struct UploadMark {
  uint64_t arena_id = 0;
  uint64_t bytes_ready = 0;
};

// Bytes that went out to a sampler, for status.
struct BytesSent {
  Incarnation incarnation{};
  uint64_t bytes = 0;
};

struct DigestDone {
  uint64_t work_id = 0;
  VersionDigest digest;
};

struct CompareDone {
  uint64_t work_id = 0;
  bool equal = false;
};

struct SpoolDone {
  uint64_t work_id = 0;
  std::string error;  // empty: on disk and synced
};

// A spooled version was read back at start-up into an arena of the bridge's own.
struct SpoolLoaded {
  uint64_t version = 0;
  uint64_t arena_id = 0;
  std::string error;
};

struct Tick {};

// SIGTERM: answer what is in flight, take nothing new.
struct Drain {};

using InputBody =
    std::variant<PeerMessage, PeerGone, MalformedMessage, ArenaArrived, ArenaFailed, UploadMark,
                 BytesSent, DigestDone, CompareDone, SpoolDone, SpoolLoaded, Tick, Drain>;

struct Input {
  // Fresh random bytes with every input; keys and seeds are derived from them.
  std::array<uint8_t, 32> entropy{};
  InputBody body;
};

// ---------------------------------------------------------------- outputs

struct Send {
  PeerId peer = 0;
  Envelope envelope;
};

struct ClosePeer {
  PeerId peer = 0;
};

// This incarnation may fetch the arena's descriptor or chunks, or (write) upload into it.
// A write grant also lets a trainer pass the descriptor of a shared-memory arena: without one
// the descriptor is refused, so every accepted Offer that does not reuse an arena needs it.
struct Grant {
  Incarnation incarnation{};
  uint64_t arena_id = 0;
  bool write = false;
};

struct Revoke {
  Incarnation incarnation{};
  uint64_t arena_id = 0;
};

// Chunks below this mark may be served. It goes back to 0 when an arena is filled anew; with
// a write Grant that follows, the upload starts from the beginning.
struct ServeMark {
  uint64_t arena_id = 0;
  uint64_t bytes_ready = 0;
};

// An arena of the bridge's own, for a trainer that uploads over TCP; ArenaFailed when there is
// no memory for it.
struct CreateArena {
  uint64_t arena_id = 0;
  uint64_t bytes = 0;
};

// Unmap and close; no grant is left. Also for an arena that arrived after it was given up.
struct CloseArena {
  uint64_t arena_id = 0;
};

// `digest/paged@v1` of the kept copy, for the worker thread; answered by DigestDone.
struct DigestWork {
  uint64_t work_id = 0;
  uint64_t arena_id = 0;
  uint64_t version = 0;
  Digest256 key{};
  std::shared_ptr<const Manifest> manifest;
};

// Are all tensors of two arenas of one layout equal? Answered by CompareDone.
struct CompareWork {
  uint64_t work_id = 0;
  uint64_t arena_a = 0;
  uint64_t arena_b = 0;
  std::shared_ptr<const Manifest> manifest;
};

// Write the arena to the state folder and sync it; answered by SpoolDone.
struct SpoolWork {
  uint64_t work_id = 0;
  uint64_t arena_id = 0;
  uint64_t version = 0;
};

struct SpoolDrop {
  uint64_t version = 0;
};

// Start-up: read the spool of a version into a new arena; answered by SpoolLoaded.
struct SpoolLoad {
  uint64_t version = 0;
  uint64_t arena_id = 0;
  uint64_t bytes = 0;
};

// Everything is answered after Drain, or an operator asked for it: stop the loop.
struct Exit {};

using Effect = std::variant<ClosePeer, Grant, Revoke, ServeMark, CreateArena, CloseArena,
                            DigestWork, CompareWork, SpoolWork, SpoolDrop, SpoolLoad, Exit>;

struct Outputs {
  std::vector<LedgerRecord> records;  // committed first, in order
  std::vector<Send> sends;            // then these, in order
  std::vector<Effect> effects;        // then these, in order
};

// ---------------------------------------------------------------- configuration

struct Config {
  std::string run = "default";
  std::string software;
  std::string listen;
  std::string fd_socket_path;  // goes out in Welcome; empty without shared memory
  std::string bulk_address;
  Digest256 bulk_key{};
  Digest256 ticket_key{};     // from the ledger, so that tickets outlive a restart
  uint64_t boot = 1;          // grows at every start; arena and round ids start at boot << 32
  Incarnation incarnation{};  // the bridge's
  int64_t lease_ms = 10'000;
  int64_t round_timeout_base_ms = 30'000;
  uint64_t round_min_bytes_per_s = 20'000'000;  // a round's deadline grows with its bytes
  int64_t rescore_timeout_ms = 300'000;
  int64_t drain_timeout_ms = 10'000;
  SourceRole source_role = SourceRole::kActor;  // the one that may publish
  uint64_t max_lag = 0;  // live publishes between a span's version and the newest; 0 is strict
  bool allow_mixed_versions = false;
  double tolerance_max_abs_diff = -1;  // family `none` only; negative: bits decide
  double tolerance_mean_k3 = -1;
  uint64_t kept_versions = 2;                    // K
  uint64_t spool_max_bytes = uint64_t{4} << 30;  // larger versions stay in memory only; 0: none
  uint32_t round_retries = 2;  // after a digest or kernel mismatch, then quarantine
};

// Limits (I10).
inline constexpr uint64_t kMaxPeers = 65'536;
inline constexpr uint64_t kMaxSamplers = 16'384;  // records, connected or not
inline constexpr uint64_t kMaxPendingRollouts = 100'000;
// Covers what the ledger has not committed: a loop's batch has fewer messages.
inline constexpr uint64_t kMaxRecentDecisions = 4'096;
inline constexpr uint64_t kMaxArenas = 8;
inline constexpr uint64_t kMaxVersionsInMemory = 4'096;  // records, not bytes
inline constexpr uint64_t kMaxLiveHistory = 1'024;       // activations kept per sampler

class Core {
 public:
  Core(Config config, RecoveredState recovered);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // What the recovered state asks for (spool loads); call once before the first Step.
  Outputs Start(Time time);

  Outputs Step(const Input& input, Time time);

  // When Step(Tick) is next due, monotonic; int64 max when nothing waits.
  int64_t NextDeadlineMs() const;

  StatusReply Status(Time time) const;

  // `stored` is the ledger's decision for a rollout id.
  ExplainReply Explain(const ExplainRequest& request, const std::optional<Decision>& stored,
                       Time time) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::core

#endif  // LOCKSTEP_BRIDGE_CORE_CORE_H_
