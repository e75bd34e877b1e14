#include "bridge/core/rounds.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bridge/core/arenas.h"
#include "bridge/core/emit.h"
#include "bridge/core/outcomes.h"
#include "bridge/core/retention.h"
#include "bridge/core/tickets.h"
#include "bridge/core/verification.h"

namespace lockstep::core {
namespace {

bool CanUse(const Machine& m, const Sampler& sampler, TransportKind kind) {
  if (kind == TransportKind::kTcp) return !m.config.bulk_address.empty();
  return sampler.same_host && !m.config.fd_socket_path.empty();
}

// The sampler's first choice that works here; the one that failed last time only if alone.
std::optional<TransportKind> ChooseTransport(const Machine& m, const Sampler& sampler) {
  std::optional<TransportKind> fallback;
  for (const TransportKind kind : sampler.transports) {
    if (!CanUse(m, sampler, kind)) continue;
    if (sampler.avoid != kind) return kind;
    fallback = kind;
  }
  return fallback;
}

// The version this sampler should be taken to now: the newest that is sealed, then the one
// whose bytes are arriving.
Version* WantedVersion(Machine& m, const Sampler& sampler) {
  Version* newest = NewestServable(m);
  if (newest != nullptr && sampler.live_version != newest->record.version) return newest;
  if (!m.in_flight.has_value()) return nullptr;
  Version& version = m.versions.at(*m.in_flight);
  const bool ready = version.arena.has_value() && m.arenas.at(*version.arena).arrived;
  return ready ? &version : nullptr;
}

void StartRound(Machine& m, Sampler& sampler, Version& version, TransportKind transport) {
  const uint64_t number = version.record.version;
  Round round;
  round.id = m.next_round++;
  round.version = number;
  round.arena = *version.arena;
  round.transport = transport;
  round.started_ms = m.time.now_ms;
  round.at_publish = version.publish.has_value();
  sampler.round = round;
  sampler.state = SamplerState::kReceiving;
  sampler.transport = std::string(TransportName(transport));
  sampler.note.clear();
  sampler.components_verified = 0;
  sampler.components_total = static_cast<uint32_t>(version.record.components.size());
  m.round_owner[round.id] = sampler.name;
  ++version.rounds;
  GrantRead(m, round.arena, sampler.incarnation, transport);
  if (version.bytes_held) SetRoundDeadline(m, round);
  SendTo(m, SamplerKey(sampler),
         RoundStart{round.id, version.record.epoch, number, *version.manifest, transport,
                    round.arena, m.arenas.at(round.arena).bytes_ready});
  RecordEvent(m, "round", SamplerSubject(sampler.name),
              absl::StrCat("takes version ", number, " over ", TransportName(transport)));
}

void RememberLive(Machine& m, Version& version) {
  const uint64_t number = version.record.version;
  const auto at = std::lower_bound(m.live_versions.begin(), m.live_versions.end(), number);
  if (at == m.live_versions.end() || *at != number) m.live_versions.insert(at, number);
  // What is that far behind is beyond any lag that a policy allows.
  if (m.live_versions.size() > kMaxVersionsInMemory) m.live_versions.erase(m.live_versions.begin());
  if (version.state != VersionStage::kLive) {
    version.state = VersionStage::kLive;
    RecordVersion(m, version);
  }
}

void BecomeLive(Machine& m, Sampler& sampler, const Activated& message) {
  const Round round = *sampler.round;
  Version& version = m.versions.at(round.version);
  ClearLive(m, sampler);
  sampler.live_version = round.version;
  sampler.live_arena = round.transport == TransportKind::kShm ? round.arena : 0;
  sampler.cache_epoch = message.cache_epoch;
  sampler.mismatches = sampler.timeouts = 0;
  sampler.avoid.reset();
  sampler.reasons.clear();
  sampler.history.push_back(
      {round.version, message.cache_epoch, sampler.components_verified, sampler.components_total});
  if (sampler.history.size() > kMaxLiveHistory) sampler.history.erase(sampler.history.begin());
  version.live_on.insert(sampler.name);
  EndRound(m, sampler);
  RememberLive(m, version);
  Record(m,
         LiveRecord{sampler.name, sampler.incarnation, round.version, message.cache_epoch,
                    message.flush_receipt, sampler.components_verified, sampler.components_total});
  RecordSampler(m, sampler);
  RecordEvent(m, "live", SamplerSubject(sampler.name),
              absl::StrCat("serves version ", round.version, ", ", sampler.components_verified, "/",
                           sampler.components_total, " components equal, ",
                           m.time.now_ms - round.started_ms, " ms"));
  ClearAlarm(m, SamplerSubject(sampler.name));
  const Live live{round.id, round.version, message.cache_epoch,
                  TicketFor(m, sampler, round.version, message.cache_epoch)};
  if (round.last_request.seq != 0) {
    Answer(m, round.last_request, live);
  } else {
    SendTo(m, SamplerKey(sampler), live);
  }
}

}  // namespace

bool HasTransport(const Machine& m, const Sampler& sampler) {
  return ChooseTransport(m, sampler).has_value();
}

void ScheduleSampler(Machine& m, Sampler& sampler) {
  const bool free =
      sampler.state == SamplerState::kAssigned || sampler.state == SamplerState::kLive;
  if (m.draining || !sampler.connected || sampler.round.has_value() || !free) return;
  Version* wanted = WantedVersion(m, sampler);
  if (wanted == nullptr) {
    sampler.note = sampler.live_version.has_value() ? ""
                   : m.newest_sealed.has_value()
                       ? absl::StrCat("the bytes of version ", *m.newest_sealed,
                                      " are not held; waits for the next publish")
                       : "nothing is published yet";
    return;
  }
  const std::optional<TransportKind> transport = ChooseTransport(m, sampler);
  if (!transport.has_value()) {
    sampler.note = "no transport that this sampler can do reaches the bridge";
    return;
  }
  StartRound(m, sampler, *wanted, *transport);
}

void ScheduleAll(Machine& m) {
  for (auto& [name, sampler] : m.samplers) ScheduleSampler(m, sampler);
}

void SetRoundDeadline(Machine& m, const Round& round) {
  const uint64_t bytes = m.versions.at(round.version).record.bytes;
  const uint64_t rate = std::max<uint64_t>(1, m.config.round_min_bytes_per_s / 1'000);
  m.timers.Set(TimerKind::kRound, round.id,
               m.time.now_ms + m.config.round_timeout_base_ms + static_cast<int64_t>(bytes / rate));
}

void RoundsOfSealedVersion(Machine& m, uint64_t version) {
  const uint64_t bytes = m.versions.at(version).record.bytes;
  for (auto& [name, sampler] : m.samplers) {
    if (!sampler.round.has_value() || sampler.round->version != version) continue;
    SetRoundDeadline(m, *sampler.round);
    if (sampler.round->phase == RoundPhase::kSealed) {
      GiveKey(m, sampler);
    } else {
      SendTo(m, SamplerKey(sampler), RoundProgress{sampler.round->id, bytes});
    }
  }
}

void RoundsProgress(Machine& m, uint64_t version) {
  const uint64_t ready = m.arenas.at(*m.versions.at(version).arena).bytes_ready;
  for (auto& [name, sampler] : m.samplers) {
    if (!sampler.round.has_value() || sampler.round->version != version) continue;
    SendTo(m, SamplerKey(sampler), RoundProgress{sampler.round->id, ready});
  }
}

void AbortRoundsOf(Machine& m, uint64_t version, const Refusal& why) {
  for (auto& [name, sampler] : m.samplers) {
    if (!sampler.round.has_value() || sampler.round->version != version) continue;
    AbortRound(m, sampler, why);
  }
}

Round* CurrentRound(Machine& m, Sampler& sampler, uint64_t round_id, absl::string_view verb) {
  if (sampler.round.has_value() && sampler.round->id == round_id) return &*sampler.round;
  RecordEvent(m, "late", SamplerSubject(sampler.name),
              absl::StrCat(verb, " of round ", round_id, " came after that round had ended"));
  return nullptr;
}

void HandleSealed(Machine& m, Sampler& sampler, const ReplyTo& reply, const Sealed& message) {
  Round* round = CurrentRound(m, sampler, message.round_id, "Sealed");
  if (round == nullptr || round->phase != RoundPhase::kReceiving) return;
  const Version& version = m.versions.at(round->version);
  if (m.arenas.at(round->arena).bytes_ready < version.record.bytes) {
    Refuse(m, reply, SamplerSubject(sampler.name),
           Refusal{RefusalCode::kBadMessage, VersionSubject(round->version),
                   "Sealed came before all bytes were ready; install up to the whole of "
                   "RoundProgress first"},
           /*final=*/false);
    return;
  }
  round->phase = RoundPhase::kSealed;
  round->last_request = reply;
  sampler.state = SamplerState::kSealed;
  if (version.bytes_held) GiveKey(m, sampler);
}

void HandleActivated(Machine& m, Sampler& sampler, const ReplyTo& reply, const Activated& message) {
  Round* round = CurrentRound(m, sampler, message.round_id, "Activated");
  if (round == nullptr) return;
  if (round->phase != RoundPhase::kActivating) {
    Refuse(m, reply, SamplerSubject(sampler.name),
           Refusal{RefusalCode::kBadMessage, VersionSubject(round->version),
                   "Activated came before Activate; a version is activated once it is verified"},
           /*final=*/false);
    return;
  }
  const uint64_t number = round->version;
  std::optional<Refusal> refusal;
  if (message.flush_receipt.empty()) {
    refusal = Refusal{RefusalCode::kFlushReceiptMissing, VersionSubject(number),
                      "activated without a flush receipt: the cache of the version before may "
                      "still be read; return a receipt from OnFlushCache"};
  } else if (message.cache_epoch <= sampler.cache_epoch) {
    refusal = Refusal{RefusalCode::kFlushReceiptMissing, VersionSubject(number),
                      absl::StrCat("the cache epoch went from ", sampler.cache_epoch, " to ",
                                   message.cache_epoch, "; a flush makes it grow")};
  }
  if (refusal.has_value()) {
    AbortRound(m, sampler, *refusal);
    Quarantine(m, sampler, *refusal);
    return;
  }
  round->last_request = reply;
  BecomeLive(m, sampler, message);
  ReportOutcome(m, number, sampler, "live", {});
  Retain(m);
  ScheduleSampler(m, sampler);
}

void HandleRoundFailed(Machine& m, Sampler& sampler, const RoundFailed& message) {
  const Round* round = CurrentRound(m, sampler, message.round_id, "RoundFailed");
  if (round == nullptr) return;
  const TransportKind transport = round->transport;
  EndRound(m, sampler);
  if (message.refusal.code == RefusalCode::kTransferFailed ||
      message.refusal.code == RefusalCode::kDigestMismatch) {
    sampler.avoid = transport;
    RetryOrQuarantine(m, sampler, sampler.mismatches, m.config.round_retries, message.refusal);
  } else {
    Quarantine(m, sampler, message.refusal);
  }
  Retain(m);
}

void HandleReleaseArena(Machine& m, Sampler& sampler, const ReleaseArena& message) {
  // A release said before the sampler knew of a new round on the same arena is not one.
  if (sampler.round.has_value() && sampler.round->arena == message.arena_id) return;
  if (sampler.live_arena == message.arena_id && sampler.live_version.has_value()) return;
  ReleaseRead(m, message.arena_id, sampler.incarnation);
}

void RoundTimedOut(Machine& m, uint64_t round_id) {
  const std::string* owner = Find(m.round_owner, round_id);
  if (owner == nullptr) return;
  Sampler& sampler = m.samplers.at(*owner);
  const Refusal why{
      RefusalCode::kRoundTimeout, VersionSubject(sampler.round->version),
      absl::StrCat("the round was not finished in time (state ", SamplerStateName(sampler.state),
                   " after ", m.time.now_ms - sampler.round->started_ms, " ms)")};
  AbortRound(m, sampler, why);
  RetryOrQuarantine(m, sampler, sampler.timeouts, kTimeoutRetries, why);
  Retain(m);
}

void EndRound(Machine& m, Sampler& sampler) {
  const Round round = *std::exchange(sampler.round, std::nullopt);
  m.timers.Cancel(TimerKind::kRound, round.id);
  m.round_owner.erase(round.id);
  --m.versions.at(round.version).rounds;
  if (round.transport == TransportKind::kTcp) {
    ReleaseRead(m, round.arena, sampler.incarnation);
  }
  sampler.state = sampler.live_version.has_value() ? SamplerState::kLive : SamplerState::kAssigned;
}

void AbortRound(Machine& m, Sampler& sampler, const Refusal& why) {
  const uint64_t id = sampler.round->id;
  const uint64_t version = sampler.round->version;
  EndRound(m, sampler);
  SendTo(m, SamplerKey(sampler), RoundAbort{id, why});
  RecordEvent(m, "abort", SamplerSubject(sampler.name),
              absl::StrCat("round of version ", version, " ended: ", why.message));
}

void RetryOrQuarantine(Machine& m, Sampler& sampler, uint32_t& failures, uint32_t limit,
                       const Refusal& why) {
  if (++failures > limit) {
    Quarantine(m, sampler, why);
    return;
  }
  CountRefusal(m, SamplerSubject(sampler.name), why);
  sampler.reasons = {why};
  ScheduleSampler(m, sampler);
}

void Quarantine(Machine& m, Sampler& sampler, const Refusal& why) {
  ClearLive(m, sampler);
  sampler.state = SamplerState::kQuarantined;
  sampler.reasons = {why};
  sampler.mismatches = sampler.timeouts = 0;
  SendTo(m, SamplerKey(sampler), Fence{why});
  RecordSampler(m, sampler);
  CountRefusal(m, SamplerSubject(sampler.name), why);
  RaiseAlarm(m, SamplerSubject(sampler.name),
             absl::StrCat("sampler '", sampler.name, "' is quarantined: ", why.message));
  ReportToWaiting(m, sampler, "quarantined", {why});
}

void SamplerLost(Machine& m, Sampler& sampler, const std::string& reason) {
  std::optional<uint64_t> in_round;
  if (sampler.round.has_value()) {
    in_round = sampler.round->version;
    EndRound(m, sampler);
  }
  ReaderGone(m, sampler.incarnation);
  ClearLive(m, sampler);
  sampler.connected = false;
  if (sampler.state != SamplerState::kRefused && sampler.state != SamplerState::kQuarantined) {
    sampler.state = SamplerState::kGone;
    sampler.note = reason;
    RecordSampler(m, sampler);
  }
  RecordEvent(m, "gone", SamplerSubject(sampler.name), reason);
  const Refusal why{RefusalCode::kPeerLost, SamplerSubject(sampler.name), reason};
  ReportToWaiting(m, sampler, "failed", {why}, in_round);
  Retain(m);
}

void ClearLive(Machine& m, Sampler& sampler) {
  if (sampler.live_version.has_value()) {
    Version* version = Find(m.versions, *sampler.live_version);
    if (version != nullptr) version->live_on.erase(sampler.name);
  }
  sampler.live_version.reset();
}

}  // namespace lockstep::core
