@0xe2a7c35d18f04b96;
# The control protocol on the wire. policy/protocol.h says what each message and field
# means; bridge/wire is the only reader and writer. Digests are Data of 32 bytes,
# incarnations Data of 16; a null struct pointer is an absent optional. A change of
# meaning bumps kProtocolVersion, and peers of two versions do not talk, so fields may be
# renumbered together with it.

using Cxx = import "/capnp/c++.capnp";
using Status = import "status.capnp";
$Cxx.namespace("lockstep::schema");

# ---------------------------------------------------------------- shared parts

struct Refusal {
  code @0 :Text;  # RefusalCodeName, "contract_mismatch"; an unknown name is a decode error
  key @1 :Text;
  message @2 :Text;
}

enum SourceRole {
  actor @0;
  reference @1;
  critic @2;
  draft @3;
}

enum TransportKind {
  shm @0;
  tcp @1;
}

struct NamedDigest {
  name @0 :Text;
  digest @1 :Data;
}

struct Evidence {
  tables @0 :List(NamedDigest);  # names unique
  probe @1 :List(NamedDigest);   # names unique
}

enum Dtype {
  bool @0;
  u8 @1;
  i8 @2;
  f8E5m2 @3;
  f8E4m3 @4;
  f8E8m0 @5;
  i16 @6;
  u16 @7;
  f16 @8;
  bf16 @9;
  i32 @10;
  u32 @11;
  f32 @12;
  f64 @13;
  i64 @14;
  u64 @15;
}

enum TensorOrigin {
  synced @0;
  frozen @1;
  derived @2;
}

struct TensorSpec {
  name @0 :Text;
  dtype @1 :Dtype;
  shape @2 :List(UInt64);
  origin @3 :TensorOrigin;
}

struct AliasGroup {
  names @0 :List(Text);
}

struct Manifest {
  tensors @0 :List(TensorSpec);
  aliasGroups @1 :List(AliasGroup);
}

struct VersionDigest {
  manifestRoot @0 :Data;
  tensorRoots @1 :Data;  # 32 bytes a tensor, one after the other
}

struct TokenSpan {
  version @0 :UInt64;
  start @1 :UInt64;
  end @2 :UInt64;
}

enum AdmissionLevel {
  weights @0;
  kernels @1;
  tokens @2;
}

struct Rollout {
  id @0 :Text;
  content @1 :Data;
  sampler @2 :Text;
  incarnation @3 :Data;
  contractId @4 :Text;
  spans @5 :List(TokenSpan);
  cacheEpoch @6 :UInt64;
  ticket @7 :Data;
  level @8 :AdmissionLevel;
  tokens @9 :List(Int64);
  samplerLogprobs @10 :List(Float32);
}

enum DecisionKind {
  admit @0;
  refuse @1;
  pending @2;
}

struct TokenMismatch {
  index @0 :UInt64;
  samplerBits @1 :UInt32;
  trainerBits @2 :UInt32;
}

struct Decision {
  rolloutId @0 :Text;
  content @1 :Data;
  kind @2 :DecisionKind;
  reasons @3 :List(Refusal);
  level @4 :AdmissionLevel;
  sampler @5 :Text;
  spans @6 :List(TokenSpan);
  contractId @7 :Text;
  compared @8 :Bool;
  k1 @9 :Float64;
  k2 @10 :Float64;
  k3 @11 :Float64;
  maxAbsDiff @12 :Float64;
  k3Float32Naive @13 :Float32;
  comparedTokens @14 :UInt64;
  mismatchedTokens @15 :UInt64;
  mismatches @16 :List(TokenMismatch);
  toleranceMode @17 :Bool;
}

# ---------------------------------------------------------------- session

enum PeerRole {
  trainer @0;
  sampler @1;
  operator @2;
}

struct Hello {
  role @0 :PeerRole;
  name @1 :Text;
  run @2 :Text;
  software @3 :Text;
}

struct Welcome {
  run @0 :Text;
  leaseMs @1 :UInt64;
  fdSocketPath @2 :Text;
  bulkAddress @3 :Text;
  bulkKey @4 :Data;
  newestVersion @5 :Status.OptionalUInt64;
}

struct Ping {}
struct Pong {}
struct Goodbye {}

struct Refused {
  refusals @0 :List(Refusal);
  final @1 :Bool;
}

# ---------------------------------------------------------------- registration

struct RegisterTrainer {
  contractJson @0 :Text;
  evidence @1 :Evidence;
  manifest @2 :Manifest;
  sourceRole @3 :SourceRole;
}

struct LiveClaim {
  version @0 :UInt64;
  cacheEpoch @1 :UInt64;
  ticket @2 :Data;
}

struct RegisterSampler {
  contractJson @0 :Text;
  evidence @1 :Evidence;
  manifest @2 :Manifest;  # null: takes the trainer's
  transports @3 :List(TransportKind);
  live @4 :LiveClaim;  # null: serves nothing
}

struct Registered {
  epoch @0 :UInt64;
  contractId @1 :Text;
  contractShort @2 :Text;
  waiting @3 :Bool;
}

# ---------------------------------------------------------------- publish

struct Offer {
  epoch @0 :UInt64;
  version @1 :UInt64;
  sourceRole @2 :SourceRole;
  layoutDigest @3 :Data;
  transport @4 :TransportKind;
}

struct OfferAccepted {
  version @0 :UInt64;
  key @1 :Data;
  probeSeed @2 :UInt64;
  arenaId @3 :UInt64;
  reuseArena @4 :Bool;
  verifyOnly @5 :Bool;
}

struct TransferProgress {
  version @0 :UInt64;
  bytesReady @1 :UInt64;
}

struct SealVersion {
  version @0 :UInt64;
  arenaId @1 :UInt64;
  digest @2 :VersionDigest;
  components @3 :List(NamedDigest);
  nanElements @4 :UInt64;
}

struct SamplerOutcome {
  sampler @0 :Text;
  state @1 :Text;
  refusals @2 :List(Refusal);
  componentsVerified @3 :UInt32;
  componentsTotal @4 :UInt32;
  elapsedMs @5 :UInt64;
}

struct PublishOutcome {
  version @0 :UInt64;
  samplers @1 :List(SamplerOutcome);
  zeroChange @2 :Bool;
  nanElements @3 :UInt64;
}

struct DropArena {
  arenaId @0 :UInt64;
}

# ---------------------------------------------------------------- round

struct RoundStart {
  roundId @0 :UInt64;
  epoch @1 :UInt64;
  version @2 :UInt64;
  manifest @3 :Manifest;
  transport @4 :TransportKind;
  arenaId @5 :UInt64;
  bytesReady @6 :UInt64;
}

struct RoundProgress {
  roundId @0 :UInt64;
  bytesReady @1 :UInt64;
}

struct Sealed {
  roundId @0 :UInt64;
}

struct RoundKey {
  roundId @0 :UInt64;
  key @1 :Data;
  probeSeed @2 :UInt64;
}

struct Verified {
  roundId @0 :UInt64;
  digest @1 :VersionDigest;
  components @2 :List(NamedDigest);
}

struct Activate {
  roundId @0 :UInt64;
}

struct Activated {
  roundId @0 :UInt64;
  cacheEpoch @1 :UInt64;
  flushReceipt @2 :Text;
}

struct Live {
  roundId @0 :UInt64;
  version @1 :UInt64;
  cacheEpoch @2 :UInt64;
  ticket @3 :Data;
}

struct RoundFailed {
  roundId @0 :UInt64;
  refusal @1 :Refusal;
}

struct RoundAbort {
  roundId @0 :UInt64;
  refusal @1 :Refusal;
}

struct ReleaseArena {
  arenaId @0 :UInt64;
}

struct Fence {
  refusal @0 :Refusal;
}

struct Unfence {}

# ---------------------------------------------------------------- rollouts

struct SubmitRollout {
  rollout @0 :Rollout;
}

struct SubmitRolloutFor {
  rollout @0 :Rollout;
  trainerLogprobs :union {
    none @1 :Void;
    some @2 :List(Float32);
  }
}

struct SubmitRescore {
  rolloutId @0 :Text;
  trainerLogprobs @1 :List(Float32);
}

struct DecisionReply {
  decision @0 :Decision;
}

# ---------------------------------------------------------------- frames

struct Envelope {
  incarnation @0 :Data;
  seq @1 :UInt64;
  replyTo @2 :UInt64;
  body :union {
    hello @3 :Hello;
    welcome @4 :Welcome;
    ping @5 :Ping;
    pong @6 :Pong;
    goodbye @7 :Goodbye;
    refused @8 :Refused;
    registerTrainer @9 :RegisterTrainer;
    registerSampler @10 :RegisterSampler;
    registered @11 :Registered;
    offer @12 :Offer;
    offerAccepted @13 :OfferAccepted;
    transferProgress @14 :TransferProgress;
    sealVersion @15 :SealVersion;
    publishOutcome @16 :PublishOutcome;
    dropArena @17 :DropArena;
    roundStart @18 :RoundStart;
    roundProgress @19 :RoundProgress;
    sealed @20 :Sealed;
    roundKey @21 :RoundKey;
    verified @22 :Verified;
    activate @23 :Activate;
    activated @24 :Activated;
    live @25 :Live;
    roundFailed @26 :RoundFailed;
    roundAbort @27 :RoundAbort;
    releaseArena @28 :ReleaseArena;
    fence @29 :Fence;
    unfence @30 :Unfence;
    submitRollout @31 :SubmitRollout;
    submitRolloutFor @32 :SubmitRolloutFor;
    submitRescore @33 :SubmitRescore;
    decisionReply @34 :DecisionReply;
    statusRequest @35 :Status.StatusRequest;
    statusReply @36 :Status.StatusReply;
    eventsRequest @37 :Status.EventsRequest;
    eventsReply @38 :Status.EventsReply;
    explainRequest @39 :Status.ExplainRequest;
    explainReply @40 :Status.ExplainReply;
    operatorAct @41 :Status.OperatorAct;
    actReply @42 :Status.ActReply;
  }
}

# What the ledger stores as bytes.
struct Blob {
  union {
    decision @0 :Decision;
    rollout @1 :Rollout;
    manifest @2 :Manifest;
    versionDigest @3 :VersionDigest;
    components @4 :List(NamedDigest);
    evidence @5 :Evidence;
    refusals @6 :List(Refusal);
  }
}
