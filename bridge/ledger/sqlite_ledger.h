#ifndef LOCKSTEP_BRIDGE_LEDGER_SQLITE_LEDGER_H_
#define LOCKSTEP_BRIDGE_LEDGER_SQLITE_LEDGER_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bridge/ledger/ledger.h"
#include "bridge/ledger/sqlite_db.h"

namespace lockstep::ledger {

class SqliteLedger final : public Ledger {
 public:
  static absl::StatusOr<std::unique_ptr<SqliteLedger>> Open(const LedgerOptions& options);

  absl::Status Append(absl::Span<const core::LedgerRecord> records) override;
  absl::StatusOr<std::optional<Decision>> FindDecision(absl::string_view rollout_id) override;
  absl::StatusOr<EventsReply> Events(uint64_t after_seq, uint32_t limit) override;
  absl::StatusOr<core::RecoveredState> Recover() override;
  const Digest256& ticket_key() const override { return ticket_key_; }
  uint64_t boot() const override { return boot_; }

 private:
  explicit SqliteLedger(SqliteDb db) : db_(std::move(db)) {}

  absl::Status Prepare();
  absl::Status CheckLayoutAndRun(const std::string& run);
  absl::StatusOr<std::optional<std::string>> Meta(absl::string_view key);
  absl::Status SetMeta(absl::string_view key, absl::string_view value);

  absl::Status Put(const core::EpochRecord& record);
  absl::Status Put(const core::VersionRecord& record);
  absl::Status Put(const core::LiveRecord& record);
  absl::Status Put(const core::SamplerRecord& record);
  absl::Status Put(const core::DecisionRecord& record);
  absl::Status Put(const core::RefusalRecord& record);
  absl::Status Put(const core::EventRecord& record);
  absl::Status PutCounts();
  // Removes the oldest rows beyond the limits of ledger.h.
  absl::Status Prune();

  absl::Status RecoverEpochs(core::RecoveredState& state);
  absl::Status RecoverVersions(core::RecoveredState& state);
  absl::Status RecoverSamplers(core::RecoveredState& state);
  absl::Status RecoverLiveHistory(core::RecoveredState& state);
  absl::Status RecoverPending(core::RecoveredState& state);
  absl::Status RecoverCounts(core::RecoveredState& state);

  SqliteDb db_;
  Digest256 ticket_key_{};
  uint64_t boot_ = 0;
  uint64_t batches_since_prune_ = 0;
  // Of the batch being appended, by scope and reason; the names are constants.
  std::map<std::pair<int, absl::string_view>, uint64_t> counted_;

  // Statements are finalized before the database closes: declared after it.
  SqliteStatement begin_, commit_, rollback_;
  SqliteStatement put_epoch_, put_version_, put_live_, put_sampler_, put_decision_, put_event_;
  SqliteStatement count_, find_decision_, events_, last_event_;
};

}  // namespace lockstep::ledger

#endif  // LOCKSTEP_BRIDGE_LEDGER_SQLITE_LEDGER_H_
