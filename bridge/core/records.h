#ifndef LOCKSTEP_BRIDGE_CORE_RECORDS_H_
#define LOCKSTEP_BRIDGE_CORE_RECORDS_H_

// What the core asks the ledger to make durable, and what the ledger gives back at start.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "policy/protocol.h"

namespace lockstep::core {

// A trainer took an epoch; upserted by epoch.
struct EpochRecord {
  uint64_t epoch = 0;
  std::string trainer;
  Incarnation incarnation{};
  SourceRole source_role = SourceRole::kActor;
  std::string contract_json;
  Evidence evidence;
  Manifest manifest;
};

// A version's newest state; upserted by version. The manifest is that of its epoch.
struct VersionRecord {
  uint64_t version = 0;
  uint64_t epoch = 0;
  std::string state;  // as VersionStatus::state
  Digest256 key{};
  uint64_t probe_seed = 0;
  VersionDigest digest;                     // the trainer's, under `key`
  std::vector<ComponentDigest> components;  // the trainer's
  uint64_t bytes = 0;
  uint64_t nan_elements = 0;
  bool zero_change = false;
  bool on_disk = false;
  std::optional<uint64_t> rollback_of;
  uint64_t sealed_wall_ms = 0;
};

// A sampler confirmed Live; appended.
struct LiveRecord {
  std::string sampler;
  Incarnation incarnation{};
  uint64_t version = 0;
  uint64_t cache_epoch = 0;
  std::string flush_receipt;
  uint32_t components_verified = 0;
  uint32_t components_total = 0;
};

// A sampler's newest state; upserted by name.
struct SamplerRecord {
  std::string name;
  Incarnation incarnation{};
  std::string state;  // as SamplerStatus::state
  std::vector<Refusal> reasons;
  std::string contract_json;
  std::string transport;
};

// A decision; upserted by rollout id (pending, then decided). `rollout` is present while
// pending, so that a restart can still decide it.
struct DecisionRecord {
  Decision decision;
  std::optional<Rollout> rollout;
};

// A refusal that is not a rollout's: counted durably.
struct RefusalRecord {
  RefusalCode code = RefusalCode::kBadMessage;
};

struct EventRecord {
  Event event;
};

using LedgerRecord = std::variant<EpochRecord, VersionRecord, LiveRecord, SamplerRecord,
                                  DecisionRecord, RefusalRecord, EventRecord>;

struct PendingRollout {
  Decision decision;
  Rollout rollout;
};

struct RecoveredState {
  std::vector<EpochRecord> epochs;       // those that a kept version names, and the newest
  std::vector<VersionRecord> versions;   // ascending
  std::vector<SamplerRecord> samplers;   // by name
  std::vector<LiveRecord> live_history;  // in the order of appending
  std::vector<PendingRollout> pending;
  uint64_t rollouts_admitted = 0;
  std::vector<ReasonCount> rollouts_refused;  // by first reason
  std::vector<ReasonCount> refusals;
  uint64_t last_event_seq = 0;
};

}  // namespace lockstep::core

#endif  // LOCKSTEP_BRIDGE_CORE_RECORDS_H_
