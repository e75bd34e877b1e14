#ifndef LOCKSTEP_KERNELS_FP_ENVIRONMENT_H_
#define LOCKSTEP_KERNELS_FP_ENVIRONMENT_H_

// Exact programs need IEEE arithmetic: denormals kept, round to nearest even. A library linked
// with fast-math sets flush-to-zero from its start-up code, per thread, so every thread that
// computes checks its own control word before it starts.
//
// Example:
//   if (absl::Status s = CheckFpEnvironment(); !s.ok()) return s;

#include "absl/status/status.h"

namespace lockstep::kernels {

// FailedPrecondition when the calling thread flushes or zeroes denormals, or rounds other than
// to nearest even.
absl::Status CheckFpEnvironment();

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_FP_ENVIRONMENT_H_
