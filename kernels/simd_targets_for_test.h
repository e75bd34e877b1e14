#ifndef LOCKSTEP_KERNELS_SIMD_TARGETS_FOR_TEST_H_
#define LOCKSTEP_KERNELS_SIMD_TARGETS_FOR_TEST_H_

// Runs a test body once for every vector target this processor has and the library contains.
//
// Example:
//   ForEachSimdTarget([&](const char* target) { EXPECT_EQ(Run(), want) << target; });

#include <cstdint>
#include <functional>

#include "hwy/highway.h"

namespace lockstep::kernels {

inline void ForEachSimdTarget(const std::function<void(const char*)>& body) {
  hwy::SetSupportedTargetsForTest(0);
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_SIMD_TARGETS_FOR_TEST_H_
