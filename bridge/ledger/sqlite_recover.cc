// Reading: decisions by id, events, and the whole state at start.

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "bridge/ledger/sqlite_ledger.h"
#include "bridge/wire/wire.h"
#include "policy/status_macros.h"

namespace lockstep::ledger {
namespace {

// A blob that this build wrote and cannot read is damage.
template <typename T>
absl::StatusOr<T> Readable(absl::StatusOr<T> decoded, absl::string_view what) {
  if (decoded.ok()) return decoded;
  return absl::DataLossError(
      absl::StrCat("ledger: ", what, " cannot be read: ", decoded.status().message()));
}

template <size_t kBytes>
absl::StatusOr<std::array<uint8_t, kBytes>> FixedBytes(const std::vector<uint8_t>& blob,
                                                       absl::string_view what) {
  if (blob.size() != kBytes) {
    return absl::DataLossError(absl::StrCat("ledger: ", what, " has ", blob.size(), " bytes, not ",
                                            kBytes, ": the file is damaged"));
  }
  std::array<uint8_t, kBytes> out;
  std::copy(blob.begin(), blob.end(), out.begin());
  return out;
}

}  // namespace

absl::StatusOr<std::optional<Decision>> SqliteLedger::FindDecision(absl::string_view rollout_id) {
  LOCKSTEP_ASSIGN_OR_RETURN(const bool row, find_decision_.Bind(1, rollout_id).Step());
  if (!row) return std::optional<Decision>();
  const std::vector<uint8_t> blob = find_decision_.ColumnBlob(0);
  find_decision_.Reset();
  return Readable(wire::DecodeDecision(blob), "a decision");
}

absl::StatusOr<EventsReply> SqliteLedger::Events(uint64_t after_seq, uint32_t limit) {
  EventsReply reply;
  LOCKSTEP_RETURN_IF_ERROR(last_event_.Step().status());
  reply.last_seq = last_event_.ColumnU64(0);
  last_event_.Reset();
  // A client may ask after any number; SQLite compares signed ones.
  if (after_seq >= reply.last_seq) return reply;
  events_.Bind(1, after_seq).Bind(2, uint64_t{limit});
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool row, events_.Step());
    if (!row) return reply;
    reply.events.push_back({events_.ColumnU64(0), events_.ColumnU64(1), events_.ColumnText(2),
                            events_.ColumnText(3), events_.ColumnText(4)});
  }
}

absl::StatusOr<core::RecoveredState> SqliteLedger::Recover() {
  core::RecoveredState state;
  LOCKSTEP_RETURN_IF_ERROR(RecoverEpochs(state));
  LOCKSTEP_RETURN_IF_ERROR(RecoverVersions(state));
  LOCKSTEP_RETURN_IF_ERROR(RecoverSamplers(state));
  LOCKSTEP_RETURN_IF_ERROR(RecoverLiveHistory(state));
  LOCKSTEP_RETURN_IF_ERROR(RecoverPending(state));
  LOCKSTEP_RETURN_IF_ERROR(RecoverCounts(state));
  LOCKSTEP_RETURN_IF_ERROR(last_event_.Step().status());
  state.last_event_seq = last_event_.ColumnU64(0);
  last_event_.Reset();
  return state;
}

absl::Status SqliteLedger::RecoverEpochs(core::RecoveredState& state) {
  LOCKSTEP_ASSIGN_OR_RETURN(SqliteStatement rows,
                            db_.Prepare("SELECT * FROM epochs ORDER BY epoch"));
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool row, rows.Step());
    if (!row) return absl::OkStatus();
    core::EpochRecord record;
    record.epoch = rows.ColumnU64(0);
    record.trainer = rows.ColumnText(1);
    LOCKSTEP_ASSIGN_OR_RETURN(record.incarnation,
                              FixedBytes<16>(rows.ColumnBlob(2), "an epoch's incarnation"));
    record.source_role = static_cast<SourceRole>(rows.ColumnU64(3));
    record.contract_json = rows.ColumnText(4);
    LOCKSTEP_ASSIGN_OR_RETURN(
        record.evidence, Readable(wire::DecodeEvidence(rows.ColumnBlob(5)), "an epoch's evidence"));
    LOCKSTEP_ASSIGN_OR_RETURN(
        record.manifest, Readable(wire::DecodeManifest(rows.ColumnBlob(6)), "an epoch's manifest"));
    state.epochs.push_back(std::move(record));
  }
}

absl::Status SqliteLedger::RecoverVersions(core::RecoveredState& state) {
  LOCKSTEP_ASSIGN_OR_RETURN(SqliteStatement rows,
                            db_.Prepare("SELECT * FROM versions ORDER BY version"));
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool row, rows.Step());
    if (!row) return absl::OkStatus();
    core::VersionRecord record;
    record.version = rows.ColumnU64(0);
    record.epoch = rows.ColumnU64(1);
    record.state = rows.ColumnText(2);
    LOCKSTEP_ASSIGN_OR_RETURN(record.key, FixedBytes<32>(rows.ColumnBlob(3), "a version's key"));
    record.probe_seed = rows.ColumnU64(4);
    LOCKSTEP_ASSIGN_OR_RETURN(record.digest, Readable(wire::DecodeVersionDigest(rows.ColumnBlob(5)),
                                                      "a version's digest"));
    LOCKSTEP_ASSIGN_OR_RETURN(
        record.components,
        Readable(wire::DecodeComponents(rows.ColumnBlob(6)), "a version's components"));
    record.nan_elements = rows.ColumnU64(7);
    record.bytes = rows.ColumnU64(8);
    record.zero_change = rows.ColumnU64(9) != 0;
    record.on_disk = rows.ColumnU64(10) != 0;
    if (!rows.ColumnIsNull(11)) record.rollback_of = rows.ColumnU64(11);
    record.sealed_wall_ms = rows.ColumnU64(12);
    state.versions.push_back(std::move(record));
  }
}

absl::Status SqliteLedger::RecoverSamplers(core::RecoveredState& state) {
  LOCKSTEP_ASSIGN_OR_RETURN(SqliteStatement rows,
                            db_.Prepare("SELECT * FROM samplers ORDER BY name"));
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool row, rows.Step());
    if (!row) return absl::OkStatus();
    core::SamplerRecord record;
    record.name = rows.ColumnText(0);
    LOCKSTEP_ASSIGN_OR_RETURN(record.incarnation,
                              FixedBytes<16>(rows.ColumnBlob(1), "a sampler's incarnation"));
    record.state = rows.ColumnText(2);
    LOCKSTEP_ASSIGN_OR_RETURN(
        record.reasons, Readable(wire::DecodeRefusals(rows.ColumnBlob(3)), "a sampler's reasons"));
    record.contract_json = rows.ColumnText(4);
    record.transport = rows.ColumnText(5);
    state.samplers.push_back(std::move(record));
  }
}

absl::Status SqliteLedger::RecoverLiveHistory(core::RecoveredState& state) {
  LOCKSTEP_ASSIGN_OR_RETURN(SqliteStatement rows, db_.Prepare("SELECT * FROM live ORDER BY seq"));
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool row, rows.Step());
    if (!row) return absl::OkStatus();
    core::LiveRecord record;
    record.sampler = rows.ColumnText(1);
    LOCKSTEP_ASSIGN_OR_RETURN(record.incarnation,
                              FixedBytes<16>(rows.ColumnBlob(2), "an activation's incarnation"));
    record.version = rows.ColumnU64(3);
    record.cache_epoch = rows.ColumnU64(4);
    record.flush_receipt = rows.ColumnText(5);
    record.components_verified = static_cast<uint32_t>(rows.ColumnU64(6));
    record.components_total = static_cast<uint32_t>(rows.ColumnU64(7));
    state.live_history.push_back(std::move(record));
  }
}

absl::Status SqliteLedger::RecoverPending(core::RecoveredState& state) {
  LOCKSTEP_ASSIGN_OR_RETURN(SqliteStatement rows,
                            db_.Prepare("SELECT decision, rollout FROM decisions WHERE pending = 1 "
                                        "ORDER BY seq"));
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool row, rows.Step());
    if (!row) return absl::OkStatus();
    LOCKSTEP_ASSIGN_OR_RETURN(Decision decision, Readable(wire::DecodeDecision(rows.ColumnBlob(0)),
                                                          "a pending decision"));
    LOCKSTEP_ASSIGN_OR_RETURN(
        Rollout rollout, Readable(wire::DecodeRollout(rows.ColumnBlob(1)), "a pending rollout"));
    state.pending.push_back({std::move(decision), std::move(rollout)});
  }
}

absl::Status SqliteLedger::RecoverCounts(core::RecoveredState& state) {
  LOCKSTEP_ASSIGN_OR_RETURN(SqliteStatement rows,
                            db_.Prepare("SELECT * FROM counts ORDER BY scope, reason"));
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool row, rows.Step());
    if (!row) return absl::OkStatus();
    const bool of_rollouts = rows.ColumnU64(0) == 0;
    ReasonCount count{rows.ColumnText(1), rows.ColumnU64(2)};
    if (!of_rollouts) {
      state.refusals.push_back(std::move(count));
    } else if (count.reason.empty()) {
      state.rollouts_admitted = count.count;
    } else {
      state.rollouts_refused.push_back(std::move(count));
    }
  }
}

}  // namespace lockstep::ledger
