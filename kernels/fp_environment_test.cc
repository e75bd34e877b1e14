#include "kernels/fp_environment.h"

#include <fenv.h>

#include "gtest/gtest.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace lockstep::kernels {
namespace {

TEST(FpEnvironmentTest, DefaultThreadIsAccepted) { EXPECT_TRUE(CheckFpEnvironment().ok()); }

TEST(FpEnvironmentTest, OtherRoundingModeIsRefused) {
  ASSERT_EQ(fesetround(FE_UPWARD), 0);
  const absl::Status status = CheckFpEnvironment();
  ASSERT_EQ(fesetround(FE_TONEAREST), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
}

#if defined(__x86_64__)
TEST(FpEnvironmentTest, FlushedDenormalsAreRefused) {
  constexpr unsigned kDenormalsAreZero = 1u << 6;
  constexpr unsigned kFlushToZero = 1u << 15;
  const unsigned saved = _mm_getcsr();
  for (unsigned bit : {kDenormalsAreZero, kFlushToZero}) {
    _mm_setcsr(saved | bit);
    const absl::Status status = CheckFpEnvironment();
    _mm_setcsr(saved);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << bit;
  }
}
#endif

}  // namespace
}  // namespace lockstep::kernels
