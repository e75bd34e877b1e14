#ifndef LOCKSTEP_BRIDGE_LEDGER_LEDGER_SCHEMA_H_
#define LOCKSTEP_BRIDGE_LEDGER_LEDGER_SCHEMA_H_

// The tables of the ledger file. BLOB columns with a comment hold what bridge/wire encodes
// under that name. PRAGMA user_version is kLedgerLayout.

namespace lockstep::ledger {

inline constexpr int kLedgerLayout = 1;

inline constexpr char kLedgerTables[] = R"sql(
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS epochs (
  epoch INTEGER PRIMARY KEY,
  trainer TEXT NOT NULL,
  incarnation BLOB NOT NULL,
  source_role INTEGER NOT NULL,    -- SourceRole
  contract_json TEXT NOT NULL,
  evidence BLOB NOT NULL,          -- Evidence
  manifest BLOB NOT NULL           -- Manifest
);

CREATE TABLE IF NOT EXISTS versions (
  version INTEGER PRIMARY KEY,
  epoch INTEGER NOT NULL,
  state TEXT NOT NULL,
  key BLOB NOT NULL,
  probe_seed INTEGER NOT NULL,
  digest BLOB NOT NULL,            -- VersionDigest, the trainer's
  components BLOB NOT NULL,        -- Components, the trainer's
  nan_elements INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  zero_change INTEGER NOT NULL,
  on_disk INTEGER NOT NULL,
  rollback_of INTEGER,
  sealed_wall_ms INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS samplers (
  name TEXT PRIMARY KEY,
  incarnation BLOB NOT NULL,
  state TEXT NOT NULL,
  reasons BLOB NOT NULL,           -- Refusals
  contract_json TEXT NOT NULL,
  transport TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS live (
  seq INTEGER PRIMARY KEY,
  sampler TEXT NOT NULL,
  incarnation BLOB NOT NULL,
  version INTEGER NOT NULL,
  cache_epoch INTEGER NOT NULL,
  flush_receipt TEXT NOT NULL,
  components_verified INTEGER NOT NULL,
  components_total INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS decisions (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  pending INTEGER NOT NULL,
  decision BLOB NOT NULL,          -- Decision
  rollout BLOB                     -- Rollout, while pending
);
CREATE INDEX IF NOT EXISTS pending_decisions ON decisions (seq) WHERE pending = 1;

-- scope 0: rollouts by first reason ('' is admitted); scope 1: every other refusal.
CREATE TABLE IF NOT EXISTS counts (
  scope INTEGER NOT NULL,
  reason TEXT NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (scope, reason)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS events (
  seq INTEGER PRIMARY KEY,
  wall_ms INTEGER NOT NULL,
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  text TEXT NOT NULL
);
)sql";

}  // namespace lockstep::ledger

#endif  // LOCKSTEP_BRIDGE_LEDGER_LEDGER_SCHEMA_H_
