#ifndef LOCKSTEP_BRIDGE_CORE_STATE_H_
#define LOCKSTEP_BRIDGE_CORE_STATE_H_

// Everything the core knows, as plain data. The modules beside this file (peers,
// registration, publish, rounds, arenas, rollouts, operators) are functions over a Machine;
// each says what it may change. Ordered containers only, so that one run's order is every
// run's order.

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "bridge/core/core.h"
#include "bridge/core/timers.h"
#include "policy/contract.h"
#include "policy/protocol.h"
#include "policy/version_ledger.h"

namespace lockstep::core {

// ---------------------------------------------------------------- sessions

// A process start of a peer in a role; one live connection at most.
struct PeerKey {
  PeerRole role = PeerRole::kOperator;
  Incarnation incarnation{};

  auto operator<=>(const PeerKey&) const = default;
};

// A connection that said Hello.
struct Session {
  PeerId peer = 0;
  PeerKey key;
  std::string name;
  bool same_host = false;
  int64_t heard_ms = 0;
};

// Where an answer goes: it follows the incarnation to a new connection.
struct ReplyTo {
  PeerKey key;
  uint64_t seq = 0;  // 0: nobody asked by number
};

// The requests of one incarnation (I7). An entry without an answer is still being worked on.
struct RequestLog {
  uint64_t highest_seq = 0;
  std::map<uint64_t, std::optional<Message>> answers;
};

inline constexpr uint64_t kMaxCachedAnswers = 64;       // per incarnation
inline constexpr uint64_t kMaxDepartedOperators = 256;  // whose acts are still remembered
inline constexpr uint64_t kMaxStaleIncarnations = 16;   // remembered per name
inline constexpr uint64_t kMaxPeerNameBytes = 128;

// ---------------------------------------------------------------- trainers and epochs

struct Epoch {
  EpochRecord record;
  Contract contract;
  std::string contract_id;  // hex
  std::string contract_short;
  AdmissionLevel level = AdmissionLevel::kTokens;
  std::shared_ptr<const Manifest> manifest;
  Digest256 layout{};
  uint64_t arena_bytes = 0;  // ComputeArenaLayout(manifest).total_bytes
};

// The one trainer that may write (I5).
struct Trainer {
  PeerKey key;
  std::string name;
  uint64_t epoch = 0;
};

// ---------------------------------------------------------------- arenas

struct Arena {
  uint64_t bytes = 0;
  bool own = false;       // the bridge's (TCP uploads, spool loads); else the trainer's memory
  Incarnation trainer{};  // whose memory, when not own
  bool arrived = false;   // mapped here
  bool tainted = false;   // a reader vanished with it mapped: its bytes may never change again
  uint64_t bytes_ready = 0;
  std::set<uint64_t> versions;                   // that need its bytes
  std::map<Incarnation, TransportKind> readers;  // samplers with a grant
};

// ---------------------------------------------------------------- versions

// Is the kept copy known to be the trainer's bytes? Asked once, before any digest of the
// copy stands in for the trainer's.
enum class CopyProof { kUnknown, kRunning, kProven, kBroken };

// A publish that has not been answered yet.
struct Publish {
  ReplyTo offer;
  ReplyTo seal;
  PeerKey trainer;
  TransportKind transport = TransportKind::kShm;
  std::optional<uint64_t> arena;         // where the bytes arrive; empty: verify only
  std::optional<SealVersion> held_seal;  // said before the last byte was here
  bool sealed = false;
  std::map<std::string, SamplerOutcome> outcomes;
  std::set<std::string> waiting;  // samplers without an outcome
  uint64_t spool_work = 0;        // 0: nothing to wait for
  uint64_t compare_work = 0;
  int64_t started_ms = 0;
};

struct Version {
  VersionRecord record;  // its `state` is set from `state` when it is written
  VersionStage state = VersionStage::kOffered;
  std::shared_ptr<const Manifest> manifest;
  std::string contract_id;
  std::string contract_short;
  std::optional<uint64_t> arena;  // all bytes are there, or (first publish) are arriving
  bool bytes_held = false;        // all of them
  CopyProof proof = CopyProof::kUnknown;
  std::optional<Publish> publish;   // the first of this number, or its answer's wait
  std::optional<Publish> repeat;    // offered again after the seal, not said sealed yet
  std::set<std::string> key_given;  // samplers that have been told record.key
  bool key_spent = false;           // nobody remembers who was told it (a restart, a rollback)
  std::set<std::string> live_on;    // samplers
  uint64_t rounds = 0;              // running ones
  bool retired_by_operator = false;
  uint64_t spool_load_arena = 0;  // being read back at start-up
  bool from_spool = false;        // must be proven before it is served
  int64_t sealed_ms = 0;
};

// An operator's rollback between its act and its seal.
struct Rollback {
  ReplyTo reply;
  uint64_t source = 0;   // the version whose bytes come back
  uint64_t version = 0;  // the new number
  Digest256 key{};
  uint64_t work = 0;
  std::optional<VersionDigest> digest;
};

// ---------------------------------------------------------------- samplers

enum class SamplerState {
  kWaiting,
  kRefused,
  kAssigned,
  kReceiving,
  kSealed,
  kVerifying,
  kActivating,
  kLive,
  kQuarantined,
  kGone,
};

absl::string_view SamplerStateName(SamplerState state);
std::optional<SamplerState> SamplerStateFromName(absl::string_view name);

enum class RoundPhase { kReceiving, kSealed, kVerifying, kActivating };

struct Round {
  uint64_t id = 0;
  uint64_t version = 0;
  uint64_t arena = 0;
  TransportKind transport = TransportKind::kShm;
  RoundPhase phase = RoundPhase::kReceiving;
  int64_t started_ms = 0;
  ReplyTo last_request;                   // of the newest Sealed, Verified or Activated
  bool at_publish = false;                // started before its publish was answered
  Digest256 key{};                        // once given
  std::optional<VersionDigest> expected;  // the trainer's side under `key`
  uint64_t digest_work = 0;               // computes `expected`; 0: none
  std::optional<Verified> reported;
  uint32_t components_verified = 0;
};

struct Activation {
  uint64_t version = 0;
  uint64_t cache_epoch = 0;
  uint32_t components_verified = 0;
  uint32_t components_total = 0;
};

struct Sampler {
  std::string name;
  Incarnation incarnation{};
  bool connected = false;
  bool same_host = false;
  SamplerState state = SamplerState::kWaiting;
  std::vector<Refusal> reasons;  // of a refusal, failure or quarantine
  std::string note;              // why nothing happens, when nothing is wrong
  // As registered.
  std::string contract_json;
  std::optional<Contract> contract;
  std::string contract_id;
  std::string contract_short;
  Evidence evidence;
  std::optional<Manifest> manifest;
  std::vector<TransportKind> transports;
  std::optional<LiveClaim> claim;  // taken up when the sampler is agreed
  ReplyTo registration;
  // Serving.
  std::optional<uint64_t> live_version;
  uint64_t cache_epoch = 0;
  uint64_t live_arena = 0;          // mapped by its slot; 0: none known
  std::vector<Activation> history;  // of this incarnation, in order
  // Syncing.
  std::optional<Round> round;
  std::string transport;               // of the newest round
  std::optional<TransportKind> avoid;  // failed last time
  uint32_t mismatches = 0;             // in a row, on one version
  uint32_t timeouts = 0;
  uint32_t components_verified = 0;
  uint32_t components_total = 0;
  uint64_t bytes_sent = 0;
};

// ---------------------------------------------------------------- background work

enum class WorkKind { kProof, kRound, kRollback, kSpool, kCompare };

struct Work {
  WorkKind kind = WorkKind::kProof;
  uint64_t version = 0;
  uint64_t other = 0;     // kCompare: the version before
  uint64_t round_id = 0;  // kRound
};

// ---------------------------------------------------------------- rollouts

struct PendingDecision {
  Decision decision;
  Rollout rollout;
  uint64_t number = 0;       // its timer
  bool exact_family = true;  // of the contract it was made under
  std::vector<ReplyTo> replies;
};

inline constexpr uint64_t kMaxRepliesPerPending = 4;

struct RolloutCounts {
  uint64_t admitted = 0;
  std::map<std::string, uint64_t> refused;  // by first reason
};

// ---------------------------------------------------------------- the whole

struct Machine {
  Config config;
  int64_t started_ms = 0;

  // Of the step in progress.
  Time time;
  std::array<uint8_t, 32> entropy{};
  uint64_t derived = 0;  // keys drawn from `entropy` in this step
  Outputs* out = nullptr;

  Timers timers;
  uint64_t next_arena = 0;
  uint64_t next_round = 0;
  uint64_t next_work = 1;
  uint64_t next_pending = 1;
  uint64_t event_seq = 0;

  std::map<PeerId, Session> sessions;
  std::map<PeerKey, PeerId> links;
  std::map<PeerKey, RequestLog> requests;
  std::deque<PeerKey> departed_operators;
  std::map<std::pair<PeerRole, std::string>, PeerKey> names;  // live trainers and samplers
  std::map<std::pair<PeerRole, std::string>, std::deque<Incarnation>> stale_names;
  std::deque<std::pair<PeerRole, std::string>> stale_order;

  std::map<uint64_t, Epoch> epochs;
  uint64_t newest_epoch = 0;
  std::optional<Trainer> trainer;

  std::map<uint64_t, Version> versions;
  std::optional<uint64_t> newest_sealed;
  std::optional<uint64_t> in_flight;    // offered, not sealed
  std::vector<uint64_t> live_versions;  // ever live, ascending: lag counts these
  std::optional<Rollback> rollback;

  std::map<uint64_t, Arena> arenas;
  std::map<std::string, Sampler> samplers;
  std::map<Incarnation, std::string> sampler_names;  // of registered incarnations
  std::map<uint64_t, std::string> round_owner;
  std::map<uint64_t, Work> works;

  std::map<std::string, PendingDecision> pending;
  std::map<uint64_t, std::string> pending_ids;  // by timer number
  std::map<std::string, Decision> recent;
  std::deque<std::string> recent_order;
  RolloutCounts rollouts;
  RolloutCounts unreported;     // decided since the last summary event
  uint64_t refusal_events = 0;  // single ones since then

  std::map<std::string, uint64_t> refusals;   // by code
  std::map<std::string, std::string> alarms;  // subject -> sentence
  bool draining = false;
  bool exited = false;
};

inline const Epoch* ReferenceEpoch(const Machine& m) {
  const auto it = m.epochs.find(m.newest_epoch);
  return it == m.epochs.end() ? nullptr : &it->second;
}

template <typename Map, typename Key>
auto* Find(Map& map, const Key& key) {
  const auto it = map.find(key);
  return it == map.end() ? nullptr : &it->second;
}

}  // namespace lockstep::core

#endif  // LOCKSTEP_BRIDGE_CORE_STATE_H_
