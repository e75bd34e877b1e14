// Opening a state folder: owner-only, one bridge, one run, a layout this build knows.

#include <sodium.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bridge/ledger/ledger_schema.h"
#include "bridge/ledger/sqlite_ledger.h"
#include "policy/status_macros.h"

namespace lockstep::ledger {
namespace {

absl::Status MakeOwnerOnlyFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0) return absl::OkStatus();
  struct stat info;
  if (errno == EEXIST && stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat("state folder '", path,
                                                    "' cannot be made: ", std::strerror(errno),
                                                    "; choose another with --state-dir"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Ledger>> OpenLedger(const LedgerOptions& options) {
  return SqliteLedger::Open(options);
}

absl::StatusOr<std::unique_ptr<SqliteLedger>> SqliteLedger::Open(const LedgerOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(MakeOwnerOnlyFolder(options.state_dir));
  LOCKSTEP_ASSIGN_OR_RETURN(SqliteDb db,
                            SqliteDb::Open(absl::StrCat(options.state_dir, "/ledger.sqlite")));
  if (options.max_bytes > 0) {
    constexpr uint64_t kPageBytes = 4096;  // SQLite's default
    LOCKSTEP_RETURN_IF_ERROR(
        db.Execute(absl::StrCat("PRAGMA max_page_count=", options.max_bytes / kPageBytes)));
  }
  std::unique_ptr<SqliteLedger> ledger(new SqliteLedger(std::move(db)));
  LOCKSTEP_RETURN_IF_ERROR(ledger->CheckLayoutAndRun(options.run));
  LOCKSTEP_RETURN_IF_ERROR(ledger->Prepare());
  return ledger;
}

absl::Status SqliteLedger::CheckLayoutAndRun(const std::string& run) {
  LOCKSTEP_ASSIGN_OR_RETURN(SqliteStatement layout, db_.Prepare("PRAGMA user_version"));
  LOCKSTEP_RETURN_IF_ERROR(layout.Step().status());
  const uint64_t found = layout.ColumnU64(0);
  layout.Reset();
  if (found != 0 && found != kLedgerLayout) {
    return absl::FailedPreconditionError(
        absl::StrCat("ledger: the state folder has layout ", found, ", this build reads layout ",
                     kLedgerLayout, "; use the build that wrote it or a new --state-dir"));
  }
  LOCKSTEP_RETURN_IF_ERROR(db_.Execute(
      absl::StrCat("BEGIN;", kLedgerTables, "PRAGMA user_version=", kLedgerLayout, ";COMMIT;")));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<std::string> owner, Meta("run"));
  if (owner.has_value() && *owner != run) {
    return absl::FailedPreconditionError(absl::StrCat("ledger: the state folder belongs to run '",
                                                      *owner, "', not to '", run,
                                                      "'; give each run its own --state-dir"));
  }
  LOCKSTEP_RETURN_IF_ERROR(SetMeta("run", run));

  LOCKSTEP_ASSIGN_OR_RETURN(std::optional<std::string> key, Meta("ticket_key"));
  if (!key.has_value()) {
    key.emplace(sizeof(Digest256), '\0');
    randombytes_buf(key->data(), key->size());
    LOCKSTEP_RETURN_IF_ERROR(SetMeta("ticket_key", *key));
  }
  if (key->size() != sizeof(Digest256)) {
    return absl::DataLossError("ledger: the ticket key has a wrong length: the file is damaged");
  }
  std::memcpy(ticket_key_.data(), key->data(), key->size());

  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<std::string> boot, Meta("boot"));
  if (boot.has_value() && !absl::SimpleAtoi(*boot, &boot_)) {
    return absl::DataLossError("ledger: the boot counter is not a number: the file is damaged");
  }
  ++boot_;
  return SetMeta("boot", absl::StrCat(boot_));
}

absl::StatusOr<std::optional<std::string>> SqliteLedger::Meta(absl::string_view key) {
  LOCKSTEP_ASSIGN_OR_RETURN(SqliteStatement get,
                            db_.Prepare("SELECT value FROM meta WHERE key = ?1"));
  LOCKSTEP_ASSIGN_OR_RETURN(const bool row, get.Bind(1, key).Step());
  if (!row) return std::optional<std::string>();
  const std::vector<uint8_t> value = get.ColumnBlob(0);
  return std::optional<std::string>(std::string(value.begin(), value.end()));
}

absl::Status SqliteLedger::SetMeta(absl::string_view key, absl::string_view value) {
  LOCKSTEP_ASSIGN_OR_RETURN(SqliteStatement put,
                            db_.Prepare("INSERT OR REPLACE INTO meta VALUES (?1, ?2)"));
  const auto* bytes = reinterpret_cast<const uint8_t*>(value.data());
  return put.Bind(1, key).BindBlob(2, absl::MakeConstSpan(bytes, value.size())).Run();
}

absl::Status SqliteLedger::Prepare() {
  const std::pair<SqliteStatement*, absl::string_view> statements[] = {
      {&begin_, "BEGIN IMMEDIATE"},
      {&commit_, "COMMIT"},
      {&rollback_, "ROLLBACK"},
      {&put_epoch_, "INSERT OR REPLACE INTO epochs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"},
      {&put_version_,
       "INSERT OR REPLACE INTO versions VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, "
       "?12, ?13)"},
      {&put_live_, "INSERT INTO live VALUES (NULL, ?1, ?2, ?3, ?4, ?5, ?6, ?7)"},
      {&put_sampler_, "INSERT OR REPLACE INTO samplers VALUES (?1, ?2, ?3, ?4, ?5, ?6)"},
      {&put_decision_,
       "INSERT INTO decisions VALUES (NULL, ?1, ?2, ?3, ?4) ON CONFLICT (id) DO UPDATE SET "
       "pending = ?2, decision = ?3, rollout = ?4"},
      {&put_event_, "INSERT OR REPLACE INTO events VALUES (?1, ?2, ?3, ?4, ?5)"},
      {&count_,
       "INSERT INTO counts VALUES (?1, ?2, ?3) ON CONFLICT (scope, reason) DO UPDATE SET "
       "count = count + ?3"},
      {&find_decision_, "SELECT decision FROM decisions WHERE id = ?1"},
      {&events_, "SELECT * FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2"},
      {&last_event_, "SELECT COALESCE(MAX(seq), 0) FROM events"},
  };
  for (const auto& [statement, sql] : statements) {
    LOCKSTEP_ASSIGN_OR_RETURN(*statement, db_.Prepare(sql));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::ledger
