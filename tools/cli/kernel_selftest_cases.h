#ifndef LOCKSTEP_TOOLS_CLI_KERNEL_SELFTEST_CASES_H_
#define LOCKSTEP_TOOLS_CLI_KERNEL_SELFTEST_CASES_H_

// What the selftest runs, and the digest that each run must have. A digest was taken from the CPU
// code while tests/golden held it against recordings; it changes only with a new program id.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tools/cli/kernel_op.h"

namespace lockstep::tools {

enum class SelftestFill : uint8_t {
  kAnyBits,   // NaNs, infinities and denormals too: for programs whose outputs are elementwise
  kModerate,  // magnitudes of 1/16 to 4: a sum keeps every term in its last bits
  // The second half of a sum is the first, mirrored and negated: what is left are the roundings
  // alone, so the order and the width of the sum are in every output.
  kCancelling,
};

struct SelftestCase {
  absl::string_view op;
  absl::string_view program;
  absl::string_view realisation;  // empty where none applies
  absl::string_view dtype;        // of the tensors that may have it
  absl::string_view sizes;        // "T=64,N=1024"
  SelftestFill fill;
  KernelOptions options;
  absl::string_view digest;  // hex
};

absl::Span<const SelftestCase> SelftestCases();

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_KERNEL_SELFTEST_CASES_H_
