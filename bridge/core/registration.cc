#include "bridge/core/registration.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "bridge/core/emit.h"
#include "bridge/core/outcomes.h"
#include "bridge/core/publish.h"
#include "bridge/core/retention.h"
#include "bridge/core/rounds.h"
#include "bridge/core/tickets.h"
#include "policy/agreement.h"

namespace lockstep::core {
namespace {

Refusal ShuttingDown(absl::string_view subject) {
  return {RefusalCode::kShuttingDown, std::string(subject),
          "the bridge is shutting down; register again when it is back"};
}

bool SameRegistration(const EpochRecord& a, const EpochRecord& b) {
  return a.trainer == b.trainer && a.incarnation == b.incarnation &&
         a.source_role == b.source_role && a.contract_json == b.contract_json &&
         a.evidence == b.evidence && a.manifest == b.manifest;
}

Registered RegisteredFor(const Epoch& epoch) {
  return {epoch.record.epoch, epoch.contract_id, epoch.contract_short, /*waiting=*/false};
}

std::vector<Refusal> Differences(const Epoch& epoch, const Sampler& sampler) {
  std::vector<Refusal> differences =
      CompareSides({epoch.contract, epoch.record.evidence}, {*sampler.contract, sampler.evidence});
  if (sampler.manifest.has_value()) {
    for (Refusal& refusal : CompareManifests(*epoch.manifest, *sampler.manifest)) {
      differences.push_back(std::move(refusal));
    }
  }
  return differences;
}

void RefuseSampler(Machine& m, Sampler& sampler, const ReplyTo& reply,
                   std::vector<Refusal> reasons) {
  if (sampler.round.has_value()) AbortRound(m, sampler, reasons.front());
  ClearLive(m, sampler);
  if (sampler.state == SamplerState::kQuarantined) {
    // Stating another contract is no way out of quarantine.
    Refuse(m, reply, SamplerSubject(sampler.name), std::move(reasons));
    return;
  }
  sampler.state = SamplerState::kRefused;
  sampler.reasons = reasons;
  RecordSampler(m, sampler);
  ReportToWaiting(m, sampler, "refused", reasons);
  Refuse(m, reply, SamplerSubject(sampler.name), std::move(reasons));
}

// The sampler outlived a bridge: its ticket shows which verified version it serves.
void TakeUpClaim(Machine& m, Sampler& sampler) {
  const std::optional<LiveClaim> claim = std::exchange(sampler.claim, std::nullopt);
  if (!claim.has_value() || sampler.live_version.has_value()) return;
  Version* version = Find(m.versions, claim->version);
  const bool known = version != nullptr && version->state != VersionStage::kOffered &&
                     version->state != VersionStage::kTransferring &&
                     version->state != VersionStage::kDiscarded;
  if (!known || !GenuineClaim(m, sampler, *claim)) {
    RecordEvent(m, "claim", SamplerSubject(sampler.name),
                absl::StrCat("its claim to serve version ", claim->version,
                             " is not proven by its ticket; it is synced anew"));
    return;
  }
  const uint32_t total = static_cast<uint32_t>(version->record.components.size());
  sampler.live_version = claim->version;
  sampler.cache_epoch = claim->cache_epoch;
  sampler.state = SamplerState::kLive;
  sampler.components_verified = sampler.components_total = total;
  const bool listed = !sampler.history.empty() &&
                      sampler.history.back().version == claim->version &&
                      sampler.history.back().cache_epoch == claim->cache_epoch;
  if (!listed) sampler.history.push_back({claim->version, claim->cache_epoch, total, total});
  version->live_on.insert(sampler.name);
  RecordSampler(m, sampler);
  RecordEvent(m, "live", SamplerSubject(sampler.name),
              absl::StrCat("still serves version ", claim->version, ", by its ticket"));
}

void AgreeSampler(Machine& m, const Epoch& epoch, Sampler& sampler, const ReplyTo& reply) {
  Answer(m, reply, RegisteredFor(epoch));
  if (sampler.state == SamplerState::kQuarantined) {
    if (!sampler.reasons.empty()) {
      SendTo(m, SamplerKey(sampler), Fence{sampler.reasons.front()});
    }
    return;
  }
  sampler.reasons.clear();
  sampler.state = sampler.live_version.has_value() ? SamplerState::kLive : SamplerState::kAssigned;
  TakeUpClaim(m, sampler);
  RecordSampler(m, sampler);
  RecordEvent(m, "agree", SamplerSubject(sampler.name),
              absl::StrCat("agrees on contract ", epoch.contract_short));
  ScheduleSampler(m, sampler);
}

// A new trainer may have changed what everyone is compared with.
void ReevaluateSamplers(Machine& m) {
  const Epoch& epoch = *ReferenceEpoch(m);
  for (auto& [name, sampler] : m.samplers) {
    if (!sampler.connected || !sampler.contract.has_value()) continue;
    const ReplyTo unsolicited{SamplerKey(sampler), 0};
    const bool agreed =
        sampler.state != SamplerState::kWaiting && sampler.state != SamplerState::kRefused;
    std::vector<Refusal> differences = Differences(epoch, sampler);
    sampler.note.clear();
    if (!differences.empty()) {
      const bool told = sampler.state == SamplerState::kRefused && sampler.reasons == differences;
      if (!told) RefuseSampler(m, sampler, unsolicited, std::move(differences));
    } else if (!agreed) {
      AgreeSampler(m, epoch, sampler, unsolicited);
    }
  }
}

// Another process under this name: everything the old one held is void.
void ResetSampler(Machine& m, Sampler& sampler, const Session& session) {
  m.sampler_names.erase(sampler.incarnation);
  ClearLive(m, sampler);
  ClearAlarm(m, SamplerSubject(sampler.name));
  sampler = Sampler{};
  sampler.name = session.name;
  sampler.incarnation = session.key.incarnation;
}

// Room for one more name: the records of samplers that left go first.
bool MakeRoomForSampler(Machine& m) {
  if (m.samplers.size() < kMaxSamplers) return true;
  for (auto it = m.samplers.begin(); it != m.samplers.end(); ++it) {
    if (it->second.connected) continue;
    m.sampler_names.erase(it->second.incarnation);
    m.samplers.erase(it);
    return true;
  }
  return false;
}

void ReplaceWriter(Machine& m, const Session& session, uint64_t epoch) {
  if (!m.trainer.has_value()) return;
  const Refusal stale{RefusalCode::kStaleEpoch, absl::StrCat("epoch ", m.trainer->epoch),
                      absl::StrCat("trainer '", session.name, "' took epoch ", epoch, "; epoch ",
                                   m.trainer->epoch, " is no longer writable")};
  DiscardUnsealed(m, stale);
  if (m.trainer->key != session.key) {
    SendTo(m, m.trainer->key, Refused{{stale}, /*final=*/true});
    CountRefusal(m, absl::StrCat("trainer ", m.trainer->name), stale);
  }
}

}  // namespace

void EvaluateSampler(Machine& m, Sampler& sampler, const ReplyTo& reply) {
  const Epoch* epoch = ReferenceEpoch(m);
  if (epoch == nullptr) {
    if (sampler.state != SamplerState::kQuarantined) sampler.state = SamplerState::kWaiting;
    sampler.note = "no trainer has stated a contract yet";
    RecordSampler(m, sampler);
    Answer(m, reply, Registered{0, sampler.contract_id, sampler.contract_short, true});
    RecordEvent(m, "register", SamplerSubject(sampler.name),
                "waits for a trainer to state a contract");
    return;
  }
  sampler.note.clear();
  std::vector<Refusal> differences = Differences(*epoch, sampler);
  if (!differences.empty()) {
    RefuseSampler(m, sampler, reply, std::move(differences));
  } else {
    AgreeSampler(m, *epoch, sampler, reply);
  }
}

EpochReading ReadEpoch(EpochRecord record) {
  EpochReading reading;
  ContractReading contract = ReadContract(record.contract_json);
  reading.refusals = std::move(contract.refusals);
  for (Refusal& refusal : CheckManifest(record.manifest)) {
    reading.refusals.push_back(std::move(refusal));
  }
  if (!reading.refusals.empty()) return reading;
  Epoch epoch;
  epoch.contract = *std::move(contract.contract);
  epoch.manifest = std::make_shared<const Manifest>(record.manifest);
  epoch.layout = LayoutDigest(*epoch.manifest);
  epoch.arena_bytes = ComputeArenaLayout(*epoch.manifest).total_bytes;
  if (epoch.arena_bytes == 0) {
    reading.refusals.push_back({RefusalCode::kManifestMismatch, "manifest",
                                "the manifest has no synced tensor with bytes; there is nothing "
                                "to publish"});
  }
  if (epoch.contract.layout.has_value() && *epoch.contract.layout != epoch.layout) {
    reading.refusals.push_back({RefusalCode::kManifestMismatch, "layout",
                                "the contract's layout is not the digest of the manifest that "
                                "came with it; stamp the contract with this manifest"});
  }
  if (!reading.refusals.empty()) return reading;
  epoch.contract_id = ToHex(ContractId(epoch.contract));
  epoch.contract_short = ContractShortForm(epoch.contract);
  epoch.level = static_cast<AdmissionLevel>(epoch.contract.level);
  epoch.record = std::move(record);
  reading.epoch = std::move(epoch);
  return reading;
}

void HandleRegisterTrainer(Machine& m, const Session& session, const ReplyTo& reply,
                           const RegisterTrainer& message) {
  const std::string subject = absl::StrCat("trainer ", session.name);
  if (m.draining) {
    Refuse(m, reply, subject, ShuttingDown(subject), /*final=*/false);
    return;
  }
  if (message.source_role != m.config.source_role) {
    Refuse(m, reply, subject,
           Refusal{RefusalCode::kWrongSourceRole, subject,
                   absl::StrCat("this run syncs the ", SourceRoleName(m.config.source_role),
                                ", the trainer registers as ", SourceRoleName(message.source_role),
                                "; register the model that the samplers serve")});
    return;
  }
  EpochRecord record{m.newest_epoch + 1,  session.name,          session.key.incarnation,
                     message.source_role, message.contract_json, message.evidence,
                     message.manifest};
  const Epoch* newest = ReferenceEpoch(m);
  if (newest != nullptr && SameRegistration(newest->record, record)) {
    if (!m.trainer.has_value() || m.trainer->key != session.key) {
      ReplaceWriter(m, session, m.newest_epoch);
      m.trainer = Trainer{session.key, session.name, m.newest_epoch};
      RecordEvent(m, "register", subject, absl::StrCat("is back in epoch ", m.newest_epoch));
    }
    Answer(m, reply, RegisteredFor(*newest));
    return;
  }
  EpochReading reading = ReadEpoch(std::move(record));
  if (!reading.epoch.has_value()) {
    Refuse(m, reply, subject, std::move(reading.refusals));
    return;
  }
  ReplaceWriter(m, session, m.newest_epoch + 1);
  const uint64_t number = ++m.newest_epoch;
  m.epochs.clear();
  const Epoch& epoch = m.epochs[number] = *std::move(reading.epoch);
  m.trainer = Trainer{session.key, session.name, number};
  Record(m, epoch.record);
  RecordEvent(
      m, "register", subject,
      absl::StrCat("took epoch ", number, " with contract ", epoch.contract_short, ", ",
                   epoch.manifest->tensors.size(), " tensors, ", epoch.arena_bytes, " bytes"));
  Answer(m, reply, RegisteredFor(epoch));
  ReevaluateSamplers(m);
}

void HandleRegisterSampler(Machine& m, const Session& session, const ReplyTo& reply,
                           const RegisterSampler& message) {
  const std::string subject = SamplerSubject(session.name);
  if (m.draining) {
    Refuse(m, reply, subject, ShuttingDown(subject), /*final=*/false);
    return;
  }
  if (!m.samplers.contains(session.name) && !MakeRoomForSampler(m)) {
    Refuse(m, reply, subject,
           Refusal{RefusalCode::kLimitExceeded, subject,
                   absl::StrCat(kMaxSamplers, " samplers are connected, which is the limit")});
    return;
  }
  Sampler& sampler = m.samplers[session.name];
  if (sampler.incarnation != session.key.incarnation || sampler.name.empty()) {
    ResetSampler(m, sampler, session);
  }
  if (sampler.round.has_value()) {
    AbortRound(m, sampler,
               {RefusalCode::kContractMismatch, subject,
                "the sampler registered again while this round was running"});
  }
  m.sampler_names[sampler.incarnation] = session.name;
  sampler.connected = true;
  sampler.same_host = session.same_host;
  sampler.contract_json = message.contract_json;
  sampler.evidence = message.evidence;
  sampler.manifest = message.manifest;
  sampler.transports = message.transports;
  if (sampler.transports.empty()) {
    sampler.transports = {TransportKind::kShm, TransportKind::kTcp};
  }
  sampler.claim = message.live;
  ContractReading reading = ReadContract(message.contract_json);
  std::vector<Refusal> refusals = std::move(reading.refusals);
  if (message.manifest.has_value()) {
    for (Refusal& refusal : CheckManifest(*message.manifest)) {
      refusals.push_back(std::move(refusal));
    }
  }
  if (!HasTransport(m, sampler)) {
    refusals.push_back({RefusalCode::kTransferFailed, "transports",
                        "none of the sampler's transports reaches this bridge; shm needs the same "
                        "host, tcp the bridge's bulk port"});
  }
  sampler.contract = std::move(reading.contract);
  if (sampler.contract.has_value()) {
    sampler.contract_id = ToHex(ContractId(*sampler.contract));
    sampler.contract_short = ContractShortForm(*sampler.contract);
  }
  if (!refusals.empty()) {
    sampler.contract.reset();
    RefuseSampler(m, sampler, reply, std::move(refusals));
    return;
  }
  EvaluateSampler(m, sampler, reply);
}

void TrainerLost(Machine& m, const Session& session, const std::string& reason) {
  const std::string subject = absl::StrCat("trainer ", session.name);
  RecordEvent(m, "gone", subject, reason);
  if (!m.trainer.has_value() || m.trainer->key != session.key) return;
  DiscardUnsealed(m, {RefusalCode::kPeerLost, subject,
                      absl::StrCat("the trainer left before the seal: ", reason)});
  m.trainer.reset();
}

}  // namespace lockstep::core
