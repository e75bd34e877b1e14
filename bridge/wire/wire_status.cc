// What operators ask and are told.

#include "bridge/wire/convert.h"

namespace lockstep::wire {
namespace {

static_assert(static_cast<int>(schema::ExplainKind::ROLLOUT) ==
              static_cast<int>(ExplainKind::kRollout));
static_assert(static_cast<int>(schema::OperatorAction::QUARANTINE_RELEASE) ==
              static_cast<int>(OperatorAction::kQuarantineRelease));
static_assert(static_cast<int>(schema::OperatorAction::SHUTDOWN) ==
              static_cast<int>(OperatorAction::kShutdown));

}  // namespace

void Write(const StatusRequest&, schema::StatusRequest::Builder) {}
absl::Status Read(schema::StatusRequest::Reader, StatusRequest&) { return absl::OkStatus(); }

void Write(const VersionStatus& from, schema::VersionStatus::Builder to) {
  to.setVersion(from.version);
  to.setEpoch(from.epoch);
  to.setState(AsText(from.state));
  to.setManifestRoot(AsData(from.manifest_root));
  to.setContractShort(AsText(from.contract_short));
  to.setBytes(from.bytes);
  to.setTensors(from.tensors);
  to.setNanElements(from.nan_elements);
  to.setZeroChange(from.zero_change);
  to.setBytesHeld(from.bytes_held);
  to.setOnDisk(from.on_disk);
  to.setSamplersLive(from.samplers_live);
  Write(from.rollback_of, to.initRollbackOf());
  to.setSealedWallMs(from.sealed_wall_ms);
}

absl::Status Read(schema::VersionStatus::Reader from, VersionStatus& to) {
  to.version = from.getVersion();
  to.epoch = from.getEpoch();
  to.bytes = from.getBytes();
  to.tensors = from.getTensors();
  to.nan_elements = from.getNanElements();
  to.zero_change = from.getZeroChange();
  to.bytes_held = from.getBytesHeld();
  to.on_disk = from.getOnDisk();
  to.samplers_live = from.getSamplersLive();
  to.sealed_wall_ms = from.getSealedWallMs();
  return FieldReader()
      .Text(from.getState(), kMaxNameBytes, "version_status.state", to.state)
      .Bytes(from.getManifestRoot(), "version_status.manifest_root",
             absl::MakeSpan(to.manifest_root))
      .Text(from.getContractShort(), kMaxNameBytes, "version_status.contract_short",
            to.contract_short)
      .Struct(from.getRollbackOf(), to.rollback_of)
      .Done();
}

void Write(const SamplerStatus& from, schema::SamplerStatus::Builder to) {
  to.setName(AsText(from.name));
  to.setState(AsText(from.state));
  to.setIncarnation(AsData(from.incarnation));
  Write(from.live_version, to.initLiveVersion());
  to.setTransport(AsText(from.transport));
  to.setContractShort(AsText(from.contract_short));
  to.setComponentsVerified(from.components_verified);
  to.setComponentsTotal(from.components_total);
  to.setReason(AsText(CleanText(from.reason, kMaxTextBytes)));
  to.setBytesSent(from.bytes_sent);
  to.setConnected(from.connected);
}

absl::Status Read(schema::SamplerStatus::Reader from, SamplerStatus& to) {
  to.components_verified = from.getComponentsVerified();
  to.components_total = from.getComponentsTotal();
  to.bytes_sent = from.getBytesSent();
  to.connected = from.getConnected();
  return FieldReader()
      .Text(from.getName(), kMaxNameBytes, "sampler_status.name", to.name)
      .Text(from.getState(), kMaxNameBytes, "sampler_status.state", to.state)
      .Bytes(from.getIncarnation(), "sampler_status.incarnation", absl::MakeSpan(to.incarnation))
      .Struct(from.getLiveVersion(), to.live_version)
      .Text(from.getTransport(), kMaxNameBytes, "sampler_status.transport", to.transport)
      .Text(from.getContractShort(), kMaxNameBytes, "sampler_status.contract_short",
            to.contract_short)
      .Text(from.getReason(), kMaxTextBytes, "sampler_status.reason", to.reason)
      .Done();
}

void Write(const TrainerStatus& from, schema::TrainerStatus::Builder to) {
  to.setName(AsText(from.name));
  to.setEpoch(from.epoch);
  to.setConnected(from.connected);
  to.setContractShort(AsText(from.contract_short));
  to.setSourceRole(AsText(from.source_role));
}

absl::Status Read(schema::TrainerStatus::Reader from, TrainerStatus& to) {
  to.epoch = from.getEpoch();
  to.connected = from.getConnected();
  return FieldReader()
      .Text(from.getName(), kMaxNameBytes, "trainer_status.name", to.name)
      .Text(from.getContractShort(), kMaxNameBytes, "trainer_status.contract_short",
            to.contract_short)
      .Text(from.getSourceRole(), kMaxNameBytes, "trainer_status.source_role", to.source_role)
      .Done();
}

void Write(const ReasonCount& from, schema::ReasonCount::Builder to) {
  to.setReason(AsText(from.reason));
  to.setCount(from.count);
}

absl::Status Read(schema::ReasonCount::Reader from, ReasonCount& to) {
  to.count = from.getCount();
  return FieldReader()
      .Text(from.getReason(), kMaxNameBytes, "reason_count.reason", to.reason)
      .Done();
}

void Write(const StatusReply& from, schema::StatusReply::Builder to) {
  to.setRun(AsText(from.run));
  to.setSoftware(AsText(from.software));
  to.setUptimeMs(from.uptime_ms);
  to.setListen(AsText(from.listen));
  to.setContractId(AsText(from.contract_id));
  to.setContractShort(AsText(from.contract_short));
  if (from.trainer.has_value()) Write(*from.trainer, to.initTrainer());
  WriteList(from.versions, to.initVersions(ListSize(from.versions.size())));
  WriteList(from.samplers, to.initSamplers(ListSize(from.samplers.size())));
  to.setRolloutsAdmitted(from.rollouts_admitted);
  to.setRolloutsPending(from.rollouts_pending);
  WriteList(from.rollouts_refused, to.initRolloutsRefused(ListSize(from.rollouts_refused.size())));
  WriteList(from.refusals, to.initRefusals(ListSize(from.refusals.size())));
  WriteList(from.alarms, to.initAlarms(ListSize(from.alarms.size())));
  to.setDraining(from.draining);
}

absl::Status Read(schema::StatusReply::Reader from, StatusReply& to) {
  to.uptime_ms = from.getUptimeMs();
  to.rollouts_admitted = from.getRolloutsAdmitted();
  to.rollouts_pending = from.getRolloutsPending();
  to.draining = from.getDraining();
  FieldReader fields;
  if (from.hasTrainer()) fields.Struct(from.getTrainer(), to.trainer.emplace());
  return fields.Text(from.getRun(), kMaxNameBytes, "status.run", to.run)
      .Text(from.getSoftware(), kMaxNameBytes, "status.software", to.software)
      .Text(from.getListen(), kMaxNameBytes, "status.listen", to.listen)
      .Text(from.getContractId(), kMaxNameBytes, "status.contract_id", to.contract_id)
      .Text(from.getContractShort(), kMaxNameBytes, "status.contract_short", to.contract_short)
      .List(from.getVersions(), kMaxStatusEntries, "status.versions", to.versions)
      .List(from.getSamplers(), kMaxStatusEntries, "status.samplers", to.samplers)
      .List(from.getRolloutsRefused(), kMaxStatusEntries, "status.rollouts_refused",
            to.rollouts_refused)
      .List(from.getRefusals(), kMaxStatusEntries, "status.refusals", to.refusals)
      .Texts(from.getAlarms(), kMaxStatusEntries, kMaxTextBytes, "status.alarms", to.alarms)
      .Done();
}

void Write(const EventsRequest& from, schema::EventsRequest::Builder to) {
  to.setAfterSeq(from.after_seq);
  to.setLimit(from.limit);
}

absl::Status Read(schema::EventsRequest::Reader from, EventsRequest& to) {
  to = {.after_seq = from.getAfterSeq(), .limit = from.getLimit()};
  return absl::OkStatus();
}

void Write(const Event& from, schema::Event::Builder to) {
  to.setSeq(from.seq);
  to.setWallMs(from.wall_ms);
  to.setKind(AsText(from.kind));
  to.setSubject(AsText(from.subject));
  to.setText(AsText(CleanText(from.text, kMaxTextBytes)));
}

absl::Status Read(schema::Event::Reader from, Event& to) {
  to.seq = from.getSeq();
  to.wall_ms = from.getWallMs();
  return FieldReader()
      .Text(from.getKind(), kMaxNameBytes, "event.kind", to.kind)
      .Text(from.getSubject(), kMaxTextBytes, "event.subject", to.subject)
      .Text(from.getText(), kMaxTextBytes, "event.text", to.text)
      .Done();
}

void Write(const EventsReply& from, schema::EventsReply::Builder to) {
  WriteList(from.events, to.initEvents(ListSize(from.events.size())));
  to.setLastSeq(from.last_seq);
}

absl::Status Read(schema::EventsReply::Reader from, EventsReply& to) {
  to.last_seq = from.getLastSeq();
  return FieldReader().List(from.getEvents(), kMaxEvents, "events.events", to.events).Done();
}

void Write(const ExplainRequest& from, schema::ExplainRequest::Builder to) {
  to.setKind(static_cast<schema::ExplainKind>(from.kind));
  to.setId(AsText(from.id));
}

absl::Status Read(schema::ExplainRequest::Reader from, ExplainRequest& to) {
  return FieldReader()
      .Enum(from.getKind(), ExplainKind::kRollout, "explain.kind", to.kind)
      .Text(from.getId(), kMaxNameBytes, "explain.id", to.id)
      .Done();
}

void Write(const ExplainFact& from, schema::ExplainFact::Builder to) {
  to.setName(AsText(from.name));
  to.setValue(AsText(CleanText(from.value, kMaxTextBytes)));
}

absl::Status Read(schema::ExplainFact::Reader from, ExplainFact& to) {
  return FieldReader()
      .Text(from.getName(), kMaxNameBytes, "explain.fact.name", to.name)
      .Text(from.getValue(), kMaxTextBytes, "explain.fact.value", to.value)
      .Done();
}

void Write(const ExplainReply& from, schema::ExplainReply::Builder to) {
  to.setFound(from.found);
  to.setHeadline(AsText(CleanText(from.headline, kMaxTextBytes)));
  auto paragraphs = to.initParagraphs(ListSize(from.paragraphs.size()));
  for (unsigned i = 0; i < paragraphs.size(); ++i) {
    paragraphs.set(i, AsText(CleanText(from.paragraphs[i], kMaxTextBytes)));
  }
  WriteList(from.facts, to.initFacts(ListSize(from.facts.size())));
}

absl::Status Read(schema::ExplainReply::Reader from, ExplainReply& to) {
  to.found = from.getFound();
  return FieldReader()
      .Text(from.getHeadline(), kMaxTextBytes, "explain.headline", to.headline)
      .Texts(from.getParagraphs(), kMaxExplainEntries, kMaxTextBytes, "explain.paragraphs",
             to.paragraphs)
      .List(from.getFacts(), kMaxExplainEntries, "explain.facts", to.facts)
      .Done();
}

void Write(const OperatorAct& from, schema::OperatorAct::Builder to) {
  to.setAction(static_cast<schema::OperatorAction>(from.action));
  to.setArgument(AsText(from.argument));
}

absl::Status Read(schema::OperatorAct::Reader from, OperatorAct& to) {
  return FieldReader()
      .Enum(from.getAction(), OperatorAction::kShutdown, "operator_act.action", to.action)
      .Text(from.getArgument(), kMaxNameBytes, "operator_act.argument", to.argument)
      .Done();
}

void Write(const ActReply& from, schema::ActReply::Builder to) {
  to.setDone(from.done);
  to.setMessage(AsText(CleanText(from.message, kMaxTextBytes)));
}

absl::Status Read(schema::ActReply::Reader from, ActReply& to) {
  to.done = from.getDone();
  return FieldReader()
      .Text(from.getMessage(), kMaxTextBytes, "act_reply.message", to.message)
      .Done();
}

}  // namespace lockstep::wire
