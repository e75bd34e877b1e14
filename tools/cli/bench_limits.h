#ifndef LOCKSTEP_TOOLS_CLI_BENCH_LIMITS_H_
#define LOCKSTEP_TOOLS_CLI_BENCH_LIMITS_H_

// What the machine itself can do, measured in the same run as what Lockstep does: the best of
// some passes, GB/s (1e9 bytes).

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lockstep::tools {

// One thread copies `source` into another buffer of that size, both in memory before the first
// pass.
double MemoryCopyRate(absl::Span<const uint8_t> source, int passes);

// One thread sends `source` over a TCP connection of the loopback interface, another receives
// it into a buffer of its size.
absl::StatusOr<double> SocketRate(absl::Span<const uint8_t> source, int passes);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_BENCH_LIMITS_H_
