#include "policy/version_ledger.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

constexpr std::pair<VersionStage, absl::string_view> kStageNames[] = {
    {VersionStage::kOffered, "offered"},     {VersionStage::kTransferring, "transferring"},
    {VersionStage::kSealed, "sealed"},       {VersionStage::kVerified, "verified"},
    {VersionStage::kLive, "live"},           {VersionStage::kRetired, "retired"},
    {VersionStage::kDiscarded, "discarded"},
};

constexpr uint64_t kLastVersion = std::numeric_limits<uint64_t>::max();

std::string Key(uint64_t version) { return absl::StrCat("version ", version); }

bool IsUnsealed(VersionStage stage) {
  return stage == VersionStage::kOffered || stage == VersionStage::kTransferring;
}

bool IsEnded(VersionStage stage) {
  return stage == VersionStage::kRetired || stage == VersionStage::kDiscarded;
}

bool MayFollow(VersionStage from, VersionStage to) {
  switch (to) {
    case VersionStage::kOffered:
      return false;
    case VersionStage::kTransferring:
      return from == VersionStage::kOffered;
    case VersionStage::kSealed:
    case VersionStage::kDiscarded:
      return IsUnsealed(from);
    case VersionStage::kVerified:
      return from == VersionStage::kSealed;
    case VersionStage::kLive:
      return from == VersionStage::kVerified;
    case VersionStage::kRetired:
      return !IsUnsealed(from) && !IsEnded(from);
  }
  return false;
}

}  // namespace

absl::string_view VersionStageName(VersionStage stage) {
  for (const auto& [known, name] : kStageNames) {
    if (known == stage) return name;
  }
  return "unknown";
}

std::optional<VersionStage> VersionStageFromName(absl::string_view name) {
  for (const auto& [stage, known] : kStageNames) {
    if (known == name) return stage;
  }
  return std::nullopt;
}

VersionLedger::VersionLedger(std::string run) : run_(std::move(run)) {}

uint64_t VersionLedger::OpenEpoch() {
  DiscardUnsealed();
  return ++newest_epoch_;
}

std::optional<Refusal> VersionLedger::CheckEpoch(uint64_t epoch) const {
  if (epoch == newest_epoch_ && epoch != 0) return std::nullopt;
  return Refusal{RefusalCode::kStaleEpoch, absl::StrCat("epoch ", epoch),
                 absl::StrCat("epoch ", epoch, " may not write run '", run_, "': ", newest_epoch_,
                              " is the writable one; another trainer took over: register again to "
                              "take the next")};
}

std::optional<Refusal> VersionLedger::Offer(uint64_t epoch, uint64_t version,
                                            const Digest256& layout) {
  if (auto refusal = CheckEpoch(epoch)) return refusal;
  if (newest_sealed_.has_value() && version < *newest_sealed_) {
    return Refusal{RefusalCode::kVersionBackwards, Key(version),
                   absl::StrCat(NewestSentence(), "; version ", version,
                                " would go backwards: publish ", *newest_sealed_ + 1, " or later")};
  }
  const LedgerVersion* known = Find(version);
  if (known != nullptr && known->stage != VersionStage::kDiscarded) {
    if (known->layout == layout) return std::nullopt;
    return Refusal{RefusalCode::kVersionConflict, Key(version),
                   absl::StrCat("version ", version, " exists with another layout (",
                                ToHex(known->layout), ", now ", ToHex(layout),
                                "); publish other tensors under a new number and registration")};
  }
  if (version == newest_sealed_) {
    return Refusal{RefusalCode::kVersionBackwards, Key(version),
                   absl::StrCat(NewestSentence(), " and was forgotten since; publish the next")};
  }
  DiscardUnsealed();
  versions_[version] =
      LedgerVersion{version, epoch, VersionStage::kOffered, layout, std::nullopt, std::nullopt};
  Forget();
  return std::nullopt;
}

std::optional<Refusal> VersionLedger::BeginTransfer(uint64_t epoch, uint64_t version) {
  if (auto refusal = CheckEpoch(epoch)) return refusal;
  return MoveTo(version, VersionStage::kTransferring);
}

std::optional<Refusal> VersionLedger::Seal(uint64_t epoch, uint64_t version,
                                           const Digest256& content) {
  if (auto refusal = CheckEpoch(epoch)) return refusal;
  const LedgerVersion* known = Find(version);
  if (known != nullptr && known->content.has_value()) {
    if (*known->content == content) return std::nullopt;
    return Refusal{
        RefusalCode::kVersionConflict, Key(version),
        absl::StrCat("version ", version, " was sealed with digest ", ToHex(*known->content),
                     " and now has ", ToHex(content), ": one number never means two contents; ",
                     NewestSentence(), ", publish the next")};
  }
  if (auto refusal = MoveTo(version, VersionStage::kSealed)) return refusal;
  versions_.at(version).content = content;
  newest_sealed_ = version;
  newest_sealed_epoch_ = epoch;
  return std::nullopt;
}

std::optional<Refusal> VersionLedger::Verify(uint64_t version) {
  return MoveTo(version, VersionStage::kVerified);
}

std::optional<Refusal> VersionLedger::MakeLive(uint64_t version) {
  return MoveTo(version, VersionStage::kLive);
}

std::optional<Refusal> VersionLedger::Retire(uint64_t version) {
  return MoveTo(version, VersionStage::kRetired);
}

std::optional<Refusal> VersionLedger::Discard(uint64_t version) {
  return MoveTo(version, VersionStage::kDiscarded);
}

std::optional<Refusal> VersionLedger::MoveTo(uint64_t version, VersionStage stage) {
  const auto at = versions_.find(version);
  if (at == versions_.end()) {
    return Refusal{
        RefusalCode::kUnknownVersion, Key(version),
        absl::StrCat("run '", run_, "' has no version ", version, "; ", NewestSentence())};
  }
  if (at->second.stage == stage) return std::nullopt;
  if (!MayFollow(at->second.stage, stage)) {
    return Refusal{RefusalCode::kVersionConflict, Key(version),
                   absl::StrCat("version ", version, " is ", VersionStageName(at->second.stage),
                                " and cannot become ", VersionStageName(stage))};
  }
  at->second.stage = stage;
  return std::nullopt;
}

std::optional<Refusal> VersionLedger::RollBack(uint64_t source, const Digest256& content,
                                               uint64_t& version) {
  const LedgerVersion* from = Find(source);
  if (from == nullptr || !from->content.has_value()) {
    return Refusal{
        RefusalCode::kUnknownVersion, Key(source),
        absl::StrCat("version ", source, " was never sealed in run '", run_, "' or is forgotten; ",
                     NewestSentence(), ": roll back to a version that `versions` lists")};
  }
  if (*newest_sealed_ == kLastVersion) {
    return Refusal{RefusalCode::kLimitExceeded, Key(source), "version numbers are used up"};
  }
  LedgerVersion next{*newest_sealed_ + 1, newest_epoch_, VersionStage::kSealed,
                     from->layout,        content,       source};
  // A publish in flight would land on the same number or behind it.
  DiscardUnsealed();
  version = next.version;
  newest_sealed_ = version;
  newest_sealed_epoch_ = newest_epoch_;
  versions_[version] = std::move(next);
  Forget();
  return std::nullopt;
}

void VersionLedger::Restore(const LedgerVersion& version) {
  versions_[version.version] = version;
  newest_epoch_ = std::max(newest_epoch_, version.epoch);
  if (version.content.has_value() && version.version >= newest_sealed_.value_or(0)) {
    newest_sealed_ = version.version;
    newest_sealed_epoch_ = version.epoch;
  }
}

void VersionLedger::RestoreEpoch(uint64_t newest_epoch) {
  newest_epoch_ = std::max(newest_epoch_, newest_epoch);
}

const LedgerVersion* VersionLedger::Find(uint64_t version) const {
  const auto at = versions_.find(version);
  return at == versions_.end() ? nullptr : &at->second;
}

std::string VersionLedger::NewestSentence() const {
  if (!newest_sealed_.has_value()) return absl::StrCat("run '", run_, "' has no version yet");
  return absl::StrCat("newest version of run '", run_, "' is ", *newest_sealed_, " (epoch ",
                      newest_sealed_epoch_, ")");
}

void VersionLedger::DiscardUnsealed() {
  for (auto& [number, version] : versions_) {
    if (IsUnsealed(version.stage)) version.stage = VersionStage::kDiscarded;
  }
}

void VersionLedger::Forget() {
  for (auto at = versions_.begin();
       at != versions_.end() && versions_.size() > kMaxLedgerVersions;) {
    at = IsEnded(at->second.stage) ? versions_.erase(at) : std::next(at);
  }
}

}  // namespace lockstep
