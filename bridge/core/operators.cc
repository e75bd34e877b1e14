#include "bridge/core/operators.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bridge/core/arenas.h"
#include "bridge/core/emit.h"
#include "bridge/core/publish.h"
#include "bridge/core/registration.h"
#include "bridge/core/retention.h"
#include "bridge/core/rollouts.h"
#include "bridge/core/rounds.h"
#include "bridge/core/verification.h"

namespace lockstep::core {
namespace {

void Decline(Machine& m, const ReplyTo& reply, absl::string_view verb, std::string why) {
  RecordEvent(m, "refuse", std::string(verb), why);
  Answer(m, reply, ActReply{false, std::move(why)});
}

bool WasLive(const Machine& m, uint64_t version) {
  return std::binary_search(m.live_versions.begin(), m.live_versions.end(), version);
}

// The version an empty argument means: the newest before the present one that samplers
// served and whose bytes are here.
std::optional<uint64_t> PreviousLive(const Machine& m) {
  for (auto it = m.versions.rbegin(); it != m.versions.rend(); ++it) {
    if (it->first < *m.newest_sealed && it->second.bytes_held && WasLive(m, it->first)) {
      return it->first;
    }
  }
  return std::nullopt;
}

// Why `source` cannot come back; empty when it can.
std::string CheckSource(const Machine& m, uint64_t source) {
  const Version* version = Find(m.versions, source);
  if (version == nullptr || version->state == VersionStage::kDiscarded) {
    return absl::StrCat("there is no version ", source, "; `lockstep versions` lists them");
  }
  if (source >= *m.newest_sealed) {
    return absl::StrCat("version ", source, " is the newest already");
  }
  if (!WasLive(m, source)) {
    return absl::StrCat("no sampler ever served version ", source);
  }
  if (!version->bytes_held || version->proof == CopyProof::kBroken) {
    return absl::StrCat("the bytes of version ", source, " are no longer held (the newest ",
                        m.config.kept_versions, " are); publish them again from a checkpoint");
  }
  const Epoch* epoch = ReferenceEpoch(m);
  if (epoch == nullptr || version->contract_id != epoch->contract_id ||
      LayoutDigest(*version->manifest) != epoch->layout) {
    return absl::StrCat("version ", source,
                        " was made under another contract or layout than the "
                        "run has now; publish it again under the present one");
  }
  return "";
}

void StartRollback(Machine& m, const ReplyTo& reply, const std::string& argument) {
  if (!m.newest_sealed.has_value()) {
    return Decline(m, reply, "rollback", "nothing has been published yet");
  }
  if (m.rollback.has_value() || m.in_flight.has_value()) {
    const uint64_t busy = m.rollback.has_value() ? m.rollback->version : *m.in_flight;
    return Decline(m, reply, "rollback",
                   absl::StrCat("version ", busy, " is being made; ask again when it is sealed"));
  }
  uint64_t source = 0;
  if (argument.empty()) {
    const std::optional<uint64_t> previous = PreviousLive(m);
    if (!previous.has_value()) {
      return Decline(m, reply, "rollback", "no earlier version that samplers served is still held");
    }
    source = *previous;
  } else if (!absl::SimpleAtoi(argument, &source)) {
    return Decline(m, reply, "rollback", absl::StrCat("'", argument, "' is not a version number"));
  }
  std::string why = CheckSource(m, source);
  if (!why.empty()) return Decline(m, reply, "rollback", std::move(why));
  Version& version = m.versions.at(source);
  Rollback rollback;
  rollback.reply = reply;
  rollback.source = source;
  rollback.version = *m.newest_sealed + 1;
  rollback.key = NewKey(m, "rollback key");
  rollback.work = NewWork(m, {WorkKind::kRollback, source, 0, 0});
  m.rollback = rollback;
  Emit(m,
       DigestWork{rollback.work, *version.arena, rollback.version, rollback.key, version.manifest});
  StartProof(m, version);
  RecordEvent(m, "rollback", VersionSubject(source),
              absl::StrCat("its bytes come back as version ", rollback.version));
}

void Retire(Machine& m, const ReplyTo& reply, const std::string& argument) {
  uint64_t number = 0;
  if (!absl::SimpleAtoi(argument, &number)) {
    return Decline(m, reply, "retire", absl::StrCat("'", argument, "' is not a version number"));
  }
  Version* version = Find(m.versions, number);
  if (version == nullptr || version->state == VersionStage::kDiscarded) {
    return Decline(m, reply, "retire", absl::StrCat("there is no version ", number));
  }
  if (version->state == VersionStage::kRetired) {
    Answer(m, reply, ActReply{true, absl::StrCat("version ", number, " was retired before")});
    return;
  }
  if (m.newest_sealed == number || m.in_flight == number) {
    return Decline(m, reply, "retire",
                   absl::StrCat("version ", number,
                                " is the newest, which samplers are taken to; "
                                "publish or roll back first"));
  }
  if (m.rollback.has_value() && m.rollback->source == number) {
    return Decline(m, reply, "retire",
                   absl::StrCat("version ", number, " is being rolled back to"));
  }
  version->retired_by_operator = true;
  AbortRoundsOf(
      m, number,
      {RefusalCode::kVersionNotLive, VersionSubject(number), "an operator retired the version"});
  RecordEvent(m, "retire", VersionSubject(number), "an operator retired it");
  Retain(m);
  ScheduleAll(m);
  const size_t users = version->live_on.size();
  Answer(m, reply,
         ActReply{true, users == 0 ? absl::StrCat("version ", number, " is retired")
                                   : absl::StrCat("version ", number, " is retired once ", users,
                                                  " samplers have moved on")});
}

void Release(Machine& m, const ReplyTo& reply, const std::string& name) {
  Sampler* sampler = Find(m.samplers, name);
  if (sampler == nullptr) {
    return Decline(
        m, reply, "quarantine release",
        absl::StrCat("there is no sampler '", name, "'; `lockstep samplers` lists them"));
  }
  if (sampler->state != SamplerState::kQuarantined) {
    return Decline(m, reply, "quarantine release",
                   absl::StrCat("sampler '", name, "' is not quarantined but ",
                                SamplerStateName(sampler->state)));
  }
  sampler->reasons.clear();
  sampler->state = SamplerState::kGone;
  ClearAlarm(m, SamplerSubject(name));
  RecordSampler(m, *sampler);
  RecordEvent(m, "release", SamplerSubject(name), "an operator released it from quarantine");
  SendTo(m, SamplerKey(*sampler), Unfence{});
  if (sampler->connected && sampler->contract.has_value()) {
    EvaluateSampler(m, *sampler, {SamplerKey(*sampler), 0});
  }
  Answer(m, reply,
         ActReply{true, sampler->connected
                            ? absl::StrCat("sampler '", name, "' is released and synced anew")
                            : absl::StrCat("sampler '", name,
                                           "' is released; it is synced when it comes back")});
}

void Leave(Machine& m) {
  ReportRollouts(m);
  m.exited = true;
  Emit(m, Exit{});
}

}  // namespace

void HandleAct(Machine& m, const Session& session, const ReplyTo& reply, const OperatorAct& act) {
  if (session.key.role != PeerRole::kOperator) {
    Refuse(m, reply, absl::StrCat(PeerRoleName(session.key.role), " ", session.name),
           Refusal{RefusalCode::kUnauthorised, "act", "only an operator may do this"});
    return;
  }
  switch (act.action) {
    case OperatorAction::kRollback:
      return StartRollback(m, reply, act.argument);
    case OperatorAction::kRetire:
      return Retire(m, reply, act.argument);
    case OperatorAction::kQuarantineRelease:
      return Release(m, reply, act.argument);
    case OperatorAction::kShutdown:
      BeginDrain(m, absl::StrCat("operator '", session.name, "' asked for it"));
      Answer(m, reply, ActReply{true, "the bridge drains and stops"});
  }
}

void RollbackDigestDone(Machine& m, const Work&, const VersionDigest& digest) {
  if (!m.rollback.has_value()) return;
  m.rollback->digest = digest;
  MaybeFinishRollback(m);
}

void MaybeFinishRollback(Machine& m) {
  if (!m.rollback.has_value() || !m.rollback->digest.has_value()) return;
  const Version& source = m.versions.at(m.rollback->source);
  if (source.proof == CopyProof::kUnknown || source.proof == CopyProof::kRunning) return;
  const Rollback rollback = *std::exchange(m.rollback, std::nullopt);
  if (source.proof == CopyProof::kBroken) {
    Decline(m, rollback.reply, "rollback",
            absl::StrCat("the kept copy of version ", rollback.source,
                         " is damaged; publish it again from a checkpoint"));
    Retain(m);
    return;
  }
  Version version;
  version.record = source.record;
  version.record.version = rollback.version;
  version.record.epoch = m.newest_epoch;
  version.record.key = rollback.key;
  version.record.digest = *rollback.digest;
  version.record.rollback_of = rollback.source;
  version.record.zero_change = version.record.on_disk = false;
  version.manifest = source.manifest;
  version.contract_id = source.contract_id;
  version.contract_short = source.contract_short;
  version.arena = source.arena;
  version.proof = CopyProof::kProven;
  version.publish.emplace();
  version.publish->started_ms = m.time.now_ms;
  HoldArena(m, *version.arena, rollback.version);
  Version& stored = m.versions[rollback.version] = std::move(version);
  SealNow(m, stored);
  Answer(m, rollback.reply,
         ActReply{true, absl::StrCat("version ", rollback.version, " has the bytes of version ",
                                     rollback.source, "; samplers are taken to it")});
}

void BeginDrain(Machine& m, const std::string& why) {
  if (m.draining) return;
  m.draining = true;
  m.timers.Set(TimerKind::kDrain, 0, m.time.now_ms + m.config.drain_timeout_ms);
  RecordEvent(m, "drain", "bridge", absl::StrCat("takes nothing new: ", why));
}

void MaybeExit(Machine& m) {
  if (!m.draining || m.exited) return;
  if (!m.round_owner.empty() || m.in_flight.has_value() || m.rollback.has_value() ||
      !m.works.empty()) {
    return;
  }
  Leave(m);
}

void DrainTimedOut(Machine& m) {
  if (m.exited) return;
  RecordEvent(m, "drain", "bridge",
              absl::StrCat("stops with ", m.round_owner.size(), " rounds unfinished after ",
                           m.config.drain_timeout_ms, " ms"));
  Leave(m);
}

}  // namespace lockstep::core
