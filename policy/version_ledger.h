#ifndef LOCKSTEP_POLICY_VERSION_LEDGER_H_
#define LOCKSTEP_POLICY_VERSION_LEDGER_H_

// Which versions of a run exist, who may write the next, and what may happen to each. A pure
// state machine: it holds the invariants
//   I4  (epoch, version) only grows; one version never means two digests
//   I5  at most one epoch is writable
// and says in every refusal what is newest and what to do.
//
//   offered -> transferring -> sealed -> verified -> live -> retired
//      \____________\-> discarded      \________\________/
//
// A number is used up by its seal, not by its offer: after a trainer died in the middle of a
// publish its successor may offer the same number again. Every call is idempotent: asking for
// what is already so succeeds and changes nothing. A refused call changes nothing.
//
// Example:
//   VersionLedger ledger("default");
//   uint64_t epoch = ledger.OpenEpoch();
//   if (auto refusal = ledger.Offer(epoch, 4, layout)) return Refuse(*refusal);
//   ...
//   if (auto refusal = ledger.Seal(epoch, 4, digest)) return Refuse(*refusal);

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "policy/ids.h"
#include "policy/refusal.h"

namespace lockstep {

enum class VersionStage {
  kOffered,
  kTransferring,
  kSealed,
  kVerified,
  kLive,
  kRetired,
  kDiscarded,
};

absl::string_view VersionStageName(VersionStage stage);  // "offered", ...
std::optional<VersionStage> VersionStageFromName(absl::string_view name);

struct LedgerVersion {
  uint64_t version = 0;
  uint64_t epoch = 0;
  VersionStage stage = VersionStage::kOffered;
  Digest256 layout{};
  std::optional<Digest256> content;     // from the seal on
  std::optional<uint64_t> rollback_of;  // whose bytes these are again

  bool operator==(const LedgerVersion&) const = default;
};

// Ended versions (retired, discarded) beyond this many records are forgotten, oldest first;
// their numbers stay used up.
inline constexpr uint64_t kMaxLedgerVersions = 4'096;

class VersionLedger {
 public:
  explicit VersionLedger(std::string run);

  // A trainer takes over: the new epoch is the only writable one, and what older epochs left
  // unsealed is discarded.
  uint64_t OpenEpoch();

  // kStaleEpoch, kVersionBackwards, or kVersionConflict for another layout of the newest
  // version. An unsealed version that a newer offer passes is discarded. Offering the newest
  // sealed version again is allowed: only its bytes' equality can be shown.
  std::optional<Refusal> Offer(uint64_t epoch, uint64_t version, const Digest256& layout);

  std::optional<Refusal> BeginTransfer(uint64_t epoch, uint64_t version);

  // Also the repeat: equal content succeeds, other content is kVersionConflict (I4).
  std::optional<Refusal> Seal(uint64_t epoch, uint64_t version, const Digest256& content);

  // kUnknownVersion, or kVersionConflict when the stage does not follow (see the diagram).
  std::optional<Refusal> Verify(uint64_t version);
  std::optional<Refusal> MakeLive(uint64_t version);
  std::optional<Refusal> Retire(uint64_t version);
  std::optional<Refusal> Discard(uint64_t version);

  // An operator brings back the bytes of `source` under the next number, which is returned
  // through `version`; sealed at once, under the newest epoch, with its own content digest
  // (digests are keyed by version).
  std::optional<Refusal> RollBack(uint64_t source, const Digest256& content, uint64_t& version);

  // For recovery, ascending by version, before any other call.
  void Restore(const LedgerVersion& version);
  void RestoreEpoch(uint64_t newest_epoch);

  const LedgerVersion* Find(uint64_t version) const;  // nullptr when unknown or forgotten
  std::optional<uint64_t> newest_sealed() const { return newest_sealed_; }
  uint64_t newest_epoch() const { return newest_epoch_; }
  const std::map<uint64_t, LedgerVersion>& versions() const { return versions_; }

  // "newest version of run 'default' is 4 (epoch 2)", for messages.
  std::string NewestSentence() const;

 private:
  std::optional<Refusal> CheckEpoch(uint64_t epoch) const;
  std::optional<Refusal> MoveTo(uint64_t version, VersionStage stage);
  void DiscardUnsealed();
  void Forget();

  std::string run_;
  uint64_t newest_epoch_ = 0;  // 0: no trainer yet
  std::optional<uint64_t> newest_sealed_;
  uint64_t newest_sealed_epoch_ = 0;
  std::map<uint64_t, LedgerVersion> versions_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_VERSION_LEDGER_H_
