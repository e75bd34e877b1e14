#include "kernels/exact_math.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace lockstep::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr uint64_t kAllFloats = uint64_t{1} << 32;
constexpr uint64_t kStride = 1999;  // prime; about 2.1 million inputs

// An x87 long double has 11 bits more than a float64 and its libm is good to about 1 ulp, so it
// decides the rounding of all but about one input in 2^39. Such an input is skipped (false);
// the exhaustive comparison behind exact_math.h used a 113-bit reference for those.
bool RoundWithCertainty(long double value, float* rounded) {
  const float low = static_cast<float>(value * (1 - 0x1p-61L));
  const float high = static_cast<float>(value * (1 + 0x1p-61L));
  *rounded = low;
  return BitsOf(low) == BitsOf(high);
}

TEST(ExactMathTest, ExpOfAStridedSampleIsCorrectlyRounded) {
  for (uint64_t i = 0; i < kAllFloats; i += kStride) {
    const float x = F32FromBits(static_cast<uint32_t>(i));
    if (x != x) {
      ASSERT_EQ(BitsOf(ExpF32(x)), kF32CanonicalNan) << i;
      continue;
    }
    float want;
    if (!RoundWithCertainty(std::exp(static_cast<long double>(x)), &want)) continue;
    ASSERT_EQ(BitsOf(ExpF32(x)), BitsOf(want)) << std::hex << i;
  }
}

TEST(ExactMathTest, LogOfAStridedSampleIsCorrectlyRounded) {
  for (uint64_t i = 1; i < BitsOf(kInf); i += kStride) {
    const float x = F32FromBits(static_cast<uint32_t>(i));
    float want;
    if (!RoundWithCertainty(std::log(static_cast<long double>(x)), &want)) continue;
    ASSERT_EQ(BitsOf(LogF32(x)), BitsOf(want)) << std::hex << i;
  }
}

TEST(ExactMathTest, LogOfTheHardCasesIsCorrectlyRounded) {
  struct Case {
    uint32_t input, log;
  };
  constexpr Case kCases[] = {
      {0x3C413D3A, 0xC08E158F}, {0x41178FEB, 0x400FE5E7}, {0x4C5D65A5, 0x418F034B},
      {0x65D890D3, 0x4254D1F9}, {0x6F31A8EC, 0x42845A89},
  };
  for (const Case& c : kCases) {
    EXPECT_EQ(BitsOf(LogF32(F32FromBits(c.input))), c.log) << std::hex << c.input;
  }
}

TEST(ExactMathTest, ExpAtItsEdges) {
  EXPECT_EQ(BitsOf(ExpF32(0.0f)), BitsOf(1.0f));
  EXPECT_EQ(BitsOf(ExpF32(-0.0f)), BitsOf(1.0f));
  EXPECT_EQ(BitsOf(ExpF32(-kInf)), 0u);
  EXPECT_EQ(BitsOf(ExpF32(kInf)), BitsOf(kInf));
  EXPECT_EQ(BitsOf(ExpF32(F32FromBits(0xFFC12345))), kF32CanonicalNan);
  EXPECT_EQ(BitsOf(ExpF32(F32FromBits(0x7F800001))), kF32CanonicalNan);
  // The last finite result and the first infinite one.
  EXPECT_EQ(BitsOf(ExpF32(F32FromBits(0x42B17217))), 0x7F7FFF84u);
  EXPECT_EQ(BitsOf(ExpF32(F32FromBits(0x42B17218))), BitsOf(kInf));
  EXPECT_EQ(BitsOf(ExpF32(89.0f)), BitsOf(kInf));
  EXPECT_EQ(BitsOf(ExpF32(std::numeric_limits<float>::max())), BitsOf(kInf));
  // The last denormal result and the first zero.
  EXPECT_EQ(BitsOf(ExpF32(F32FromBits(0xC2CFF1B4))), 1u);
  EXPECT_EQ(BitsOf(ExpF32(F32FromBits(0xC2CFF1B5))), 0u);
  EXPECT_EQ(BitsOf(ExpF32(-104.0f)), 0u);
  EXPECT_EQ(BitsOf(ExpF32(std::numeric_limits<float>::denorm_min())), BitsOf(1.0f));
}

TEST(ExactMathTest, LogAtItsEdges) {
  EXPECT_EQ(BitsOf(LogF32(0.0f)), BitsOf(-kInf));
  EXPECT_EQ(BitsOf(LogF32(-0.0f)), BitsOf(-kInf));
  EXPECT_EQ(BitsOf(LogF32(1.0f)), 0u);
  EXPECT_EQ(BitsOf(LogF32(kInf)), BitsOf(kInf));
  EXPECT_EQ(BitsOf(LogF32(-kInf)), kF32CanonicalNan);
  EXPECT_EQ(BitsOf(LogF32(-1.0f)), kF32CanonicalNan);
  EXPECT_EQ(BitsOf(LogF32(-std::numeric_limits<float>::denorm_min())), kF32CanonicalNan);
  EXPECT_EQ(BitsOf(LogF32(F32FromBits(0xFFC12345))), kF32CanonicalNan);
  EXPECT_EQ(BitsOf(LogF32(F32FromBits(1))), 0xC2CE8ED0u);           // ln 2^-149
  EXPECT_EQ(BitsOf(LogF32(F32FromBits(0x7F7FFFFF))), 0x42B17218u);  // ln of the largest
}

}  // namespace
}  // namespace lockstep::kernels
