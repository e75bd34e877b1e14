@0xb6c1f0a94d2e7a35;
# What operators ask and are told. policy/protocol.h says what each field means.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("lockstep::schema");

struct OptionalUInt64 {
  union {
    none @0 :Void;
    some @1 :UInt64;
  }
}

struct StatusRequest {}

struct VersionStatus {
  version @0 :UInt64;
  epoch @1 :UInt64;
  state @2 :Text;
  manifestRoot @3 :Data;  # 32 bytes
  contractShort @4 :Text;
  bytes @5 :UInt64;
  tensors @6 :UInt64;
  nanElements @7 :UInt64;
  zeroChange @8 :Bool;
  bytesHeld @9 :Bool;
  onDisk @10 :Bool;
  samplersLive @11 :UInt32;
  rollbackOf @12 :OptionalUInt64;
  sealedWallMs @13 :UInt64;
}

struct SamplerStatus {
  name @0 :Text;
  state @1 :Text;
  incarnation @2 :Data;  # 16 bytes
  liveVersion @3 :OptionalUInt64;
  transport @4 :Text;
  contractShort @5 :Text;
  componentsVerified @6 :UInt32;
  componentsTotal @7 :UInt32;
  reason @8 :Text;
  bytesSent @9 :UInt64;
  connected @10 :Bool;
}

struct TrainerStatus {
  name @0 :Text;
  epoch @1 :UInt64;
  connected @2 :Bool;
  contractShort @3 :Text;
  sourceRole @4 :Text;
}

struct ReasonCount {
  reason @0 :Text;
  count @1 :UInt64;
}

struct StatusReply {
  run @0 :Text;
  software @1 :Text;
  uptimeMs @2 :UInt64;
  listen @3 :Text;
  contractId @4 :Text;
  contractShort @5 :Text;
  trainer @6 :TrainerStatus;  # null: none
  versions @7 :List(VersionStatus);
  samplers @8 :List(SamplerStatus);
  rolloutsAdmitted @9 :UInt64;
  rolloutsPending @10 :UInt64;
  rolloutsRefused @11 :List(ReasonCount);
  refusals @12 :List(ReasonCount);
  alarms @13 :List(Text);
  draining @14 :Bool;
}

struct EventsRequest {
  afterSeq @0 :UInt64;
  limit @1 :UInt32;
}

struct Event {
  seq @0 :UInt64;
  wallMs @1 :UInt64;
  kind @2 :Text;
  subject @3 :Text;
  text @4 :Text;
}

struct EventsReply {
  events @0 :List(Event);
  lastSeq @1 :UInt64;
}

enum ExplainKind {
  version @0;
  sampler @1;
  rollout @2;
}

struct ExplainRequest {
  kind @0 :ExplainKind;
  id @1 :Text;
}

struct ExplainFact {
  name @0 :Text;
  value @1 :Text;
}

struct ExplainReply {
  found @0 :Bool;
  headline @1 :Text;
  paragraphs @2 :List(Text);
  facts @3 :List(ExplainFact);
}

enum OperatorAction {
  rollback @0;
  retire @1;
  quarantineRelease @2;
  shutdown @3;
}

struct OperatorAct {
  action @0 :OperatorAction;
  argument @1 :Text;
}

struct ActReply {
  done @0 :Bool;
  message @1 :Text;
}
