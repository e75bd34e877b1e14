#include "kernels/float_formats.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace lockstep::kernels {
namespace {

// The value of a 16-bit pattern by its definition, exact in float64.
double ValueOf(uint16_t bits, int mantissa_bits, int bias) {
  const int exponent_bits = 15 - mantissa_bits;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  }
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                    : std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  return sign * magnitude;
}

template <typename Format>
struct Shape;
template <>
struct Shape<Bf16> {
  static constexpr int kMantissa = 7, kBias = 127;
  static constexpr uint16_t kNan = 0x7FC0, kInfinity = 0x7F80;
};
template <>
struct Shape<F16> {
  static constexpr int kMantissa = 10, kBias = 15;
  static constexpr uint16_t kNan = 0x7E00, kInfinity = 0x7C00;
};

template <typename Format>
class FormatTest : public testing::Test {
 public:
  static double Value(uint16_t bits) {
    return ValueOf(bits, Shape<Format>::kMantissa, Shape<Format>::kBias);
  }
};
using Formats = testing::Types<Bf16, F16>;
TYPED_TEST_SUITE(FormatTest, Formats);

TYPED_TEST(FormatTest, EveryPatternLoadsExactlyAndStoresBack) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i);
    const double want = TestFixture::Value(bits);
    const float loaded = TypeParam::Load(bits);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(loaded)) << i;
      ASSERT_EQ(TypeParam::Store(loaded), Shape<TypeParam>::kNan) << i;
      ASSERT_EQ(TypeParam::StoreF64(loaded), Shape<TypeParam>::kNan) << i;
      continue;
    }
    ASSERT_EQ(BitsOf(static_cast<double>(loaded)), BitsOf(want)) << i;
    ASSERT_EQ(TypeParam::Store(loaded), bits) << i;
    ASSERT_EQ(TypeParam::StoreF64(loaded), bits) << i;
  }
}

TYPED_TEST(FormatTest, EveryMidpointGoesToEvenAndItsNeighboursToTheNearer) {
  const uint16_t infinity = Shape<TypeParam>::kInfinity;
  for (uint16_t low = 0; low < infinity; ++low) {
    const uint16_t high = low + 1;
    const double below = TestFixture::Value(low);
    // The step past the largest finite value is that of its binade.
    const double above =
        high == infinity ? 2 * below - TestFixture::Value(low - 1) : TestFixture::Value(high);
    const double middle = (below + above) / 2;
    const uint16_t even = (low & 1) == 0 ? low : high;
    for (uint16_t sign : {0x0000, 0x8000}) {
      const double s = sign != 0 ? -1 : 1;
      const double down = std::nextafter(middle, 0.0);
      const double up = std::nextafter(middle, std::numeric_limits<double>::infinity());
      ASSERT_EQ(TypeParam::StoreF64(s * middle), sign | even) << low;
      ASSERT_EQ(TypeParam::StoreF64(s * down), sign | low) << low;
      ASSERT_EQ(TypeParam::StoreF64(s * up), sign | high) << low;
      const float middle_f = static_cast<float>(middle);
      if (static_cast<double>(middle_f) != middle)
        continue;  // bf16's denormal midpoint at 2^-134 is a float32 too
      const float inf_f = std::numeric_limits<float>::infinity();
      ASSERT_EQ(TypeParam::Store(static_cast<float>(s) * middle_f), sign | even) << low;
      ASSERT_EQ(TypeParam::Store(static_cast<float>(s) * std::nextafter(middle_f, 0.0f)),
                sign | low)
          << low;
      ASSERT_EQ(TypeParam::Store(static_cast<float>(s) * std::nextafter(middle_f, inf_f)),
                sign | high)
          << low;
    }
  }
}

TYPED_TEST(FormatTest, StoreFromFloat32EqualsStoreFromFloat64OfTheSameValue) {
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 9973) {
    const float x = F32FromBits(static_cast<uint32_t>(bits));
    ASSERT_EQ(TypeParam::Store(x), TypeParam::StoreF64(static_cast<double>(x))) << bits;
  }
}

TYPED_TEST(FormatTest, ExtremesOfFloat64AreZeroOrInfinity) {
  EXPECT_EQ(TypeParam::StoreF64(std::numeric_limits<double>::max()), Shape<TypeParam>::kInfinity);
  EXPECT_EQ(TypeParam::StoreF64(-std::numeric_limits<double>::infinity()),
            0x8000 | Shape<TypeParam>::kInfinity);
  EXPECT_EQ(TypeParam::StoreF64(std::numeric_limits<double>::denorm_min()), 0);
  EXPECT_EQ(TypeParam::StoreF64(-std::numeric_limits<double>::min()), 0x8000);
  EXPECT_EQ(TypeParam::StoreF64(-0.0), 0x8000);
}

TEST(FloatFormatsTest, Float64ToBf16RoundsOnceNotThroughFloat32) {
  // Just above the bf16 midpoint 1 + 2^-8: float32 would drop the 2^-40 and tie down to 1.
  const double above = 1.0 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(Bf16::StoreF64(above), 0x3F81);
  EXPECT_EQ(Bf16::Store(static_cast<float>(above)), 0x3F80);
  const double below = 1.0 + 3 * 0x1p-8 - 0x1p-40;
  EXPECT_EQ(Bf16::StoreF64(below), 0x3F81);
  EXPECT_EQ(Bf16::Store(static_cast<float>(below)), 0x3F82);
  EXPECT_EQ(F16::StoreF64(1.0 + 0x1p-11 + 0x1p-40), 0x3C01);
}

TEST(FloatFormatsTest, EveryNanBecomesTheCanonicalOne) {
  for (uint32_t bits : {0x7F800001u, 0x7FFFFFFFu, 0xFFC00000u, 0xFF812345u}) {
    const float x = F32FromBits(bits);
    EXPECT_EQ(Bf16::Store(x), 0x7FC0);
    EXPECT_EQ(F16::Store(x), 0x7E00);
    EXPECT_EQ(BitsOf(Canonicalise(x)), 0x7FC00000u);
    EXPECT_EQ(BitsOf(F32::Store(x)), 0x7FC00000u);
  }
  for (uint64_t bits : {0x7FF0000000000001u, 0xFFF8000000000000u, 0xFFFFFFFFFFFFFFFFu}) {
    const double x = F64FromBits(bits);
    EXPECT_EQ(BitsOf(Canonicalise(x)), 0x7FF8000000000000u);
    EXPECT_EQ(Bf16::StoreF64(x), 0x7FC0);
    EXPECT_EQ(F16::StoreF64(x), 0x7E00);
    EXPECT_EQ(BitsOf(F32::StoreF64(x)), 0x7FC00000u);
  }
  EXPECT_EQ(BitsOf(Canonicalise(-0.0f)), 0x80000000u);
  EXPECT_EQ(BitsOf(Canonicalise(-0.0)), 0x8000000000000000u);
}

}  // namespace
}  // namespace lockstep::kernels
