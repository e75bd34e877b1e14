#ifndef LOCKSTEP_TOOLS_CLI_BRIDGE_VIEW_H_
#define LOCKSTEP_TOOLS_CLI_BRIDGE_VIEW_H_

// Single lines that people read about a run. Tables of the same are bridge_tables.h.
//
// Example:
//   for (const std::string& line : StatusChanges(before, now)) std::cout << line << "\n";

#include <cstdint>
#include <string>
#include <vector>

#include "policy/protocol.h"

namespace lockstep::tools {

// "live on version 3, 18/18 components equal, over shm"; "refused: contract_mismatch: ..."
std::string SamplerLine(const SamplerStatus& sampler);

// "256 admitted, 1 refused (logprob_mismatch 1), 0 pending"
std::string RolloutsLine(const StatusReply& status);

// What is different in `now`, a line each, in the order trainer, versions, samplers, rollouts,
// alarms. From an empty status everything is new.
std::vector<std::string> StatusChanges(const StatusReply& before, const StatusReply& now);

// "1.0 GB", "2.1 MB", "17 B"
std::string BytesText(uint64_t bytes);

// "2026-12-01 03:57:32" in UTC.
std::string TimeText(uint64_t wall_ms);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_BRIDGE_VIEW_H_
