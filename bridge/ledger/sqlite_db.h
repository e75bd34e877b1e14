#ifndef LOCKSTEP_BRIDGE_LEDGER_SQLITE_DB_H_
#define LOCKSTEP_BRIDGE_LEDGER_SQLITE_DB_H_

// RAII owners of SQLite's handles, with absl::Status instead of result codes.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(SqliteDb db, SqliteDb::Open(path));
//   LOCKSTEP_ASSIGN_OR_RETURN(SqliteStatement put, db.Prepare("INSERT INTO t VALUES (?1, ?2)"));
//   put.Bind(1, uint64_t{7}).Bind(2, absl::string_view("seven"));
//   LOCKSTEP_RETURN_IF_ERROR(put.Run());

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

struct sqlite3;
struct sqlite3_stmt;

namespace lockstep::ledger {

// A prepared statement; must not outlive its SqliteDb.
class SqliteStatement {
 public:
  SqliteStatement() = default;
  explicit SqliteStatement(sqlite3_stmt* handle) : handle_(handle) {}
  ~SqliteStatement();
  SqliteStatement(SqliteStatement&& other) noexcept;
  SqliteStatement& operator=(SqliteStatement&& other) noexcept;

  // Parameters are numbered from 1. Text and blobs are copied. uint64 values are stored as the
  // int64 of the same bits.
  SqliteStatement& Bind(int index, uint64_t value);
  SqliteStatement& Bind(int index, absl::string_view text);
  SqliteStatement& BindBlob(int index, absl::Span<const uint8_t> bytes);
  SqliteStatement& BindNull(int index);

  // Runs a statement that yields no rows, then resets it.
  absl::Status Run();

  // True when there is a row; false at the end, when the statement is reset.
  absl::StatusOr<bool> Step();
  void Reset();

  // Columns are numbered from 0 and valid until the next Step or Reset.
  uint64_t ColumnU64(int column) const;
  std::string ColumnText(int column) const;
  std::vector<uint8_t> ColumnBlob(int column) const;
  bool ColumnIsNull(int column) const;

 private:
  absl::Status Error(absl::string_view doing) const;

  sqlite3_stmt* handle_ = nullptr;
};

class SqliteDb {
 public:
  // Opens or creates the file with WAL and synchronous=FULL, exclusively locked: a second
  // opener gets FailedPrecondition.
  static absl::StatusOr<SqliteDb> Open(const std::string& path);
  ~SqliteDb();
  SqliteDb(SqliteDb&& other) noexcept;
  SqliteDb& operator=(SqliteDb&& other) noexcept;

  absl::StatusOr<SqliteStatement> Prepare(absl::string_view sql);

  // Runs one or more statements without parameters or rows.
  absl::Status Execute(const std::string& sql);

 private:
  explicit SqliteDb(sqlite3* handle) : handle_(handle) {}

  sqlite3* handle_ = nullptr;
};

}  // namespace lockstep::ledger

#endif  // LOCKSTEP_BRIDGE_LEDGER_SQLITE_DB_H_
