#ifndef LOCKSTEP_TOOLS_CLI_BENCH_SYNC_H_
#define LOCKSTEP_TOOLS_CLI_BENCH_SYNC_H_

// `lockstep bench sync`: how fast a version goes from a trainer to live on a sampler, with
// digests and the kernel probe on both sides, beside what the machine can do at most.
//
// The trainer (this process) publishes a number of versions over shared memory; the sampler, a
// process of its own, takes them over shared memory or TCP. The first versions warm the arenas
// up and are not counted; the rate is the median of the others, from the call of Publish to the
// bridge's word that the sampler is live. The bridge keeps versions in memory only: the speed of
// a disk is another matter.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace lockstep::tools {

struct SyncBenchOptions {
  std::string transport = "shm";  // or "tcp"
  uint64_t bytes = uint64_t{1} << 29;
  int rounds = 7;
};

struct SyncBenchResult {
  uint64_t bytes = 0;
  double gbytes_per_s = 0;  // median
  double best_gbytes_per_s = 0;
  double limit_gbytes_per_s = 0;  // one thread's memory copy, or a raw socket
  double ratio = 0;               // gbytes_per_s / limit_gbytes_per_s
  double median_ms = 0;
  uint32_t components_verified = 0;
};

// InvalidArgument for a size that cannot be measured.
absl::StatusOr<SyncBenchResult> RunSyncBench(const SyncBenchOptions& options);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_BENCH_SYNC_H_
