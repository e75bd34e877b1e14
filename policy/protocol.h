#ifndef LOCKSTEP_POLICY_PROTOCOL_H_
#define LOCKSTEP_POLICY_PROTOCOL_H_

// The control protocol as plain structs: every message between a client and the bridge.
// bridge/wire turns them into Cap'n Proto and back; bridge/core consumes and produces
// them; neither knows the other. The verbs are those of ARCHITECTURE.md: Offer, Seal,
// Verify, Activate, Retire, Admit, Refuse.
//
// A client numbers its requests (Envelope::seq, from 1, growing within an incarnation);
// the answer names it (Envelope::reply_to). A request sent twice has one effect and gets
// the same answer (I7). Messages that answer nothing have reply_to 0.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "policy/evidence.h"
#include "policy/ids.h"
#include "policy/manifest.h"
#include "policy/refusal.h"

namespace lockstep {

// Bumped when a message changes meaning; both numbers are named in the refusal.
inline constexpr uint16_t kProtocolVersion = 1;

enum class PeerRole { kTrainer, kSampler, kOperator };
enum class SourceRole { kActor, kReference, kCritic, kDraft };
enum class TransportKind { kShm, kTcp };
// What a rollout must show; each level includes those before it.
enum class AdmissionLevel { kWeights, kKernels, kTokens };
enum class DecisionKind { kAdmit, kRefuse, kPending };

// ---------------------------------------------------------------- session

struct Hello {
  PeerRole role = PeerRole::kOperator;
  std::string name;      // unique among live peers of a role; shown in status
  std::string run;       // must be the bridge's; empty accepts any
  std::string software;  // free build label
};

struct Welcome {
  std::string run;
  uint64_t lease_ms = 0;       // a peer silent for longer is gone
  std::string fd_socket_path;  // Unix socket that passes arenas; empty: no shared memory here
  std::string bulk_address;    // tcp://HOST:PORT of the chunk server; empty: none
  Digest256 bulk_key{};        // authenticates chunk requests of this run
  std::optional<uint64_t> newest_version;
};

struct Ping {};
struct Pong {};
struct Goodbye {};  // the peer leaves by itself

// The answer to any request that is not granted. `final`: asking again will not help.
struct Refused {
  std::vector<Refusal> refusals;
  bool final = true;
};

// ---------------------------------------------------------------- registration

struct RegisterTrainer {
  std::string contract_json;
  Evidence evidence;
  Manifest manifest;
  SourceRole source_role = SourceRole::kActor;
};

// What a sampler that outlived a bridge says it is serving.
struct LiveClaim {
  uint64_t version = 0;
  uint64_t cache_epoch = 0;
  Digest256 ticket{};
};

struct RegisterSampler {
  std::string contract_json;
  Evidence evidence;
  std::optional<Manifest> manifest;       // what it serves; absent: takes the trainer's
  std::vector<TransportKind> transports;  // those it can do, most wanted first
  std::optional<LiveClaim> live;
};

struct Registered {
  uint64_t epoch = 0;  // trainers: the epoch it may write; samplers: the newest seen
  std::string contract_id;
  std::string contract_short;
  bool waiting = false;  // samplers: no trainer has stated a contract yet
};

// ---------------------------------------------------------------- publish

struct ComponentDigest {
  std::string name;  // "layers.0.mlp.swiglu"
  Digest256 digest{};

  bool operator==(const ComponentDigest&) const = default;
};

// `digest/paged@v1` of one side's bytes under the round's key.
struct VersionDigest {
  Digest256 manifest_root{};
  std::vector<Digest256> tensor_roots;  // parallel to Manifest::tensors

  bool operator==(const VersionDigest&) const = default;
};

struct Offer {
  uint64_t epoch = 0;
  uint64_t version = 0;
  SourceRole source_role = SourceRole::kActor;
  Digest256 layout_digest{};
  TransportKind transport = TransportKind::kShm;
};

struct OfferAccepted {
  uint64_t version = 0;
  Digest256 key{};
  uint64_t probe_seed = 0;
  uint64_t arena_id = 0;
  bool reuse_arena = false;  // the trainer has this arena mapped and nobody reads it
  bool verify_only = false;  // the version is sealed and its bytes are here: digest, move nothing
};

// The trainer's running mark: bytes [0, bytes_ready) of the arena layout are final.
struct TransferProgress {
  uint64_t version = 0;
  uint64_t bytes_ready = 0;
};

// The trainer's word that all bytes are in the arena, with what it computed over its own
// live tensors.
struct SealVersion {
  uint64_t version = 0;
  uint64_t arena_id = 0;
  VersionDigest digest;
  std::vector<ComponentDigest> components;
  uint64_t nan_elements = 0;
};

struct SamplerOutcome {
  std::string sampler;
  std::string state;  // "live", "failed", "refused", "quarantined", "waiting"
  std::vector<Refusal> refusals;
  uint32_t components_verified = 0;
  uint32_t components_total = 0;
  uint64_t elapsed_ms = 0;
};

// Answers the Offer once the version is durable and every agreed sampler is live or failed.
struct PublishOutcome {
  uint64_t version = 0;
  std::vector<SamplerOutcome> samplers;
  bool zero_change = false;  // no byte differs from the version before
  uint64_t nan_elements = 0;
};

// Bridge to trainer: the arena may be unmapped.
struct DropArena {
  uint64_t arena_id = 0;
};

// ---------------------------------------------------------------- round (sampler)

struct RoundStart {
  uint64_t round_id = 0;
  uint64_t epoch = 0;
  uint64_t version = 0;
  Manifest manifest;
  TransportKind transport = TransportKind::kShm;
  uint64_t arena_id = 0;
  uint64_t bytes_ready = 0;  // as in TransferProgress
};

struct RoundProgress {
  uint64_t round_id = 0;
  uint64_t bytes_ready = 0;
};

// Sampler: the installed bytes are final. Carries no digest.
struct Sealed {
  uint64_t round_id = 0;
};

// Bridge: digest what is installed under this key, run the probe with this seed.
struct RoundKey {
  uint64_t round_id = 0;
  Digest256 key{};
  uint64_t probe_seed = 0;
};

struct Verified {
  uint64_t round_id = 0;
  VersionDigest digest;
  std::vector<ComponentDigest> components;
};

struct Activate {
  uint64_t round_id = 0;
};

// Sampler: the version is the one that new readers get, and the cache of the old one is
// flushed.
struct Activated {
  uint64_t round_id = 0;
  uint64_t cache_epoch = 0;
  std::string flush_receipt;  // what OnFlushCache returned; never empty
};

struct Live {
  uint64_t round_id = 0;
  uint64_t version = 0;
  uint64_t cache_epoch = 0;
  Digest256 ticket{};
};

// Sampler: this round cannot be finished here.
struct RoundFailed {
  uint64_t round_id = 0;
  Refusal refusal;
};

// Bridge: forget the round; the version served before stays.
struct RoundAbort {
  uint64_t round_id = 0;
  Refusal refusal;
};

// Sampler: no reader uses this arena any more and its mapping is gone.
struct ReleaseArena {
  uint64_t arena_id = 0;
};

// Bridge to sampler: no rollouts, no rounds, until released by an operator or restarted.
struct Fence {
  Refusal refusal;
};
struct Unfence {};

// ---------------------------------------------------------------- rollouts

// Tokens [start, end) were decoded under `version`.
struct TokenSpan {
  uint64_t version = 0;
  uint64_t start = 0;
  uint64_t end = 0;

  bool operator==(const TokenSpan&) const = default;
};

struct Rollout {
  std::string id;       // at most kMaxRolloutIdBytes; by default the hex of `content`
  Digest256 content{};  // BLAKE2b-256 of the canonical line: same id, other content is a duplicate
  std::string sampler;
  Incarnation incarnation{};
  std::string contract_id;
  std::vector<TokenSpan> spans;
  uint64_t cache_epoch = 0;
  Digest256 ticket{};
  AdmissionLevel level = AdmissionLevel::kTokens;
  std::vector<int64_t> tokens;          // of the completion
  std::vector<float> sampler_logprobs;  // decision-time float32, one a token
};

inline constexpr uint64_t kMaxRolloutIdBytes = 256;
inline constexpr uint64_t kMaxRolloutTokens = 1'000'000;
inline constexpr uint64_t kMaxRolloutSpans = 1'024;

struct SubmitRollout {
  Rollout rollout;
};

// An operator's submission of recorded rollouts: the bridge fills incarnation, contract,
// cache epoch and ticket from its record of the sampler.
struct SubmitRolloutFor {
  Rollout rollout;  // `sampler` empty: the first by name that is live on the version
  std::optional<std::vector<float>> trainer_logprobs;
};

struct SubmitRescore {
  std::string rollout_id;
  std::vector<float> trainer_logprobs;  // float32, one a token
};

struct TokenMismatch {
  uint64_t index = 0;
  uint32_t sampler_bits = 0;  // float32 bit patterns
  uint32_t trainer_bits = 0;

  bool operator==(const TokenMismatch&) const = default;
};

inline constexpr uint64_t kMaxReportedMismatches = 8;

struct Decision {
  std::string rollout_id;
  Digest256 content{};
  DecisionKind kind = DecisionKind::kRefuse;
  // In the order of the checks; the first is the reason, all are listed.
  std::vector<Refusal> reasons;
  AdmissionLevel level = AdmissionLevel::kTokens;
  std::string sampler;
  std::vector<TokenSpan> spans;
  std::string contract_id;
  // Present when the trainer's log-probabilities were compared; float64 means over tokens of
  // k1 = -d, k2 = d*d/2, k3 = expm1(d) - d with d = trainer - sampler.
  bool compared = false;
  double k1 = 0, k2 = 0, k3 = 0;
  double max_abs_diff = 0;
  float k3_float32_naive = 0;  // (exp(d) - d) - 1 in float32, as usually computed
  uint64_t compared_tokens = 0;
  uint64_t mismatched_tokens = 0;
  std::vector<TokenMismatch> mismatches;  // the first kMaxReportedMismatches
  bool tolerance_mode = false;            // judged by a tolerance, not by bits

  bool operator==(const Decision&) const = default;
};

struct DecisionReply {
  Decision decision;
};

// ---------------------------------------------------------------- operators

struct StatusRequest {};

struct VersionStatus {
  uint64_t version = 0;
  uint64_t epoch = 0;
  std::string
      state;  // "offered", "transferring", "sealed", "verified", "live", "retired", "discarded"
  Digest256 manifest_root{};
  std::string contract_short;
  uint64_t bytes = 0;
  uint64_t tensors = 0;
  uint64_t nan_elements = 0;
  bool zero_change = false;
  bool bytes_held = false;  // the bridge can serve it to a late sampler
  bool on_disk = false;     // and could after a crash
  uint32_t samplers_live = 0;
  std::optional<uint64_t> rollback_of;
  uint64_t sealed_wall_ms = 0;
};

struct SamplerStatus {
  std::string name;
  std::string state;  // "waiting", "refused", "assigned", "receiving", "sealed", "verifying",
                      // "activating", "live", "quarantined", "gone"
  Incarnation incarnation{};
  std::optional<uint64_t> live_version;
  std::string transport;  // "shm", "tcp", ""
  std::string contract_short;
  uint32_t components_verified = 0;
  uint32_t components_total = 0;
  std::string reason;  // of a refusal, failure or quarantine
  uint64_t bytes_sent = 0;
  bool connected = false;
};

struct TrainerStatus {
  std::string name;
  uint64_t epoch = 0;
  bool connected = false;
  std::string contract_short;
  std::string source_role;
};

struct ReasonCount {
  std::string reason;
  uint64_t count = 0;
};

struct StatusReply {
  std::string run;
  std::string software;
  uint64_t uptime_ms = 0;
  std::string listen;
  std::string contract_id;
  std::string contract_short;
  std::optional<TrainerStatus> trainer;
  std::vector<VersionStatus> versions;  // ascending
  std::vector<SamplerStatus> samplers;  // by name
  uint64_t rollouts_admitted = 0;
  uint64_t rollouts_pending = 0;
  std::vector<ReasonCount> rollouts_refused;  // by first reason
  std::vector<ReasonCount> refusals;          // of everything else: peers, publishes, messages
  std::vector<std::string> alarms;            // open ones, a sentence each
  bool draining = false;
};

struct EventsRequest {
  uint64_t after_seq = 0;
  uint32_t limit = 1'000;
};

struct Event {
  uint64_t seq = 0;
  uint64_t wall_ms = 0;
  std::string kind;     // the verb: "offer", "seal", "verify", "activate", "live", "refuse", ...
  std::string subject;  // "version 3", "sampler s1", "rollout 5f..."
  std::string text;     // one sentence
};

struct EventsReply {
  std::vector<Event> events;
  uint64_t last_seq = 0;
};

enum class ExplainKind { kVersion, kSampler, kRollout };

struct ExplainRequest {
  ExplainKind kind = ExplainKind::kVersion;
  std::string id;
};

struct ExplainFact {
  std::string name;
  std::string value;
};

struct ExplainReply {
  bool found = false;
  std::string headline;                 // "rollout 5f1c... refused: logprob_mismatch"
  std::vector<std::string> paragraphs;  // what happened, why, what to do
  std::vector<ExplainFact> facts;       // the numbers
};

enum class OperatorAction { kRollback, kRetire, kQuarantineRelease, kShutdown };

struct OperatorAct {
  OperatorAction action = OperatorAction::kRollback;
  std::string argument;  // a version, a sampler's name, or empty
};

struct ActReply {
  bool done = false;
  std::string message;
};

using Message =
    std::variant<Hello, Welcome, Ping, Pong, Goodbye, Refused, RegisterTrainer, RegisterSampler,
                 Registered, Offer, OfferAccepted, TransferProgress, SealVersion, PublishOutcome,
                 DropArena, RoundStart, RoundProgress, Sealed, RoundKey, Verified, Activate,
                 Activated, Live, RoundFailed, RoundAbort, ReleaseArena, Fence, Unfence,
                 SubmitRollout, SubmitRolloutFor, SubmitRescore, DecisionReply, StatusRequest,
                 StatusReply, EventsRequest, EventsReply, ExplainRequest, ExplainReply, OperatorAct,
                 ActReply>;

struct Envelope {
  Incarnation incarnation{};  // the sender's; the bridge's is new at every start
  uint64_t seq = 0;           // a client's request number; 0 for what needs no answer
  uint64_t reply_to = 0;      // the request this answers
  Message body;
};

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_PROTOCOL_H_
