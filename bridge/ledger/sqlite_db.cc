#include "bridge/ledger/sqlite_db.h"

#include <sqlite3.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"

namespace lockstep::ledger {
namespace {

absl::Status ErrorOf(sqlite3* db, absl::string_view doing) {
  const int code = sqlite3_extended_errcode(db);
  const std::string text =
      absl::StrCat("ledger: ", doing, ": ", sqlite3_errmsg(db), " (SQLite code ", code, ")");
  switch (code & 0xff) {
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(absl::StrCat(
          text, "; the disk or the ledger's size limit is full: free space, then restart"));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::FailedPreconditionError(
          absl::StrCat(text, "; another bridge uses this state folder: stop it or choose another"));
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      return absl::DataLossError(
          absl::StrCat(text, "; the file is damaged: restore a copy or choose another folder"));
    default:
      return absl::UnavailableError(text);
  }
}

}  // namespace

SqliteStatement::~SqliteStatement() { sqlite3_finalize(handle_); }

SqliteStatement::SqliteStatement(SqliteStatement&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)) {}

SqliteStatement& SqliteStatement::operator=(SqliteStatement&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

SqliteStatement& SqliteStatement::Bind(int index, uint64_t value) {
  sqlite3_bind_int64(handle_, index, static_cast<int64_t>(value));
  return *this;
}

SqliteStatement& SqliteStatement::Bind(int index, absl::string_view text) {
  sqlite3_bind_text64(handle_, index, text.data() == nullptr ? "" : text.data(), text.size(),
                      SQLITE_TRANSIENT, SQLITE_UTF8);
  return *this;
}

SqliteStatement& SqliteStatement::BindBlob(int index, absl::Span<const uint8_t> bytes) {
  sqlite3_bind_blob64(handle_, index, bytes.data(), bytes.size(), SQLITE_TRANSIENT);
  return *this;
}

SqliteStatement& SqliteStatement::BindNull(int index) {
  sqlite3_bind_null(handle_, index);
  return *this;
}

absl::Status SqliteStatement::Run() {
  const absl::StatusOr<bool> row = Step();
  if (row.ok() && *row) Reset();
  return row.status();
}

absl::StatusOr<bool> SqliteStatement::Step() {
  const int code = sqlite3_step(handle_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) {
    Reset();
    return false;
  }
  absl::Status error = Error("running a statement");
  Reset();
  return error;
}

void SqliteStatement::Reset() {
  sqlite3_reset(handle_);
  sqlite3_clear_bindings(handle_);
}

uint64_t SqliteStatement::ColumnU64(int column) const {
  return static_cast<uint64_t>(sqlite3_column_int64(handle_, column));
}

std::string SqliteStatement::ColumnText(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(handle_, column));
  return text == nullptr ? std::string() : std::string(text, sqlite3_column_bytes(handle_, column));
}

std::vector<uint8_t> SqliteStatement::ColumnBlob(int column) const {
  const auto* bytes = static_cast<const uint8_t*>(sqlite3_column_blob(handle_, column));
  return std::vector<uint8_t>(bytes, bytes + sqlite3_column_bytes(handle_, column));
}

bool SqliteStatement::ColumnIsNull(int column) const {
  return sqlite3_column_type(handle_, column) == SQLITE_NULL;
}

absl::Status SqliteStatement::Error(absl::string_view doing) const {
  return ErrorOf(sqlite3_db_handle(handle_), doing);
}

// Decisions are found and inserted by hashed ids, so all over the index: with SQLite's own
// 2 MB of cache and a checkpoint every 4 MB, most of the time went into moving pages.
constexpr int kCacheKib = 65'536;
constexpr int kCheckpointPages = 16'384;  // 64 MiB of log

absl::StatusOr<SqliteDb> SqliteDb::Open(const std::string& path) {
  sqlite3* handle = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &handle,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  SqliteDb db(handle);
  if (code != SQLITE_OK) return ErrorOf(handle, absl::StrCat("opening '", path, "'"));
  sqlite3_extended_result_codes(handle, 1);
  LOCKSTEP_RETURN_IF_ERROR(
      db.Execute("PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; "
                 "PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; BEGIN IMMEDIATE; COMMIT;"));
  LOCKSTEP_RETURN_IF_ERROR(db.Execute(absl::StrCat(
      "PRAGMA cache_size=-", kCacheKib, "; PRAGMA wal_autocheckpoint=", kCheckpointPages)));
  return db;
}

SqliteDb::~SqliteDb() { sqlite3_close(handle_); }

SqliteDb::SqliteDb(SqliteDb&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

SqliteDb& SqliteDb::operator=(SqliteDb&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

absl::StatusOr<SqliteStatement> SqliteDb::Prepare(absl::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()),
                         SQLITE_PREPARE_PERSISTENT, &statement, nullptr) != SQLITE_OK) {
    return ErrorOf(handle_, absl::StrCat("preparing '", sql, "'"));
  }
  return SqliteStatement(statement);
}

absl::Status SqliteDb::Execute(const std::string& sql) {
  if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    return ErrorOf(handle_, absl::StrCat("running '", sql.substr(0, 60), "'"));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::ledger
