#include "bridge/core/retention.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "bridge/core/arenas.h"
#include "bridge/core/emit.h"
#include "bridge/core/outcomes.h"

namespace lockstep::core {
namespace {

constexpr char kZeroChangeAlarm[] = "zero_change";
constexpr char kSpoolAlarm[] = "spool";

// Something still reads the bytes: a round, a worker, a rollback being made.
bool InUse(const Machine& m, uint64_t number, const Version& version) {
  if (version.rounds > 0 || version.spool_load_arena != 0) return true;
  if (m.rollback.has_value() && m.rollback->source == number) return true;
  for (const auto& [id, work] : m.works) {
    if (work.version == number || (work.kind == WorkKind::kCompare && work.other == number)) {
      return true;
    }
  }
  return false;
}

void DropBytes(Machine& m, uint64_t number, Version& version) {
  if (version.arena.has_value()) UnholdArena(m, *version.arena, number);
  version.arena.reset();
  version.bytes_held = false;
  ClearAlarm(m, VersionSubject(number));
  version.key_given.clear();
  version.key_spent = true;
  if (version.record.on_disk) Emit(m, SpoolDrop{number});
  version.record.on_disk = false;
  RecordVersion(m, version);
}

void MaybeRetire(Machine& m, uint64_t number, Version& version) {
  const bool over = version.state == VersionStage::kSealed ||
                    version.state == VersionStage::kVerified ||
                    version.state == VersionStage::kLive;
  if (!over || version.bytes_held || !version.live_on.empty()) return;
  if (m.newest_sealed == number && !version.retired_by_operator) return;
  version.state = VersionStage::kRetired;
  RecordVersion(m, version);
  RecordEvent(m, "retire", VersionSubject(number),
              "no sampler serves it and its bytes are no longer kept");
}

// The records of versions that can matter no more (I10).
void ForgetOldest(Machine& m) {
  for (auto it = m.versions.begin();
       it != m.versions.end() && m.versions.size() > kMaxVersionsInMemory;) {
    const VersionStage state = it->second.state;
    const bool done = state == VersionStage::kRetired || state == VersionStage::kDiscarded;
    it = done && !InUse(m, it->first, it->second) ? m.versions.erase(it) : std::next(it);
  }
}

}  // namespace

Version* NewestServable(Machine& m) {
  if (!m.newest_sealed.has_value()) return nullptr;
  Version* version = Find(m.versions, *m.newest_sealed);
  if (version == nullptr || !version->bytes_held || version->retired_by_operator ||
      version->proof == CopyProof::kBroken ||
      (version->from_spool && version->proof != CopyProof::kProven)) {
    return nullptr;
  }
  return version;
}

void Retain(Machine& m) {
  // The newest version is always needed: samplers have yet to take it.
  const uint64_t wanted_versions = std::max<uint64_t>(1, m.config.kept_versions);
  uint64_t kept = 0;
  for (auto it = m.versions.rbegin(); it != m.versions.rend(); ++it) {
    Version& version = it->second;
    if (m.in_flight == it->first) continue;
    if (version.bytes_held || version.spool_load_arena != 0) {
      const bool wanted = kept < wanted_versions && !version.retired_by_operator;
      if (wanted) {
        ++kept;
      } else if (!InUse(m, it->first, version)) {
        DropBytes(m, it->first, version);
      }
    }
    MaybeRetire(m, it->first, version);
  }
  if (m.versions.size() > kMaxVersionsInMemory) ForgetOldest(m);
}

void StartCompare(Machine& m, Version& version) {
  const uint64_t number = version.record.version;
  Version* before = nullptr;
  for (auto& [other, candidate] : m.versions) {
    if (other >= number) break;
    if (candidate.bytes_held && candidate.manifest != nullptr) before = &candidate;
  }
  if (before == nullptr || before->arena == version.arena ||
      (before->manifest != version.manifest && *before->manifest != *version.manifest)) {
    return;
  }
  const uint64_t work =
      NewWork(m, {WorkKind::kCompare, number, before->record.version, /*round_id=*/0});
  version.publish->compare_work = work;
  Emit(m, CompareWork{work, *before->arena, *version.arena, version.manifest});
}

void StartSpool(Machine& m, Version& version) {
  if (m.config.spool_max_bytes == 0 || version.record.bytes > m.config.spool_max_bytes) return;
  const uint64_t number = version.record.version;
  const uint64_t work = NewWork(m, {WorkKind::kSpool, number, /*other=*/0, /*round_id=*/0});
  if (version.publish.has_value()) version.publish->spool_work = work;
  Emit(m, SpoolWork{work, *version.arena, number});
}

void CompareFinished(Machine& m, const Work& work, bool equal) {
  Version* version = Find(m.versions, work.version);
  if (version == nullptr) return;
  if (equal) {
    version->record.zero_change = true;
    RecordVersion(m, *version);
    RaiseAlarm(m, kZeroChangeAlarm,
               absl::StrCat("version ", work.version, " has the same bytes as version ", work.other,
                            " (zero_change): the optimizer's step did not reach the published "
                            "tensors; publish from the weights that are trained"));
  } else {
    ClearAlarm(m, kZeroChangeAlarm);
  }
  if (version->publish.has_value()) {
    version->publish->compare_work = 0;
    MaybeAnswerPublish(m, *version);
  }
  Retain(m);
}

void SpoolFinished(Machine& m, const Work& work, const std::string& error) {
  Version* version = Find(m.versions, work.version);
  if (version == nullptr) return;
  if (error.empty()) {
    version->record.on_disk = true;
    RecordVersion(m, *version);
    ClearAlarm(m, kSpoolAlarm);
  } else {
    RaiseAlarm(
        m, kSpoolAlarm,
        absl::StrCat("version ", work.version, " could not be written to the state folder (", error,
                     "): it is served from memory and would not outlive the bridge; "
                     "make room on the disk"));
  }
  if (version->publish.has_value()) {
    version->publish->spool_work = 0;
    MaybeAnswerPublish(m, *version);
  }
  Retain(m);
}

}  // namespace lockstep::core
