// Session and registration messages.

#include "bridge/wire/convert.h"

namespace lockstep::wire {
namespace {

static_assert(static_cast<int>(schema::PeerRole::OPERATOR) ==
              static_cast<int>(PeerRole::kOperator));
static_assert(static_cast<int>(schema::SourceRole::DRAFT) == static_cast<int>(SourceRole::kDraft));
static_assert(static_cast<int>(schema::TransportKind::TCP) ==
              static_cast<int>(TransportKind::kTcp));

}  // namespace

void Write(const Ping&, schema::Ping::Builder) {}
absl::Status Read(schema::Ping::Reader, Ping&) { return absl::OkStatus(); }
void Write(const Pong&, schema::Pong::Builder) {}
absl::Status Read(schema::Pong::Reader, Pong&) { return absl::OkStatus(); }
void Write(const Goodbye&, schema::Goodbye::Builder) {}
absl::Status Read(schema::Goodbye::Reader, Goodbye&) { return absl::OkStatus(); }

void Write(const Hello& from, schema::Hello::Builder to) {
  to.setRole(static_cast<schema::PeerRole>(from.role));
  to.setName(AsText(from.name));
  to.setRun(AsText(from.run));
  to.setSoftware(AsText(from.software));
}

absl::Status Read(schema::Hello::Reader from, Hello& to) {
  return FieldReader()
      .Enum(from.getRole(), PeerRole::kOperator, "hello.role", to.role)
      .Text(from.getName(), kMaxNameBytes, "hello.name", to.name)
      .Text(from.getRun(), kMaxNameBytes, "hello.run", to.run)
      .Text(from.getSoftware(), kMaxNameBytes, "hello.software", to.software)
      .Done();
}

void Write(const Welcome& from, schema::Welcome::Builder to) {
  to.setRun(AsText(from.run));
  to.setLeaseMs(from.lease_ms);
  to.setFdSocketPath(AsText(from.fd_socket_path));
  to.setBulkAddress(AsText(from.bulk_address));
  to.setBulkKey(AsData(from.bulk_key));
  Write(from.newest_version, to.initNewestVersion());
}

absl::Status Read(schema::Welcome::Reader from, Welcome& to) {
  to.lease_ms = from.getLeaseMs();
  return FieldReader()
      .Text(from.getRun(), kMaxNameBytes, "welcome.run", to.run)
      .Text(from.getFdSocketPath(), kMaxNameBytes, "welcome.fd_socket_path", to.fd_socket_path)
      .Text(from.getBulkAddress(), kMaxNameBytes, "welcome.bulk_address", to.bulk_address)
      .Bytes(from.getBulkKey(), "welcome.bulk_key", absl::MakeSpan(to.bulk_key))
      .Struct(from.getNewestVersion(), to.newest_version)
      .Done();
}

void Write(const Refused& from, schema::Refused::Builder to) {
  WriteRefusals(from.refusals, to.initRefusals(RefusalListSize(from.refusals)));
  to.setFinal(from.final);
}

absl::Status Read(schema::Refused::Reader from, Refused& to) {
  to.final = from.getFinal();
  return FieldReader()
      .List(from.getRefusals(), kMaxRefusals, "refused.refusals", to.refusals)
      .Done();
}

void Write(const RegisterTrainer& from, schema::RegisterTrainer::Builder to) {
  to.setContractJson(AsText(from.contract_json));
  Write(from.evidence, to.initEvidence());
  Write(from.manifest, to.initManifest());
  to.setSourceRole(static_cast<schema::SourceRole>(from.source_role));
}

absl::Status Read(schema::RegisterTrainer::Reader from, RegisterTrainer& to) {
  return FieldReader()
      .Text(from.getContractJson(), kMaxContractJsonBytes, "register_trainer.contract_json",
            to.contract_json)
      .Struct(from.getEvidence(), to.evidence)
      .Struct(from.getManifest(), to.manifest)
      .Enum(from.getSourceRole(), SourceRole::kDraft, "register_trainer.source_role",
            to.source_role)
      .Done();
}

void Write(const LiveClaim& from, schema::LiveClaim::Builder to) {
  to.setVersion(from.version);
  to.setCacheEpoch(from.cache_epoch);
  to.setTicket(AsData(from.ticket));
}

absl::Status Read(schema::LiveClaim::Reader from, LiveClaim& to) {
  to.version = from.getVersion();
  to.cache_epoch = from.getCacheEpoch();
  return FieldReader()
      .Bytes(from.getTicket(), "live_claim.ticket", absl::MakeSpan(to.ticket))
      .Done();
}

void Write(const RegisterSampler& from, schema::RegisterSampler::Builder to) {
  to.setContractJson(AsText(from.contract_json));
  Write(from.evidence, to.initEvidence());
  if (from.manifest.has_value()) Write(*from.manifest, to.initManifest());
  auto transports = to.initTransports(ListSize(from.transports.size()));
  for (unsigned i = 0; i < transports.size(); ++i) {
    transports.set(i, static_cast<schema::TransportKind>(from.transports[i]));
  }
  if (from.live.has_value()) Write(*from.live, to.initLive());
}

absl::Status Read(schema::RegisterSampler::Reader from, RegisterSampler& to) {
  FieldReader fields;
  fields
      .Text(from.getContractJson(), kMaxContractJsonBytes, "register_sampler.contract_json",
            to.contract_json)
      .Struct(from.getEvidence(), to.evidence);
  if (from.hasManifest()) fields.Struct(from.getManifest(), to.manifest.emplace());
  const auto transports = from.getTransports();
  if (transports.size() > kMaxTransports) {
    return absl::InvalidArgumentError("bad message: register_sampler.transports: too many");
  }
  to.transports.resize(transports.size());
  for (unsigned i = 0; i < transports.size(); ++i) {
    fields.Enum(transports[i], TransportKind::kTcp, "register_sampler.transports",
                to.transports[i]);
  }
  if (from.hasLive()) fields.Struct(from.getLive(), to.live.emplace());
  return fields.Done();
}

void Write(const Registered& from, schema::Registered::Builder to) {
  to.setEpoch(from.epoch);
  to.setContractId(AsText(from.contract_id));
  to.setContractShort(AsText(from.contract_short));
  to.setWaiting(from.waiting);
}

absl::Status Read(schema::Registered::Reader from, Registered& to) {
  to.epoch = from.getEpoch();
  to.waiting = from.getWaiting();
  return FieldReader()
      .Text(from.getContractId(), kMaxNameBytes, "registered.contract_id", to.contract_id)
      .Text(from.getContractShort(), kMaxNameBytes, "registered.contract_short", to.contract_short)
      .Done();
}

}  // namespace lockstep::wire
