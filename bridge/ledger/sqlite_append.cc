// Writing: one transaction a batch.

#include "absl/strings/str_cat.h"
#include "bridge/ledger/sqlite_ledger.h"
#include "bridge/wire/wire.h"
#include "policy/status_macros.h"

namespace lockstep::ledger {
namespace {

constexpr int kScopeRollouts = 0;
constexpr int kScopeOther = 1;
// Rows are few per batch; pruning every so many batches keeps the overshoot small.
constexpr uint64_t kBatchesBetweenPrunes = 256;

}  // namespace

absl::Status SqliteLedger::Append(absl::Span<const core::LedgerRecord> records) {
  if (records.empty()) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(begin_.Run());
  counted_.clear();
  const auto put_all = [&]() -> absl::Status {
    for (const core::LedgerRecord& record : records) {
      LOCKSTEP_RETURN_IF_ERROR(std::visit([this](const auto& r) { return Put(r); }, record));
    }
    LOCKSTEP_RETURN_IF_ERROR(PutCounts());
    if (++batches_since_prune_ >= kBatchesBetweenPrunes) {
      batches_since_prune_ = 0;
      LOCKSTEP_RETURN_IF_ERROR(Prune());
    }
    return commit_.Run();
  };
  absl::Status status = put_all();
  // After some errors SQLite has rolled back by itself; the outcome is the same.
  if (!status.ok()) rollback_.Run().IgnoreError();
  return status;
}

absl::Status SqliteLedger::Put(const core::EpochRecord& record) {
  return put_epoch_.Bind(1, record.epoch)
      .Bind(2, record.trainer)
      .BindBlob(3, record.incarnation)
      .Bind(4, static_cast<uint64_t>(record.source_role))
      .Bind(5, record.contract_json)
      .BindBlob(6, wire::EncodeEvidence(record.evidence))
      .BindBlob(7, wire::EncodeManifest(record.manifest))
      .Run();
}

absl::Status SqliteLedger::Put(const core::VersionRecord& record) {
  put_version_.Bind(1, record.version)
      .Bind(2, record.epoch)
      .Bind(3, record.state)
      .BindBlob(4, record.key)
      .Bind(5, record.probe_seed)
      .BindBlob(6, wire::EncodeVersionDigest(record.digest))
      .BindBlob(7, wire::EncodeComponents(record.components))
      .Bind(8, record.nan_elements)
      .Bind(9, record.bytes)
      .Bind(10, uint64_t{record.zero_change})
      .Bind(11, uint64_t{record.on_disk})
      .Bind(13, record.sealed_wall_ms);
  if (record.rollback_of.has_value()) {
    put_version_.Bind(12, *record.rollback_of);
  } else {
    put_version_.BindNull(12);
  }
  return put_version_.Run();
}

absl::Status SqliteLedger::Put(const core::LiveRecord& record) {
  return put_live_.Bind(1, record.sampler)
      .BindBlob(2, record.incarnation)
      .Bind(3, record.version)
      .Bind(4, record.cache_epoch)
      .Bind(5, record.flush_receipt)
      .Bind(6, uint64_t{record.components_verified})
      .Bind(7, uint64_t{record.components_total})
      .Run();
}

absl::Status SqliteLedger::Put(const core::SamplerRecord& record) {
  return put_sampler_.Bind(1, record.name)
      .BindBlob(2, record.incarnation)
      .Bind(3, record.state)
      .BindBlob(4, wire::EncodeRefusals(record.reasons))
      .Bind(5, record.contract_json)
      .Bind(6, record.transport)
      .Run();
}

absl::Status SqliteLedger::Put(const core::DecisionRecord& record) {
  const bool pending = record.decision.kind == DecisionKind::kPending;
  put_decision_.Bind(1, record.decision.rollout_id)
      .Bind(2, uint64_t{pending})
      .BindBlob(3, wire::EncodeDecision(record.decision));
  if (record.rollout.has_value()) {
    put_decision_.BindBlob(4, wire::EncodeRollout(*record.rollout));
  } else {
    put_decision_.BindNull(4);
  }
  LOCKSTEP_RETURN_IF_ERROR(put_decision_.Run());
  if (pending) return absl::OkStatus();
  const bool admitted = record.decision.kind == DecisionKind::kAdmit;
  ++counted_[{kScopeRollouts, admitted || record.decision.reasons.empty()
                                  ? absl::string_view()
                                  : RefusalCodeName(record.decision.reasons[0].code)}];
  return absl::OkStatus();
}

absl::Status SqliteLedger::Put(const core::RefusalRecord& record) {
  ++counted_[{kScopeOther, RefusalCodeName(record.code)}];
  return absl::OkStatus();
}

absl::Status SqliteLedger::Put(const core::EventRecord& record) {
  return put_event_.Bind(1, record.event.seq)
      .Bind(2, record.event.wall_ms)
      .Bind(3, record.event.kind)
      .Bind(4, record.event.subject)
      .Bind(5, record.event.text)
      .Run();
}

absl::Status SqliteLedger::PutCounts() {
  for (const auto& [key, count] : counted_) {
    LOCKSTEP_RETURN_IF_ERROR(
        count_.Bind(1, static_cast<uint64_t>(key.first)).Bind(2, key.second).Bind(3, count).Run());
  }
  return absl::OkStatus();
}

absl::Status SqliteLedger::Prune() {
  LOCKSTEP_RETURN_IF_ERROR(db_.Execute(absl::StrCat(
      "DELETE FROM events WHERE seq <= (SELECT MAX(seq) FROM events) - ", kMaxEvents)));
  LOCKSTEP_RETURN_IF_ERROR(db_.Execute(absl::StrCat(
      "DELETE FROM live WHERE seq <= (SELECT MAX(seq) FROM live) - ", kMaxLiveRecords)));
  LOCKSTEP_RETURN_IF_ERROR(
      db_.Execute(absl::StrCat("DELETE FROM decisions WHERE pending = 0 AND seq <= (SELECT "
                               "MAX(seq) FROM decisions) - ",
                               kMaxDecisions)));
  LOCKSTEP_RETURN_IF_ERROR(
      db_.Execute(absl::StrCat("DELETE FROM versions WHERE version NOT IN (SELECT version FROM "
                               "versions ORDER BY version DESC LIMIT ",
                               kMaxVersionRecords, ")")));
  return db_.Execute(
      "DELETE FROM epochs WHERE epoch < (SELECT MAX(epoch) FROM epochs) AND epoch NOT IN "
      "(SELECT epoch FROM versions)");
}

}  // namespace lockstep::ledger
