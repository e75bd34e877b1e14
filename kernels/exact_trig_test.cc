#include "kernels/exact_trig.h"

#include <cmath>
#include <cstdint>
#include <random>

#include "gtest/gtest.h"
#include "kernels/float_formats.h"

namespace lockstep::kernels {
namespace {

// Angle, sine and cosine, from 260-bit arithmetic rounded once. Among them: cosines a few 2^-52
// beside a midpoint, angles whose float64 value cannot decide the rounding, multiples of pi/2,
// the ends of the domain.
constexpr uint32_t kSinCos[][3] = {
    {0x39800000, 0x39800000, 0x3F800000}, {0x39800001, 0x39800001, 0x3F7FFFFF},
    {0x397FFFFF, 0x397FFFFF, 0x3F800000}, {0x4605B1C7, 0xBF7343E3, 0x3E9F7988},
    {0x49F85C2D, 0x3F650361, 0x3EE4D05C}, {0x3F8626A5, 0x3F5DCFE5, 0x3EFF9EB8},
    {0x00000000, 0x00000000, 0x3F800000}, {0x00000001, 0x00000001, 0x3F800000},
    {0x00800000, 0x00800000, 0x3F800000}, {0x3F490FDB, 0x3F3504F3, 0x3F3504F3},
    {0x3F490FDA, 0x3F3504F3, 0x3F3504F4}, {0x3FC90FDB, 0x3F800000, 0xB33BBD2E},
    {0x40490FDB, 0xB3BBBD2E, 0xBF800000}, {0x4B7FFFFF, 0xBF72BF60, 0xBEA29962},
    {0x4B800000, 0xBF47917C, 0x3F2056B4}, {0x4B3F9A11, 0x3CFEBA17, 0xBF7FE04F},
    {0x42C80000, 0xBF01A12E, 0x3F5CC0EE}, {0x47C35000, 0x3D126D55, 0xBF7FD61C},
    {0x3F800000, 0x3F576AA4, 0x3F0A5140},
};

struct Power {
  float base;
  int64_t numerator, denominator;
  uint32_t bits;
};

// From 260-bit arithmetic rounded once.
constexpr Power kPowers[] = {
    {10000.0f, 0, 64, 0x3F800000},    {10000.0f, 2, 64, 0x3F3FF911},
    {10000.0f, 62, 64, 0x390BD472},   {10000.0f, 64, 64, 0x38D1B717},
    {10000.0f, 2, 128, 0x3F5DAFD7},   {1000000.0f, 50, 128, 0x3B947DAE},
    {10000000.0f, 6, 8, 0x36BCB0C1},  {10000000.0f, 254, 256, 0x33F390FF},
    {1048576.0f, 32, 64, 0x3A800000}, {1.0f, 1, 2, 0x3F800000},
    {500000.0f, 30, 64, 0x3B0BAA41},  {3e+38f, 63, 64, 0x0090E6CF},
    {10000.0f, 2, 8, 0x3DCCCCCD},     {10000.0f, 4, 8, 0x3C23D70A},
    {10000.0f, 6, 8, 0x3A83126F},
};

TEST(ExactTrig, HardAnglesAreCorrectlyRounded) {
  for (const auto& [angle, sine, cosine] : kSinCos) {
    const SinCosF32 got = ExactSinCos(F32FromBits(angle));
    EXPECT_EQ(BitsOf(got.sin), sine) << std::hex << angle;
    EXPECT_EQ(BitsOf(got.cos), cosine) << std::hex << angle;
  }
}

TEST(ExactTrig, RandomAnglesAgreeWithTheCLibrarysFloat64RoundedOnce) {
  // Wrong at most where float64 itself sits on a midpoint; none of these do.
  std::mt19937 rng(20261205);
  for (int i = 0; i < 300000; ++i) {
    const float angle =
        i % 2 == 0 ? F32FromBits(rng() % 0x4B800001u) : static_cast<float>(rng() % (1u << 24));
    const SinCosF32 got = ExactSinCos(angle);
    ASSERT_EQ(got.sin, static_cast<float>(std::sin(static_cast<double>(angle)))) << angle;
    ASSERT_EQ(got.cos, static_cast<float>(std::cos(static_cast<double>(angle)))) << angle;
  }
}

TEST(ExactTrig, InversePowersAreCorrectlyRounded) {
  for (const Power& p : kPowers) {
    EXPECT_EQ(BitsOf(ExactInversePower(p.base, p.numerator, p.denominator)), p.bits)
        << p.base << "^-" << p.numerator << "/" << p.denominator;
  }
}

}  // namespace
}  // namespace lockstep::kernels
