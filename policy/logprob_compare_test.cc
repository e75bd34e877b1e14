#include "policy/logprob_compare.h"

#include <bit>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(LogprobCompareTest, EqualBitsDifferNowhere) {
  const std::vector<float> logprobs = {-0.5f, 0.0f, -1e-30f, kNan};
  const LogprobComparison compared = CompareLogprobs(logprobs, logprobs);
  EXPECT_EQ(compared.compared_tokens, 4u);
  EXPECT_EQ(compared.mismatched_tokens, 0u);
  EXPECT_EQ(compared.k1, 0);
  EXPECT_EQ(compared.k3, 0);
  EXPECT_EQ(compared.max_abs_diff, 0);
}

TEST(LogprobCompareTest, OneUlpIsAMismatchThoughFloat32K3IsZero) {
  const float sampler = -1.0573036670684814f;
  const float trainer = std::nextafter(sampler, 0.0f);
  const LogprobComparison compared =
      CompareLogprobs({-0.5f, sampler, -2.0f}, {-0.5f, trainer, -2.0f});
  ASSERT_EQ(compared.mismatched_tokens, 1u);
  EXPECT_EQ(compared.mismatches[0],
            (TokenMismatch{1, std::bit_cast<uint32_t>(sampler), std::bit_cast<uint32_t>(trainer)}));
  EXPECT_EQ(compared.k3_float32_naive, 0.0f);
  EXPECT_GT(compared.k3, 0);
  EXPECT_LT(compared.k3, 1e-13);
  EXPECT_DOUBLE_EQ(compared.max_abs_diff, std::ldexp(1.0, -23));
}

TEST(LogprobCompareTest, NegativeZeroIsNotZero) {
  EXPECT_EQ(CompareLogprobs({0.0f}, {-0.0f}).mismatched_tokens, 1u);
}

TEST(LogprobCompareTest, EstimatorsAreMeansOverAllTokens) {
  // d = +0.5 and 0: trainer - sampler.
  const LogprobComparison compared = CompareLogprobs({-1.0f, -2.0f}, {-0.5f, -2.0f});
  EXPECT_DOUBLE_EQ(compared.k1, -0.25);
  EXPECT_DOUBLE_EQ(compared.k2, 0.0625);
  EXPECT_DOUBLE_EQ(compared.k3, (std::expm1(0.5) - 0.5) / 2);
  EXPECT_FLOAT_EQ(compared.k3_float32_naive, (std::exp(0.5f) - 0.5f - 1.0f) / 2);
  EXPECT_DOUBLE_EQ(compared.max_abs_diff, 0.5);
}

TEST(LogprobCompareTest, NanAgainstNumberIsAMismatchThatNoLaterTokenHides) {
  const LogprobComparison compared = CompareLogprobs({kNan, -1.0f}, {-1.0f, -9.0f});
  EXPECT_EQ(compared.mismatched_tokens, 2u);
  EXPECT_TRUE(std::isnan(compared.max_abs_diff));
  EXPECT_TRUE(std::isnan(compared.k3));
}

TEST(LogprobCompareTest, NansOfDifferentBitsMismatch) {
  const float other = std::bit_cast<float>(std::bit_cast<uint32_t>(kNan) | 1u);
  EXPECT_EQ(CompareLogprobs({kNan}, {other}).mismatched_tokens, 1u);
}

TEST(LogprobCompareTest, OnlyTheFirstMismatchesAreListed) {
  const std::vector<float> sampler(100, -1.0f);
  const std::vector<float> trainer(100, -2.0f);
  const LogprobComparison compared = CompareLogprobs(sampler, trainer);
  EXPECT_EQ(compared.mismatched_tokens, 100u);
  EXPECT_EQ(compared.mismatches.size(), kMaxReportedMismatches);
}

TEST(LogprobCompareTest, NothingToCompareIsAllZero) {
  const LogprobComparison compared = CompareLogprobs({}, {});
  EXPECT_EQ(compared.compared_tokens, 0u);
  EXPECT_EQ(compared.k3, 0);
}

TEST(UsableLogprobTest, OnlyFiniteValuesNotAboveZero) {
  EXPECT_TRUE(IsUsableLogprob(0.0f));
  EXPECT_TRUE(IsUsableLogprob(-80.0f));
  EXPECT_TRUE(IsUsableLogprob(1e-7f));  // rounding of an approximated log-softmax
  EXPECT_FALSE(IsUsableLogprob(0.1f));
  EXPECT_FALSE(IsUsableLogprob(kNan));
  EXPECT_FALSE(IsUsableLogprob(-kInfinity));
  EXPECT_FALSE(IsUsableLogprob(kInfinity));
}

}  // namespace
}  // namespace lockstep
