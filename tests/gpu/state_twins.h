#ifndef LOCKSTEP_TESTS_GPU_STATE_TWINS_H_
#define LOCKSTEP_TESTS_GPU_STATE_TWINS_H_

// The comparisons of state_twins_check, one function per family of programs.
//
// Example:
//   TwinCheck check(seed, only);
//   CheckDigestTwins(check);

#include "tests/gpu/twin_check.h"

namespace lockstep::kernels {

void CheckDigestTwins(TwinCheck& check);
void CheckDeltaTwins(TwinCheck& check);
void CheckGdnTwins(TwinCheck& check);
void CheckGdnCpTwins(TwinCheck& check);
void CheckShortConvTwins(TwinCheck& check);
// The same call a hundred times gives the same bytes.
void CheckStateRepeats(TwinCheck& check);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_TESTS_GPU_STATE_TWINS_H_
