#include "kernels/rmsnorm.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/float_formats.h"
#include "kernels/simd_targets_for_test.h"

namespace lockstep::kernels {
namespace {

constexpr uint32_t kSeed = 20261201;

// The sum of leaves [begin, begin + width) with width a power of two that may reach past the end:
// the tree's own definition from the top, where the program works from the bottom.
float TreeSum(const std::vector<float>& leaves, size_t begin, size_t width) {
  if (width == 1) return leaves[begin];
  const size_t half = width / 2;
  const float left = TreeSum(leaves, begin, half);
  return begin + half < leaves.size() ? left + TreeSum(leaves, begin + half, half) : left;
}

struct Inputs {
  size_t rows, columns;
  std::vector<uint16_t> x, residual, weight16;
  std::vector<float> weight32;
};

Inputs RandomInputs(std::mt19937& rng, size_t rows, size_t columns, bool any_bits) {
  std::normal_distribution<float> normal;
  Inputs in{rows, columns, {}, {}, {}, {}};
  const auto half = [&] {
    return any_bits ? static_cast<uint16_t>(rng()) : Bf16::Store(normal(rng));
  };
  for (size_t i = 0; i < rows * columns; ++i) in.x.push_back(half());
  for (size_t i = 0; i < rows * columns; ++i) in.residual.push_back(half());
  for (size_t i = 0; i < columns; ++i) in.weight16.push_back(half());
  for (size_t i = 0; i < columns; ++i) in.weight32.push_back(normal(rng));
  return in;
}

enum class WeightKind { kNone, kBf16, kF32 };

struct Options {
  bool residual;
  WeightKind weight;
  bool zero_centered;
  float eps;
};

std::vector<uint16_t> Reference(const Inputs& in, const Options& o,
                                std::vector<uint16_t>* residual_out) {
  std::vector<uint16_t> out;
  size_t width = 1;
  while (width < in.columns) width *= 2;
  for (size_t r = 0; r < in.rows; ++r) {
    std::vector<float> row, squares;
    for (size_t i = 0; i < in.columns; ++i) {
      uint16_t bits = in.x[r * in.columns + i];
      if (o.residual) {
        // In float64 the sum of two bf16 is exact or far from any midpoint: one rounding.
        bits = Bf16::StoreF64(static_cast<double>(Bf16::Load(in.residual[r * in.columns + i])) +
                              static_cast<double>(Bf16::Load(bits)));
        residual_out->push_back(bits);
      }
      row.push_back(Bf16::Load(bits));
      squares.push_back(row.back() * row.back());
    }
    const float mean = TreeSum(squares, 0, width) / static_cast<float>(in.columns);
    const float root = std::sqrt(mean + o.eps);
    const float inv = 1.0f / root;
    for (size_t i = 0; i < in.columns; ++i) {
      float y = row[i] * inv;
      if (o.weight != WeightKind::kNone) {
        float w = o.weight == WeightKind::kBf16 ? Bf16::Load(in.weight16[i]) : in.weight32[i];
        if (o.zero_centered) w = 1.0f + w;
        y = y * w;
      }
      out.push_back(Bf16::Store(y));
    }
  }
  return out;
}

RmsNormParams ParamsOf(const Inputs& in, const Options& o, uint16_t* out) {
  RmsNormParams p;
  p.rows = static_cast<int64_t>(in.rows), p.columns = static_cast<int64_t>(in.columns);
  p.x = in.x.data(), p.out = out;
  if (o.residual) p.residual = in.residual.data();
  if (o.weight == WeightKind::kBf16) p.weight = in.weight16.data();
  if (o.weight == WeightKind::kF32) p.weight = in.weight32.data();
  p.weight_type = o.weight == WeightKind::kF32 ? FloatType::kF32 : FloatType::kBf16;
  p.zero_centered = o.zero_centered, p.eps = o.eps;
  return p;
}

void ExpectReferenceBytes(const Inputs& in, const Options& o) {
  std::vector<uint16_t> want_residual;
  const std::vector<uint16_t> want = Reference(in, o, &want_residual);
  ForEachSimdTarget([&](const char* target) {
    for (const int64_t split : {0, 2, 8, 64, 1 << 20}) {
      std::vector<uint16_t> out(want.size(), 0xBEEF);
      std::vector<uint16_t> residual_out(want_residual.size(), 0xBEEF);
      RmsNormParams p = ParamsOf(in, o, out.data());
      p.split_columns = split;
      p.threads = split == 8 ? 3 : 1;
      if (o.residual) p.residual_out = residual_out.data();
      ASSERT_TRUE(RmsNorm(p).ok());
      EXPECT_EQ(out, want) << target << " H=" << in.columns << " split=" << split;
      EXPECT_EQ(residual_out, want_residual) << target << " H=" << in.columns;
    }
  });
}

TEST(RmsNorm, EqualsTheSpecificationForEveryOptionAndOddLength) {
  std::mt19937 rng(kSeed);
  for (const size_t columns :
       {1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 63, 65, 100, 127, 999, 1000, 1023, 1025, 4096}) {
    const Inputs in = RandomInputs(rng, 3, columns, false);
    for (const bool residual : {false, true}) {
      ExpectReferenceBytes(in, {residual, WeightKind::kNone, false, 1e-6f});
      ExpectReferenceBytes(in, {residual, WeightKind::kBf16, false, 1e-6f});
      ExpectReferenceBytes(in, {residual, WeightKind::kBf16, true, 1e-5f});
      ExpectReferenceBytes(in, {residual, WeightKind::kF32, false, 0.0f});
      ExpectReferenceBytes(in, {residual, WeightKind::kF32, true, 1e-6f});
    }
  }
}

TEST(RmsNorm, EqualsTheSpecificationForEveryKindOfBits) {
  std::mt19937 rng(kSeed + 1);
  for (int i = 0; i < 100; ++i) {
    const Inputs in = RandomInputs(rng, 4, 1 + rng() % 20, true);
    ExpectReferenceBytes(in, {i % 2 == 1, WeightKind::kBf16, i % 3 == 0, 1e-6f});
  }
}

TEST(RmsNorm, WorksInPlaceAndRowsAreIndependent) {
  std::mt19937 rng(kSeed + 2);
  const Inputs in = RandomInputs(rng, 5, 77, false);
  const Options o{true, WeightKind::kBf16, true, 1e-6f};
  std::vector<uint16_t> want_residual;
  const std::vector<uint16_t> want = Reference(in, o, &want_residual);
  std::vector<uint16_t> x = in.x;
  std::vector<uint16_t> residual = in.residual;
  for (size_t r = 0; r < in.rows; ++r) {
    RmsNormParams p = ParamsOf(in, o, &x[r * in.columns]);
    p.rows = 1;
    p.x = &x[r * in.columns];
    p.residual = p.residual_out = &residual[r * in.columns];
    ASSERT_TRUE(RmsNorm(p).ok());
  }
  EXPECT_EQ(x, want);
  EXPECT_EQ(residual, want_residual);
}

TEST(RmsNorm, TheOddTailIsPassedUpNotPaddedElsewhere) {
  // 1 + 2^-24 is a tie that rounds to 1; two of them added first survive. Five leaves tell the
  // pair tree ((1+t)+(t+t))+t from an ascending chain and from a tree that folds the tail early.
  const float tiny = 0x1p-12f;
  const std::vector<uint16_t> x = {Bf16::Store(1.0f), Bf16::Store(tiny), Bf16::Store(tiny),
                                   Bf16::Store(tiny), Bf16::Store(tiny)};
  const float t = tiny * tiny;
  const float tree = ((1.0f + t) + (t + t)) + t;
  const float chain = (((1.0f + t) + t) + t) + t;
  ASSERT_NE(tree, chain);
  const Inputs in{1, 5, x, {}, {}, {}};
  ExpectReferenceBytes(in, {false, WeightKind::kNone, false, 0.0f});
  EXPECT_EQ(TreeSum({1.0f, t, t, t, t}, 0, 8), tree);
}

TEST(RmsNorm, RefusesWhatItDoesNotDefine) {
  std::mt19937 rng(kSeed + 3);
  const Inputs in = RandomInputs(rng, 1, 8, false);
  const Options o{false, WeightKind::kNone, false, 1e-6f};
  std::vector<uint16_t> out(8);
  RmsNormParams p = ParamsOf(in, o, out.data());
  p.zero_centered = true;
  EXPECT_EQ(RmsNorm(p).message(),
            "rmsnorm: zero-centered means 1 + weight and needs a weight, got none");
  p = ParamsOf(in, o, out.data());
  p.split_columns = 3;
  EXPECT_FALSE(RmsNorm(p).ok());
  p = ParamsOf(in, o, out.data());
  p.eps = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(RmsNorm(p).ok());
  p = ParamsOf(in, o, out.data());
  p.weight = out.data(), p.weight_type = FloatType::kF16;
  EXPECT_FALSE(RmsNorm(p).ok());
  p = ParamsOf(in, o, out.data());
  p.rows = 0;
  EXPECT_FALSE(RmsNorm(p).ok());
  p = ParamsOf(in, o, out.data());
  p.residual_out = out.data();
  EXPECT_FALSE(RmsNorm(p).ok());
}

}  // namespace
}  // namespace lockstep::kernels
