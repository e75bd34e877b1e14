// Messages of a round between bridge and sampler.

#include "bridge/wire/convert.h"

namespace lockstep::wire {

void Write(const RoundStart& from, schema::RoundStart::Builder to) {
  to.setRoundId(from.round_id);
  to.setEpoch(from.epoch);
  to.setVersion(from.version);
  Write(from.manifest, to.initManifest());
  to.setTransport(static_cast<schema::TransportKind>(from.transport));
  to.setArenaId(from.arena_id);
  to.setBytesReady(from.bytes_ready);
}

absl::Status Read(schema::RoundStart::Reader from, RoundStart& to) {
  to.round_id = from.getRoundId();
  to.epoch = from.getEpoch();
  to.version = from.getVersion();
  to.arena_id = from.getArenaId();
  to.bytes_ready = from.getBytesReady();
  return FieldReader()
      .Struct(from.getManifest(), to.manifest)
      .Enum(from.getTransport(), TransportKind::kTcp, "round_start.transport", to.transport)
      .Done();
}

void Write(const RoundProgress& from, schema::RoundProgress::Builder to) {
  to.setRoundId(from.round_id);
  to.setBytesReady(from.bytes_ready);
}

absl::Status Read(schema::RoundProgress::Reader from, RoundProgress& to) {
  to = {.round_id = from.getRoundId(), .bytes_ready = from.getBytesReady()};
  return absl::OkStatus();
}

void Write(const Sealed& from, schema::Sealed::Builder to) { to.setRoundId(from.round_id); }

absl::Status Read(schema::Sealed::Reader from, Sealed& to) {
  to.round_id = from.getRoundId();
  return absl::OkStatus();
}

void Write(const RoundKey& from, schema::RoundKey::Builder to) {
  to.setRoundId(from.round_id);
  to.setKey(AsData(from.key));
  to.setProbeSeed(from.probe_seed);
}

absl::Status Read(schema::RoundKey::Reader from, RoundKey& to) {
  to.round_id = from.getRoundId();
  to.probe_seed = from.getProbeSeed();
  return FieldReader().Bytes(from.getKey(), "round_key.key", absl::MakeSpan(to.key)).Done();
}

void Write(const Verified& from, schema::Verified::Builder to) {
  to.setRoundId(from.round_id);
  Write(from.digest, to.initDigest());
  WriteList(from.components, to.initComponents(ListSize(from.components.size())));
}

absl::Status Read(schema::Verified::Reader from, Verified& to) {
  to.round_id = from.getRoundId();
  return FieldReader()
      .Struct(from.getDigest(), to.digest)
      .List(from.getComponents(), kMaxComponents, "verified.components", to.components)
      .Done();
}

void Write(const Activate& from, schema::Activate::Builder to) { to.setRoundId(from.round_id); }

absl::Status Read(schema::Activate::Reader from, Activate& to) {
  to.round_id = from.getRoundId();
  return absl::OkStatus();
}

void Write(const Activated& from, schema::Activated::Builder to) {
  to.setRoundId(from.round_id);
  to.setCacheEpoch(from.cache_epoch);
  to.setFlushReceipt(AsText(from.flush_receipt));
}

absl::Status Read(schema::Activated::Reader from, Activated& to) {
  to.round_id = from.getRoundId();
  to.cache_epoch = from.getCacheEpoch();
  return FieldReader()
      .Text(from.getFlushReceipt(), kMaxTextBytes, "activated.flush_receipt", to.flush_receipt)
      .Done();
}

void Write(const Live& from, schema::Live::Builder to) {
  to.setRoundId(from.round_id);
  to.setVersion(from.version);
  to.setCacheEpoch(from.cache_epoch);
  to.setTicket(AsData(from.ticket));
}

absl::Status Read(schema::Live::Reader from, Live& to) {
  to.round_id = from.getRoundId();
  to.version = from.getVersion();
  to.cache_epoch = from.getCacheEpoch();
  return FieldReader().Bytes(from.getTicket(), "live.ticket", absl::MakeSpan(to.ticket)).Done();
}

void Write(const RoundFailed& from, schema::RoundFailed::Builder to) {
  to.setRoundId(from.round_id);
  Write(from.refusal, to.initRefusal());
}

absl::Status Read(schema::RoundFailed::Reader from, RoundFailed& to) {
  to.round_id = from.getRoundId();
  return Read(from.getRefusal(), to.refusal);
}

void Write(const RoundAbort& from, schema::RoundAbort::Builder to) {
  to.setRoundId(from.round_id);
  Write(from.refusal, to.initRefusal());
}

absl::Status Read(schema::RoundAbort::Reader from, RoundAbort& to) {
  to.round_id = from.getRoundId();
  return Read(from.getRefusal(), to.refusal);
}

void Write(const ReleaseArena& from, schema::ReleaseArena::Builder to) {
  to.setArenaId(from.arena_id);
}

absl::Status Read(schema::ReleaseArena::Reader from, ReleaseArena& to) {
  to.arena_id = from.getArenaId();
  return absl::OkStatus();
}

void Write(const Fence& from, schema::Fence::Builder to) { Write(from.refusal, to.initRefusal()); }

absl::Status Read(schema::Fence::Reader from, Fence& to) {
  return Read(from.getRefusal(), to.refusal);
}

void Write(const Unfence&, schema::Unfence::Builder) {}
absl::Status Read(schema::Unfence::Reader, Unfence&) { return absl::OkStatus(); }

}  // namespace lockstep::wire
