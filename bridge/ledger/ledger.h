#ifndef LOCKSTEP_BRIDGE_LEDGER_LEDGER_H_
#define LOCKSTEP_BRIDGE_LEDGER_LEDGER_H_

// What must survive a crash: epochs, versions, activations, samplers, decisions, events.
// One SQLite file in the state folder, one connection, WAL with synchronous=FULL, a batch
// of records a transaction. When Append fails the caller must stop acknowledging and exit:
// an fsync is never retried, since the kernel may already have dropped the pages.
//
// Structured columns are Cap'n Proto frames of the protocol's own messages (bridge/wire);
// ledger_schema.h lists the tables.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "bridge/core/records.h"
#include "policy/ids.h"
#include "policy/protocol.h"

namespace lockstep::ledger {

// Disk limits (I10); the oldest rows beyond them go first.
inline constexpr uint64_t kMaxEvents = 100'000;
inline constexpr uint64_t kMaxDecisions = 20'000'000;
inline constexpr uint64_t kMaxLiveRecords = 100'000;
inline constexpr uint64_t kMaxVersionRecords = 4'096;

class Ledger {
 public:
  virtual ~Ledger() = default;

  // Commits all of them or none, synced to disk before it returns.
  virtual absl::Status Append(absl::Span<const core::LedgerRecord> records) = 0;

  virtual absl::StatusOr<std::optional<Decision>> FindDecision(absl::string_view rollout_id) = 0;

  // Ascending, after `after_seq`, at most `limit`.
  virtual absl::StatusOr<EventsReply> Events(uint64_t after_seq, uint32_t limit) = 0;

  virtual absl::StatusOr<core::RecoveredState> Recover() = 0;

  // Made once per state folder and kept: tickets outlive a restart.
  virtual const Digest256& ticket_key() const = 0;

  // 1 at the first start, growing by one with every open.
  virtual uint64_t boot() const = 0;
};

struct LedgerOptions {
  std::string state_dir;  // made with mode 0700 if absent
  std::string run;        // one state folder belongs to one run
  // Upper limit of the file in bytes; Append beyond it fails as on a full disk. 0: none.
  uint64_t max_bytes = 0;
};

// FailedPrecondition when the folder belongs to another run or another bridge has it open,
// or was written by a newer layout; DataLoss when the file is damaged.
absl::StatusOr<std::unique_ptr<Ledger>> OpenLedger(const LedgerOptions& options);

}  // namespace lockstep::ledger

#endif  // LOCKSTEP_BRIDGE_LEDGER_LEDGER_H_
