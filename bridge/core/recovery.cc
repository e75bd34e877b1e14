#include "bridge/core/recovery.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bridge/core/arenas.h"
#include "bridge/core/emit.h"
#include "bridge/core/registration.h"
#include "bridge/core/retention.h"
#include "bridge/core/rounds.h"
#include "bridge/core/verification.h"

namespace lockstep::core {
namespace {

bool Unsealed(VersionStage state) {
  return state == VersionStage::kOffered || state == VersionStage::kTransferring;
}

void RestoreVersions(Machine& m, const std::map<uint64_t, Epoch>& epochs,
                     std::vector<VersionRecord> records) {
  for (VersionRecord& record : records) {
    const std::optional<VersionStage> state = VersionStageFromName(record.state);
    if (!state.has_value()) continue;
    const uint64_t number = record.version;
    Version version;
    version.state = *state;
    version.key_spent = true;
    if (const Epoch* epoch = Find(epochs, record.epoch)) {
      version.manifest = epoch->manifest;
      version.contract_id = epoch->contract_id;
      version.contract_short = epoch->contract_short;
    } else {
      version.manifest = std::make_shared<const Manifest>();
    }
    version.record = std::move(record);
    if (!Unsealed(*state) && *state != VersionStage::kDiscarded) {
      m.newest_sealed = std::max(m.newest_sealed.value_or(0), number);
    }
    m.versions[number] = std::move(version);
  }
}

void RestoreSamplers(Machine& m, std::vector<SamplerRecord> records,
                     const std::vector<LiveRecord>& history) {
  for (SamplerRecord& record : records) {
    Sampler sampler;
    sampler.name = record.name;
    sampler.incarnation = record.incarnation;
    sampler.state = SamplerStateFromName(record.state).value_or(SamplerState::kGone);
    if (sampler.state != SamplerState::kQuarantined && sampler.state != SamplerState::kRefused) {
      sampler.state = SamplerState::kGone;
      sampler.note = "has not come back since the bridge started";
    }
    sampler.reasons = std::move(record.reasons);
    sampler.contract_json = std::move(record.contract_json);
    sampler.transport = std::move(record.transport);
    if (ContractReading reading = ReadContract(sampler.contract_json); reading.contract) {
      sampler.contract_id = ToHex(ContractId(*reading.contract));
      sampler.contract_short = ContractShortForm(*reading.contract);
    }
    m.sampler_names[sampler.incarnation] = sampler.name;
    m.samplers[record.name] = std::move(sampler);
  }
  for (const LiveRecord& live : history) {
    m.live_versions.push_back(live.version);
    Sampler* sampler = Find(m.samplers, live.sampler);
    if (sampler == nullptr || sampler->incarnation != live.incarnation) continue;
    sampler->history.push_back(
        {live.version, live.cache_epoch, live.components_verified, live.components_total});
    if (sampler->history.size() > kMaxLiveHistory) {
      sampler->history.erase(sampler->history.begin());
    }
    sampler->cache_epoch = live.cache_epoch;
  }
  std::sort(m.live_versions.begin(), m.live_versions.end());
  m.live_versions.erase(std::unique(m.live_versions.begin(), m.live_versions.end()),
                        m.live_versions.end());
}

void RestorePending(Machine& m, std::vector<PendingRollout> pending) {
  for (PendingRollout& rollout : pending) {
    const std::string id = rollout.decision.rollout_id;
    const uint64_t number = m.next_pending++;
    m.pending_ids[number] = id;
    const bool exact = !rollout.decision.tolerance_mode;
    m.pending[id] =
        PendingDecision{std::move(rollout.decision), std::move(rollout.rollout), number, exact, {}};
  }
}

void LoadSpools(Machine& m) {
  uint64_t wanted = 0;
  for (auto it = m.versions.rbegin(); it != m.versions.rend(); ++it) {
    Version& version = it->second;
    if (!version.record.on_disk) continue;
    const bool usable = !version.manifest->tensors.empty() && wanted < m.config.kept_versions &&
                        version.state != VersionStage::kRetired &&
                        version.state != VersionStage::kDiscarded;
    if (!usable) {
      version.record.on_disk = false;
      Emit(m, SpoolDrop{it->first});
      RecordVersion(m, version);
      continue;
    }
    ++wanted;
    const uint64_t id = m.next_arena++;
    Arena& arena = m.arenas[id];
    arena.bytes = version.record.bytes;
    arena.own = true;
    arena.versions.insert(it->first);
    version.spool_load_arena = id;
    Emit(m, SpoolLoad{it->first, id, arena.bytes});
  }
}

}  // namespace

Machine BuildMachine(Config config, RecoveredState recovered) {
  Machine m;
  m.config = std::move(config);
  m.next_arena = m.next_round = m.config.boot << 32;
  m.event_seq = recovered.last_event_seq;
  std::map<uint64_t, Epoch> epochs;
  for (EpochRecord& record : recovered.epochs) {
    const uint64_t number = record.epoch;
    m.newest_epoch = std::max(m.newest_epoch, number);
    EpochReading reading = ReadEpoch(std::move(record));
    if (reading.epoch.has_value()) epochs[number] = *std::move(reading.epoch);
  }
  RestoreVersions(m, epochs, std::move(recovered.versions));
  RestoreSamplers(m, std::move(recovered.samplers), recovered.live_history);
  RestorePending(m, std::move(recovered.pending));
  if (const Epoch* newest = Find(epochs, m.newest_epoch)) m.epochs[m.newest_epoch] = *newest;
  m.rollouts.admitted = recovered.rollouts_admitted;
  for (const ReasonCount& count : recovered.rollouts_refused) {
    m.rollouts.refused[count.reason] = count.count;
  }
  for (const ReasonCount& count : recovered.refusals) m.refusals[count.reason] = count.count;
  return m;
}

void StartMachine(Machine& m) {
  m.started_ms = m.time.now_ms;
  for (auto& [number, version] : m.versions) {
    if (!Unsealed(version.state)) continue;
    version.state = VersionStage::kDiscarded;
    RecordVersion(m, version);
    RecordEvent(m, "discard", VersionSubject(number), "the bridge stopped before it was sealed");
  }
  for (const auto& [number, id] : m.pending_ids) {
    m.timers.Set(TimerKind::kRescore, number, m.time.now_ms + m.config.rescore_timeout_ms);
  }
  LoadSpools(m);
  RecordEvent(m, "start", "bridge",
              absl::StrCat("boot ", m.config.boot, ", ", m.versions.size(), " versions known"));
}

void HandleSpoolLoaded(Machine& m, const SpoolLoaded& loaded) {
  Version* version = Find(m.versions, loaded.version);
  if (version == nullptr || version->spool_load_arena != loaded.arena_id) return;
  version->spool_load_arena = 0;
  const bool superfluous = version->bytes_held;  // published again meanwhile
  if (!loaded.error.empty() || superfluous) {
    UnholdArena(m, loaded.arena_id, loaded.version);
    if (!loaded.error.empty()) {
      m.arenas.erase(loaded.arena_id);
      version->record.on_disk = false;
      RecordVersion(m, *version);
      RaiseAlarm(m, VersionSubject(loaded.version),
                 absl::StrCat("version ", loaded.version,
                              " could not be read back from the state "
                              "folder (",
                              loaded.error, "); publish it again"));
    } else {
      m.arenas.at(loaded.arena_id).arrived = true;
    }
    Retain(m);
    return;
  }
  m.arenas.at(loaded.arena_id).arrived = true;
  SetReady(m, loaded.arena_id, version->record.bytes);
  version->arena = loaded.arena_id;
  version->bytes_held = true;
  version->from_spool = true;
  StartProof(m, *version);
  Retain(m);
}

}  // namespace lockstep::core
