#include "tests/sim/invariants.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lockstep::core {
namespace {

bool IsSealed(const std::string& state) {
  return state == "sealed" || state == "verified" || state == "live" || state == "retired";
}

}  // namespace

void Invariants::OnVersion(const VersionRecord& record) {
  const uint64_t number = record.version;
  const auto before = versions_.find(number);
  const bool was_sealed = before != versions_.end() && IsSealed(before->second.state);
  if (was_sealed) {
    Require(record.digest == before->second.digest && record.key == before->second.key,
            absl::StrCat("I4: version ", number, " changed its digest"));
    Require(IsSealed(record.state),
            absl::StrCat("I3: sealed version ", number, " became ", record.state));
  } else if (IsSealed(record.state)) {
    Require(number > newest_sealed_, absl::StrCat("I4: version ", number, " went backwards"));
    Require(record.epoch >= newest_sealed_epoch_, "I4: the epoch went backwards");
    newest_sealed_ = number;
    newest_sealed_epoch_ = record.epoch;
  } else if (record.state == "offered") {
    Require(record.epoch == newest_epoch_, "I5: an offer under an old epoch");
  }
  versions_[number] = record;
}

void Invariants::OnDecision(const Decision& decision) {
  const auto before = decisions_.find(decision.rollout_id);
  if (before != decisions_.end() && before->second.kind != DecisionKind::kPending) {
    Require(before->second == decision,
            absl::StrCat("I7: rollout ", decision.rollout_id, " was decided twice"));
  }
  decisions_[decision.rollout_id] = decision;
  if (decision.kind == DecisionKind::kRefuse) {
    Require(!decision.reasons.empty(), "I6: a refusal without a reason");
  }
}

void Invariants::OnRecord(const LedgerRecord& record) {
  if (const EpochRecord* epoch = std::get_if<EpochRecord>(&record)) {
    Require(epoch->epoch > newest_epoch_, "I5: an epoch was taken twice");
    newest_epoch_ = epoch->epoch;
  } else if (const VersionRecord* version = std::get_if<VersionRecord>(&record)) {
    OnVersion(*version);
  } else if (const DecisionRecord* decision = std::get_if<DecisionRecord>(&record)) {
    OnDecision(decision->decision);
  } else if (const LiveRecord* live = std::get_if<LiveRecord>(&record)) {
    Require(!live->flush_receipt.empty(), "I9: live without a flush receipt");
    Require(live->cache_epoch > cache_epochs_[live->incarnation], "I9: the cache epoch stood");
    Require(live->components_verified == live->components_total, "I1: live with a probe missing");
    cache_epochs_[live->incarnation] = live->cache_epoch;
    live_.insert({live->incarnation, live->version});
  }
}

void Invariants::OnSend(const Send& send) {
  const Message& body = send.envelope.body;
  if (const Refused* refused = std::get_if<Refused>(&body)) {
    Require(!refused->refusals.empty(), "I6: Refused without a reason");
  } else if (const PublishOutcome* outcome = std::get_if<PublishOutcome>(&body)) {
    const auto version = versions_.find(outcome->version);
    Require(version != versions_.end() && IsSealed(version->second.state),
            "I3: a publish was acknowledged before it was durable");
    acknowledged_.insert(outcome->version);
  } else if (const OfferAccepted* accepted = std::get_if<OfferAccepted>(&body)) {
    const auto [key, fresh] =
        offer_keys_.insert({{send.peer, send.envelope.reply_to}, accepted->key});
    Require(fresh || key->second == accepted->key, "I7: a repeated offer got another key");
    if (!accepted->verify_only) arenas_.insert(accepted->arena_id);
  } else if (const DecisionReply* reply = std::get_if<DecisionReply>(&body)) {
    const Decision& decision = reply->decision;
    const auto stored = decisions_.find(decision.rollout_id);
    const bool duplicate =
        std::any_of(decision.reasons.begin(), decision.reasons.end(),
                    [](const Refusal& reason) { return reason.code == RefusalCode::kDuplicate; });
    Require(duplicate || (stored != decisions_.end() && stored->second == decision) ||
                decision.kind == DecisionKind::kPending,
            "I3: a decision was answered before it was durable");
    if (decision.kind != DecisionKind::kAdmit) return;
    for (const auto& [place, bytes] : served_) {
      if (place.second != decision.spans.front().version) continue;
      const VersionRecord& version = versions_.at(place.second);
      Require(DigestOf(place.second, version.key, bytes) == version.digest,
              "I1: admitted over bytes that are not the trainer's");
    }
  }
}

void Invariants::OnEffect(const Effect& effect) {
  if (const CreateArena* create = std::get_if<CreateArena>(&effect)) {
    arenas_.insert(create->arena_id);
  } else if (const SpoolLoad* load = std::get_if<SpoolLoad>(&effect)) {
    arenas_.insert(load->arena_id);
  } else if (const CloseArena* close = std::get_if<CloseArena>(&effect)) {
    Require(readers_[close->arena_id].empty(), "an arena was closed under a grant");
    arenas_.erase(close->arena_id);
  } else if (const Grant* grant = std::get_if<Grant>(&effect)) {
    if (grant->write) {
      Require(readers_[grant->arena_id].empty(), "I2: an arena was given to write under a reader");
    } else {
      readers_[grant->arena_id].insert(grant->incarnation);
    }
  } else if (const Revoke* revoke = std::get_if<Revoke>(&effect)) {
    readers_[revoke->arena_id].erase(revoke->incarnation);
  }
  Require(arenas_.size() <= kMaxArenas, "I10: too many arenas");
}

void Invariants::OnServed(const Incarnation& incarnation, uint64_t version, const Bytes& bytes) {
  Require(live_.contains({incarnation, version}), "I8: Live was sent without its record");
  served_[{incarnation, version}] = bytes;
  const VersionRecord& record = versions_.at(version);
  Require(DigestOf(version, record.key, bytes) == record.digest,
          "I1: live on bytes that are not the trainer's");
}

void Invariants::OnWorld(World& world) {
  for (const auto& peer : world.peers) {
    const ModelSampler* sampler = dynamic_cast<const ModelSampler*>(peer.get());
    if (sampler == nullptr || !sampler->alive || sampler->slot_arena == 0) continue;
    const auto memory = world.memory.find(sampler->slot_arena);
    if (memory == world.memory.end()) continue;
    Require(memory->second == sampler->slot,
            absl::StrCat("I2: the bytes under live sampler ", sampler->name, " changed"));
  }
}

void Invariants::OnRestart(World& world) {
  arenas_.clear();
  readers_.clear();
  for (const uint64_t version : acknowledged_) {
    const std::string state = world.StatusOf(version).state;
    Require(IsSealed(state),
            absl::StrCat("I3: acknowledged version ", version, " is '", state, "' after a crash"));
  }
}

}  // namespace lockstep::core
