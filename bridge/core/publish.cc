#include "bridge/core/publish.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "bridge/core/arenas.h"
#include "bridge/core/emit.h"
#include "bridge/core/outcomes.h"
#include "bridge/core/retention.h"
#include "bridge/core/rounds.h"

namespace lockstep::core {
namespace {

std::string NewestSentence(const Machine& m) {
  const uint64_t newest = m.rollback.has_value() ? m.rollback->version : *m.newest_sealed;
  return absl::StrCat("the newest is version ", newest, "; publish version ", newest + 1,
                      " or a later one");
}

std::optional<Refusal> CheckWriter(const Machine& m, const Session& session, const Offer& offer) {
  if (!m.trainer.has_value() || m.trainer->key != session.key) {
    return Refusal{RefusalCode::kStaleEpoch, absl::StrCat("epoch ", offer.epoch),
                   absl::StrCat("trainer '", session.name, "' does not hold the writable epoch (",
                                m.newest_epoch, " is the newest); register again to take over")};
  }
  if (offer.epoch != m.trainer->epoch) {
    return Refusal{RefusalCode::kStaleEpoch, absl::StrCat("epoch ", offer.epoch),
                   absl::StrCat("the offer names epoch ", offer.epoch, ", this trainer writes ",
                                m.trainer->epoch, "; use the epoch of the newest Registered")};
  }
  return std::nullopt;
}

std::optional<Refusal> CheckOffer(const Machine& m, const Session& session, const Offer& offer) {
  if (std::optional<Refusal> refusal = CheckWriter(m, session, offer)) return refusal;
  const Epoch& epoch = m.epochs.at(m.trainer->epoch);
  const std::string subject = VersionSubject(offer.version);
  if (offer.version > kMaxVersionNumber) {
    return Refusal{RefusalCode::kLimitExceeded, subject,
                   absl::StrCat("version numbers go up to ", kMaxVersionNumber)};
  }
  if (offer.source_role != epoch.record.source_role) {
    return Refusal{RefusalCode::kWrongSourceRole, subject,
                   absl::StrCat("offered as ", SourceRoleName(offer.source_role),
                                ", registered as ", SourceRoleName(epoch.record.source_role),
                                "; publish the weights of the registered role")};
  }
  if (offer.layout_digest != epoch.layout) {
    return Refusal{RefusalCode::kManifestMismatch, subject,
                   "the offer's layout digest is not that of the registered manifest; register "
                   "again with the manifest of these tensors"};
  }
  return std::nullopt;
}

void AnswerOffer(Machine& m, const Version& version, const Publish& publish, bool reused) {
  OfferAccepted accepted;
  accepted.version = version.record.version;
  accepted.key = version.record.key;
  accepted.probe_seed = version.record.probe_seed;
  accepted.arena_id = publish.arena.value_or(0);
  accepted.reuse_arena = reused && publish.transport == TransportKind::kShm;
  accepted.verify_only = !publish.arena.has_value();
  Answer(m, publish.offer, std::move(accepted));
}

// The trainer may no longer upload into the arena, or pass its descriptor.
void EndFilling(Machine& m, const Publish& publish) {
  if (publish.arena.has_value()) {
    Emit(m, Revoke{publish.trainer.incarnation, *publish.arena});
  }
}

Publish NewPublish(const Machine& m, const Session& session, const ReplyTo& reply,
                   const Offer& offer) {
  Publish publish;
  publish.offer = reply;
  publish.trainer = session.key;
  publish.transport = offer.transport;
  publish.started_ms = m.time.now_ms;
  return publish;
}

// Gives the publish an arena to fill; false (and refused) when there is none.
bool TakeArena(Machine& m, Publish& publish, uint64_t bytes, uint64_t version, bool& reused) {
  const std::optional<AcquiredArena> arena = AcquireArena(m, publish.transport, bytes, version);
  if (!arena.has_value()) {
    Refuse(m, publish.offer, VersionSubject(version),
           Refusal{RefusalCode::kLimitExceeded, VersionSubject(version),
                   absl::StrCat("all ", kMaxArenas,
                                " arenas are in use by versions being kept or synced; wait for "
                                "running rounds, or keep fewer versions")},
           /*final=*/false);
    return false;
  }
  publish.arena = arena->id;
  reused = arena->reused;
  // A trainer that has the arena mapped passes no descriptor; one that uploads starts anew.
  if (publish.transport == TransportKind::kTcp || !reused) {
    Emit(m, Grant{publish.trainer.incarnation, arena->id, true});
  }
  return true;
}

void OfferNew(Machine& m, const Session& session, const ReplyTo& reply, const Offer& offer) {
  if (m.in_flight.has_value()) {
    DiscardUnsealed(m, Refusal{RefusalCode::kVersionConflict, VersionSubject(*m.in_flight),
                               absl::StrCat("version ", offer.version,
                                            " was offered before this one was sealed")});
  }
  const Epoch& epoch = m.epochs.at(m.trainer->epoch);
  Publish publish = NewPublish(m, session, reply, offer);
  bool reused = false;
  if (!TakeArena(m, publish, epoch.arena_bytes, offer.version, reused)) return;

  Version version;
  version.record.version = offer.version;
  version.record.epoch = epoch.record.epoch;
  version.record.key = NewKey(m, "version key");
  version.record.probe_seed = NewSeed(m, "probe seed");
  version.record.bytes = epoch.arena_bytes;
  version.manifest = epoch.manifest;
  version.contract_id = epoch.contract_id;
  version.contract_short = epoch.contract_short;
  version.arena = publish.arena;
  version.publish = std::move(publish);
  Version& stored = m.versions[offer.version] = std::move(version);
  m.in_flight = offer.version;
  RecordVersion(m, stored);
  RecordEvent(
      m, "offer", VersionSubject(offer.version),
      absl::StrCat("trainer '", session.name, "' offered ", stored.record.bytes, " bytes over ",
                   TransportName(offer.transport), " in epoch ", epoch.record.epoch));
  AnswerOffer(m, stored, *stored.publish, reused);
  if (m.arenas.at(*stored.arena).arrived) ScheduleAll(m);
}

// The same number again. Bytes that are here, or that nobody will ask for, do not move.
void OfferAgain(Machine& m, const Session& session, const ReplyTo& reply, const Offer& offer,
                Version& version) {
  if (LayoutDigest(*version.manifest) != offer.layout_digest) {
    Refuse(m, reply, VersionSubject(offer.version),
           Refusal{RefusalCode::kVersionConflict, VersionSubject(offer.version),
                   absl::StrCat("version ", offer.version, " exists with another layout; ",
                                NewestSentence(m))});
    return;
  }
  if (version.repeat.has_value() && version.repeat->arena.has_value()) {
    EndFilling(m, *version.repeat);
    UnholdArena(m, *version.repeat->arena, offer.version);
  }
  version.repeat = NewPublish(m, session, reply, offer);
  bool reused = false;
  const bool newest = m.newest_sealed == offer.version;
  const bool servable = version.bytes_held && version.proof != CopyProof::kBroken;
  if (newest && !servable &&
      !TakeArena(m, *version.repeat, version.record.bytes, offer.version, reused)) {
    version.repeat.reset();
    return;
  }
  RecordEvent(m, "offer", VersionSubject(offer.version),
              absl::StrCat("trainer '", session.name, "' offered the version again",
                           version.repeat->arena.has_value() ? "" : "; its bytes need not move"));
  AnswerOffer(m, version, *version.repeat, reused);
}

std::optional<Refusal> CheckSeal(const Version& version, const SealVersion& seal) {
  const std::string subject = VersionSubject(seal.version);
  const size_t tensors = version.manifest->tensors.size();
  if (seal.digest.tensor_roots.size() != tensors) {
    return Refusal{RefusalCode::kBadMessage, subject,
                   absl::StrCat("the seal carries ", seal.digest.tensor_roots.size(),
                                " tensor roots, the manifest has ", tensors, " tensors")};
  }
  if (seal.components.size() > kMaxComponents) {
    return Refusal{RefusalCode::kLimitExceeded, subject,
                   absl::StrCat("the seal names ", seal.components.size(),
                                " probe components, at most ", kMaxComponents, " are taken")};
  }
  std::set<absl::string_view> names;
  for (const ComponentDigest& component : seal.components) {
    if (!names.insert(component.name).second) {
      return Refusal{RefusalCode::kBadMessage, component.name,
                     absl::StrCat("the probe component '", component.name,
                                  "' is named twice; a component has one digest")};
    }
  }
  return std::nullopt;
}

// A seal of a version that is sealed: one id never means two digests (I4).
void SealAgain(Machine& m, const ReplyTo& reply, Version& version, const SealVersion& seal) {
  std::optional<Publish> repeat = std::exchange(version.repeat, std::nullopt);
  const bool moved = repeat.has_value() && repeat->arena.has_value();
  if (moved) EndFilling(m, *repeat);
  if (seal.digest != version.record.digest || seal.components != version.record.components) {
    if (moved) UnholdArena(m, *repeat->arena, seal.version);
    Refuse(m, reply, VersionSubject(seal.version),
           Refusal{RefusalCode::kVersionConflict, VersionSubject(seal.version),
                   absl::StrCat("version ", seal.version, " was sealed before with other bytes; ",
                                NewestSentence(m))});
    return;
  }
  const bool servable = version.bytes_held && version.proof != CopyProof::kBroken;
  if (moved && !servable) {
    if (version.arena.has_value()) UnholdArena(m, *version.arena, seal.version);
    version.arena = repeat->arena;
    version.bytes_held = true;
    version.proof = CopyProof::kUnknown;
    version.from_spool = false;
    ClearAlarm(m, VersionSubject(seal.version));
    SetReady(m, *version.arena, version.record.bytes);
  } else if (moved) {
    UnholdArena(m, *repeat->arena, seal.version);
  }
  if (!version.publish.has_value()) {
    version.publish = repeat.has_value() ? std::move(*repeat) : Publish{};
    version.publish->sealed = true;
    version.publish->held_seal.reset();
    version.publish->started_ms = m.time.now_ms;
    if (m.newest_sealed == seal.version && version.bytes_held) {
      ExpectSamplers(m, version, *version.publish);
    }
  }
  version.publish->seal = reply;
  if (moved) StartSpool(m, version);
  ScheduleAll(m);
  MaybeAnswerPublish(m, version);
}

// All bytes that the seal speaks of are here.
bool BytesComplete(const Machine& m, const Version& version, const Publish& publish) {
  const Arena& arena = m.arenas.at(*publish.arena);
  if (!arena.arrived) return false;
  return publish.transport == TransportKind::kShm || arena.bytes_ready == version.record.bytes;
}

void ApplySeal(Machine& m, Version& version, const ReplyTo& reply, const SealVersion& seal) {
  Publish& publish = *version.publish;
  publish.seal = reply;
  version.record.digest = seal.digest;
  version.record.components = seal.components;
  version.record.nan_elements = seal.nan_elements;
  SetReady(m, *version.arena, version.record.bytes);
  EndFilling(m, publish);
  SealNow(m, version);
}

// A seal that waited for bytes; also that of a version offered again.
void ApplyHeldSeal(Machine& m, Version& version) {
  for (std::optional<Publish>* slot : {&version.publish, &version.repeat}) {
    if (!slot->has_value() || !(*slot)->held_seal.has_value()) continue;
    if (!BytesComplete(m, version, **slot)) continue;
    const SealVersion seal = *std::exchange((*slot)->held_seal, std::nullopt);
    const ReplyTo reply = (*slot)->seal;
    if (slot == &version.publish) {
      ApplySeal(m, version, reply, seal);
    } else {
      SealAgain(m, reply, version, seal);
    }
    return;
  }
}

Version* VersionOfArena(Machine& m, uint64_t arena) {
  const Arena* found = Find(m.arenas, arena);
  if (found == nullptr || found->versions.empty()) return nullptr;
  return Find(m.versions, *found->versions.rbegin());
}

}  // namespace

void HandleOffer(Machine& m, const Session& session, const ReplyTo& reply, const Offer& offer) {
  const std::string subject = VersionSubject(offer.version);
  if (m.draining) {
    Refuse(m, reply, subject,
           Refusal{RefusalCode::kShuttingDown, subject,
                   "the bridge is shutting down; offer again when it is back"},
           /*final=*/false);
    return;
  }
  if (std::optional<Refusal> refusal = CheckOffer(m, session, offer)) {
    Refuse(m, reply, subject, *std::move(refusal));
    return;
  }
  Version* known = Find(m.versions, offer.version);
  if (known != nullptr && m.in_flight == offer.version) {
    Publish& publish = *known->publish;
    if (publish.trainer == session.key && publish.transport == offer.transport) {
      publish.offer = reply;
      AnswerOffer(m, *known, publish, false);
      return;
    }
  }
  if (known != nullptr && known->state != VersionStage::kDiscarded &&
      m.in_flight != offer.version && m.newest_sealed.has_value()) {
    OfferAgain(m, session, reply, offer, *known);
    return;
  }
  const bool behind_rollback = m.rollback.has_value() && offer.version <= m.rollback->version;
  if (behind_rollback || (m.newest_sealed.has_value() && offer.version <= *m.newest_sealed)) {
    Refuse(m, reply, subject,
           Refusal{RefusalCode::kVersionBackwards, subject,
                   absl::StrCat("version ", offer.version, " is not new: ", NewestSentence(m))});
    return;
  }
  OfferNew(m, session, reply, offer);
}

void HandleTransferProgress(Machine& m, const Session& session, const TransferProgress& message) {
  Version* version = Find(m.versions, message.version);
  if (version == nullptr || m.in_flight != message.version ||
      version->publish->trainer != session.key ||
      version->publish->transport != TransportKind::kShm) {
    return;
  }
  const Arena& arena = m.arenas.at(*version->arena);
  if (message.bytes_ready <= arena.bytes_ready || message.bytes_ready > version->record.bytes) {
    return;
  }
  version->state = VersionStage::kTransferring;
  SetReady(m, *version->arena, message.bytes_ready);
  RoundsProgress(m, message.version);
}

void HandleSealVersion(Machine& m, const Session& session, const ReplyTo& reply,
                       const SealVersion& message) {
  const std::string subject = VersionSubject(message.version);
  Version* version = Find(m.versions, message.version);
  if (!m.trainer.has_value() || m.trainer->key != session.key) {
    Refuse(m, reply, subject,
           Refusal{RefusalCode::kStaleEpoch, subject,
                   absl::StrCat("trainer '", session.name,
                                "' does not hold the writable epoch; register again")});
    return;
  }
  if (version == nullptr || version->state == VersionStage::kDiscarded) {
    Refuse(m, reply, subject,
           Refusal{RefusalCode::kUnknownVersion, subject,
                   "nothing of this number is being published; offer it first"});
    return;
  }
  std::optional<Publish>& slot =
      m.in_flight == message.version ? version->publish : version->repeat;
  std::optional<Refusal> refusal = CheckSeal(*version, message);
  if (!refusal.has_value() && slot.has_value() && slot->arena.has_value() &&
      message.arena_id != *slot->arena) {
    refusal = Refusal{RefusalCode::kBadMessage, subject,
                      absl::StrCat("the seal names arena ", message.arena_id, ", version ",
                                   message.version, " was given arena ", *slot->arena)};
  }
  if (refusal.has_value()) {
    // Answered where the outcome would have gone.
    Refuse(m, reply.seq != 0 || !slot.has_value() ? reply : slot->offer, subject,
           *std::move(refusal));
    return;
  }
  if (slot.has_value() && slot->arena.has_value()) {
    slot->seal = reply;
    slot->held_seal = message;
    ApplyHeldSeal(m, *version);
    return;
  }
  SealAgain(m, reply, *version, message);
}

void HandleArenaArrived(Machine& m, const ArenaArrived& arrived) {
  Arena* arena = Find(m.arenas, arrived.arena_id);
  if (arena == nullptr || arena->own || arena->trainer != arrived.incarnation) {
    if (arena == nullptr) Emit(m, CloseArena{arrived.arena_id});
    return;
  }
  if (arrived.bytes < arena->bytes) {
    if (m.in_flight.has_value()) {
      DiscardUnsealed(m, Refusal{RefusalCode::kTransferFailed, VersionSubject(*m.in_flight),
                                 absl::StrCat("the arena has ", arrived.bytes,
                                              " bytes, the version needs ", arena->bytes)});
    }
    return;
  }
  arena->arrived = true;
  SetReady(m, arrived.arena_id, arena->bytes_ready);
  Version* version = VersionOfArena(m, arrived.arena_id);
  if (version == nullptr) return;
  if (m.in_flight == version->record.version) ScheduleAll(m);
  ApplyHeldSeal(m, *version);
}

void HandleArenaFailed(Machine& m, const ArenaFailed& failed) {
  Arena* arena = Find(m.arenas, failed.arena_id);
  if (arena == nullptr || !arena->own) return;
  arena->tainted = true;  // never given out again
  DiscardUnsealed(
      m, Refusal{RefusalCode::kLimitExceeded, absl::StrCat("arena ", failed.arena_id),
                 absl::StrCat("the bridge has no memory for the upload: ", failed.reason)});
}

void HandleUploadMark(Machine& m, const UploadMark& mark) {
  Arena* arena = Find(m.arenas, mark.arena_id);
  Version* version = VersionOfArena(m, mark.arena_id);
  if (arena == nullptr || version == nullptr || !arena->own) return;
  if (version->bytes_held && !version->repeat.has_value()) return;
  if (mark.bytes_ready < arena->bytes_ready || mark.bytes_ready > arena->bytes) return;
  SetReady(m, mark.arena_id, mark.bytes_ready);
  if (m.in_flight == version->record.version) {
    version->state = VersionStage::kTransferring;
    RoundsProgress(m, version->record.version);
  }
  ApplyHeldSeal(m, *version);
}

void DiscardUnsealed(Machine& m, const Refusal& why) {
  for (auto& [number, version] : m.versions) {
    if (!version.repeat.has_value()) continue;
    EndFilling(m, *version.repeat);
    if (version.repeat->arena.has_value()) UnholdArena(m, *version.repeat->arena, number);
    version.repeat.reset();
  }
  if (!m.in_flight.has_value()) return;
  Version& version = m.versions.at(*m.in_flight);
  m.in_flight.reset();
  const uint64_t number = version.record.version;
  AbortRoundsOf(m, number, why);
  EndFilling(m, *version.publish);
  UnholdArena(m, *version.arena, number);
  version.arena.reset();
  version.state = VersionStage::kDiscarded;
  RecordVersion(m, version);
  RecordEvent(m, "discard", VersionSubject(number), why.message);
  const Publish publish = *std::exchange(version.publish, std::nullopt);
  Refuse(m, OutcomeReply(publish), VersionSubject(number), why, /*final=*/false);
}

void SealNow(Machine& m, Version& version) {
  const uint64_t number = version.record.version;
  version.state = VersionStage::kSealed;
  version.bytes_held = true;
  version.sealed_ms = m.time.now_ms;
  version.record.sealed_wall_ms = static_cast<uint64_t>(m.time.wall_ms);
  version.publish->sealed = true;
  m.newest_sealed = number;
  if (m.in_flight == number) m.in_flight.reset();
  RecordVersion(m, version);
  RecordEvent(m, "seal", VersionSubject(number),
              absl::StrCat(version.record.bytes, " bytes in ", version.manifest->tensors.size(),
                           " tensors are final, manifest root ",
                           ToHex(version.record.digest.manifest_root).substr(0, 16),
                           version.record.nan_elements == 0
                               ? ""
                               : absl::StrCat(", ", version.record.nan_elements, " NaN elements")));
  ExpectSamplers(m, version, *version.publish);
  if (!version.record.rollback_of.has_value()) StartCompare(m, version);
  StartSpool(m, version);
  SupersedeOlder(m, number);
  Retain(m);
  RoundsOfSealedVersion(m, number);
  ScheduleAll(m);
  MaybeAnswerPublish(m, version);
}

}  // namespace lockstep::core
