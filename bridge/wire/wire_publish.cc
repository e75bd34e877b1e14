// Publish messages: trainer and bridge.

#include "bridge/wire/convert.h"

namespace lockstep::wire {

void Write(const Offer& from, schema::Offer::Builder to) {
  to.setEpoch(from.epoch);
  to.setVersion(from.version);
  to.setSourceRole(static_cast<schema::SourceRole>(from.source_role));
  to.setLayoutDigest(AsData(from.layout_digest));
  to.setTransport(static_cast<schema::TransportKind>(from.transport));
}

absl::Status Read(schema::Offer::Reader from, Offer& to) {
  to.epoch = from.getEpoch();
  to.version = from.getVersion();
  return FieldReader()
      .Enum(from.getSourceRole(), SourceRole::kDraft, "offer.source_role", to.source_role)
      .Bytes(from.getLayoutDigest(), "offer.layout_digest", absl::MakeSpan(to.layout_digest))
      .Enum(from.getTransport(), TransportKind::kTcp, "offer.transport", to.transport)
      .Done();
}

void Write(const OfferAccepted& from, schema::OfferAccepted::Builder to) {
  to.setVersion(from.version);
  to.setKey(AsData(from.key));
  to.setProbeSeed(from.probe_seed);
  to.setArenaId(from.arena_id);
  to.setReuseArena(from.reuse_arena);
  to.setVerifyOnly(from.verify_only);
}

absl::Status Read(schema::OfferAccepted::Reader from, OfferAccepted& to) {
  to.version = from.getVersion();
  to.probe_seed = from.getProbeSeed();
  to.arena_id = from.getArenaId();
  to.reuse_arena = from.getReuseArena();
  to.verify_only = from.getVerifyOnly();
  return FieldReader().Bytes(from.getKey(), "offer_accepted.key", absl::MakeSpan(to.key)).Done();
}

void Write(const TransferProgress& from, schema::TransferProgress::Builder to) {
  to.setVersion(from.version);
  to.setBytesReady(from.bytes_ready);
}

absl::Status Read(schema::TransferProgress::Reader from, TransferProgress& to) {
  to = {.version = from.getVersion(), .bytes_ready = from.getBytesReady()};
  return absl::OkStatus();
}

void Write(const SealVersion& from, schema::SealVersion::Builder to) {
  to.setVersion(from.version);
  to.setArenaId(from.arena_id);
  Write(from.digest, to.initDigest());
  WriteList(from.components, to.initComponents(ListSize(from.components.size())));
  to.setNanElements(from.nan_elements);
}

absl::Status Read(schema::SealVersion::Reader from, SealVersion& to) {
  to.version = from.getVersion();
  to.arena_id = from.getArenaId();
  to.nan_elements = from.getNanElements();
  return FieldReader()
      .Struct(from.getDigest(), to.digest)
      .List(from.getComponents(), kMaxComponents, "seal_version.components", to.components)
      .Done();
}

void Write(const SamplerOutcome& from, schema::SamplerOutcome::Builder to) {
  to.setSampler(AsText(from.sampler));
  to.setState(AsText(from.state));
  WriteRefusals(from.refusals, to.initRefusals(RefusalListSize(from.refusals)));
  to.setComponentsVerified(from.components_verified);
  to.setComponentsTotal(from.components_total);
  to.setElapsedMs(from.elapsed_ms);
}

absl::Status Read(schema::SamplerOutcome::Reader from, SamplerOutcome& to) {
  to.components_verified = from.getComponentsVerified();
  to.components_total = from.getComponentsTotal();
  to.elapsed_ms = from.getElapsedMs();
  return FieldReader()
      .Text(from.getSampler(), kMaxNameBytes, "outcome.sampler", to.sampler)
      .Text(from.getState(), kMaxNameBytes, "outcome.state", to.state)
      .List(from.getRefusals(), kMaxRefusals, "outcome.refusals", to.refusals)
      .Done();
}

void Write(const PublishOutcome& from, schema::PublishOutcome::Builder to) {
  to.setVersion(from.version);
  WriteList(from.samplers, to.initSamplers(ListSize(from.samplers.size())));
  to.setZeroChange(from.zero_change);
  to.setNanElements(from.nan_elements);
}

absl::Status Read(schema::PublishOutcome::Reader from, PublishOutcome& to) {
  to.version = from.getVersion();
  to.zero_change = from.getZeroChange();
  to.nan_elements = from.getNanElements();
  return FieldReader()
      .List(from.getSamplers(), kMaxSamplers, "publish_outcome.samplers", to.samplers)
      .Done();
}

void Write(const DropArena& from, schema::DropArena::Builder to) { to.setArenaId(from.arena_id); }

absl::Status Read(schema::DropArena::Reader from, DropArena& to) {
  to.arena_id = from.getArenaId();
  return absl::OkStatus();
}

}  // namespace lockstep::wire
