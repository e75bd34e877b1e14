#include "bridge/core/status.h"

#include "absl/strings/str_cat.h"
#include "bridge/core/emit.h"

namespace lockstep::core {
namespace {

VersionStatus StatusOf(const Version& version) {
  const VersionRecord& record = version.record;
  VersionStatus status;
  status.version = record.version;
  status.epoch = record.epoch;
  status.state = std::string(VersionStageName(version.state));
  status.manifest_root = record.digest.manifest_root;
  status.contract_short = version.contract_short;
  status.bytes = record.bytes;
  status.tensors = version.manifest->tensors.size();
  status.nan_elements = record.nan_elements;
  status.zero_change = record.zero_change;
  status.bytes_held = version.bytes_held && version.proof != CopyProof::kBroken;
  status.on_disk = record.on_disk;
  status.samplers_live = static_cast<uint32_t>(version.live_on.size());
  status.rollback_of = record.rollback_of;
  status.sealed_wall_ms = record.sealed_wall_ms;
  return status;
}

SamplerStatus StatusOf(const Sampler& sampler) {
  SamplerStatus status;
  status.name = sampler.name;
  status.state = std::string(SamplerStateName(sampler.state));
  status.incarnation = sampler.incarnation;
  status.live_version = sampler.live_version;
  status.transport = sampler.transport;
  status.contract_short = sampler.contract_short;
  status.components_verified = sampler.components_verified;
  status.components_total = sampler.components_total;
  status.reason = SamplerReason(sampler);
  status.bytes_sent = sampler.bytes_sent;
  status.connected = sampler.connected;
  return status;
}

}  // namespace

std::string SamplerReason(const Sampler& sampler) {
  if (sampler.reasons.empty()) return sampler.note;
  const Refusal& first = sampler.reasons.front();
  std::string reason = absl::StrCat(RefusalCodeName(first.code), ": ", first.message);
  if (sampler.reasons.size() > 1) {
    absl::StrAppend(&reason, " (and ", sampler.reasons.size() - 1, " more)");
  }
  return reason;
}

StatusReply MakeStatus(const Machine& m, Time time) {
  StatusReply status;
  status.run = m.config.run;
  status.software = m.config.software;
  status.uptime_ms = static_cast<uint64_t>(time.now_ms - m.started_ms);
  status.listen = m.config.listen;
  if (const Epoch* epoch = ReferenceEpoch(m)) {
    status.contract_id = epoch->contract_id;
    status.contract_short = epoch->contract_short;
    status.trainer = TrainerStatus{epoch->record.trainer, m.newest_epoch, m.trainer.has_value(),
                                   epoch->contract_short,
                                   std::string(SourceRoleName(epoch->record.source_role))};
  }
  for (const auto& [number, version] : m.versions) status.versions.push_back(StatusOf(version));
  for (const auto& [name, sampler] : m.samplers) status.samplers.push_back(StatusOf(sampler));
  status.rollouts_admitted = m.rollouts.admitted;
  status.rollouts_pending = m.pending.size();
  for (const auto& [reason, count] : m.rollouts.refused) {
    status.rollouts_refused.push_back({reason, count});
  }
  for (const auto& [reason, count] : m.refusals) status.refusals.push_back({reason, count});
  for (const auto& [subject, sentence] : m.alarms) status.alarms.push_back(sentence);
  status.draining = m.draining;
  return status;
}

}  // namespace lockstep::core
