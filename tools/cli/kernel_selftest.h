#ifndef LOCKSTEP_TOOLS_CLI_KERNEL_SELFTEST_H_
#define LOCKSTEP_TOOLS_CLI_KERNEL_SELFTEST_H_

// The proof, here and now, that this machine computes the exact programs' bytes: seeded inputs
// through every program of `kernel run`, on each vector instruction set the processor has and
// with several thread counts, against the digests of the outputs that the golden-tested code
// gave.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(std::vector<SelftestResult> results, RunSelftest(false));

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep::tools {

struct SelftestResult {
  std::string program;
  std::string what;    // realisation, dtype and sizes
  int runs = 0;        // over threads, instruction sets, devices
  std::string digest;  // BLAKE2b-256 over names, dtypes, shapes and bytes of the outputs, hex
  bool equal = false;
  std::string difference;  // what differed first; empty when equal
};

// Not from two threads at once: it sets the process's choice of vector instructions, and sets it
// back. Unavailable when `cuda` and there is no device; a program's own failure is a difference.
absl::StatusOr<std::vector<SelftestResult>> RunSelftest(bool cuda);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_KERNEL_SELFTEST_H_
