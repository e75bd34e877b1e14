#ifndef LOCKSTEP_TOOLS_CLI_BENCH_ADMIT_H_
#define LOCKSTEP_TOOLS_CLI_BENCH_ADMIT_H_

// `lockstep bench admit`: durable decisions a second, every check on. Rollouts of a version that
// is live on a sampler of an exact family are submitted at level `tokens` with the trainer's
// re-scoring, many under way at once; each must be admitted, and is on the disk before it is
// answered. A decision's time is from its submission to its answer, waiting in line included.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace lockstep::tools {

struct AdmitBenchOptions {
  uint64_t rollouts = 100'000;
  uint64_t tokens = 64;  // of each
  size_t in_flight = 512;
  std::string state_parent;  // where the ledger lies; empty: the system's temporary folder
};

struct AdmitBenchResult {
  uint64_t decisions = 0;
  double seconds = 0;
  double decisions_per_s = 0;
  double p50_ms = 0;
  double p99_ms = 0;
  bool state_in_memory = false;  // the ledger's folder is no disk: not durable
};

absl::StatusOr<AdmitBenchResult> RunAdmitBench(const AdmitBenchOptions& options);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_BENCH_ADMIT_H_
