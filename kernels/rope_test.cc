#include "kernels/rope.h"

#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/exact_trig.h"
#include "kernels/float_formats.h"
#include "kernels/simd_targets_for_test.h"

namespace lockstep::kernels {
namespace {

constexpr uint32_t kSeed = 20261206;

struct Table {
  Table(float theta, int64_t rotary_dim, int64_t positions, int threads)
      : cos(static_cast<size_t>(positions * rotary_dim / 2)), sin(cos.size()) {
    RopeTableParams p;
    p.theta = theta, p.rotary_dim = rotary_dim, p.positions = positions;
    p.cos = cos.data(), p.sin = sin.data(), p.threads = threads;
    EXPECT_TRUE(MakeRopeTable(p).ok());
  }
  std::vector<float> cos, sin;
};

TEST(RopeTable, EntriesAreThoseOfTheRoundedAngle) {
  const int64_t rotary_dim = 34, positions = 5000;
  const Table table(1e7f, rotary_dim, positions, 3);
  for (int64_t t = 0; t < positions; t += 37) {
    for (int64_t i = 0; i < rotary_dim / 2; ++i) {
      const float frequency = ExactInversePower(1e7f, 2 * i, rotary_dim);
      const SinCosF32 want = ExactSinCos(static_cast<float>(t) * frequency);
      EXPECT_EQ(table.cos[t * rotary_dim / 2 + i], want.cos);
      EXPECT_EQ(table.sin[t * rotary_dim / 2 + i], want.sin);
    }
  }
  EXPECT_EQ(table.cos[0], 1.0f);
  EXPECT_EQ(table.sin[0], 0.0f);
}

template <class Format>
void ExpectSpecification(std::mt19937& rng, int64_t heads, int64_t head_dim, int64_t rotary_dim) {
  const int64_t rows = 5, positions = 300, half = rotary_dim / 2;
  const Table table(10000.0f, rotary_dim, positions, 1);
  std::vector<uint16_t> x(static_cast<size_t>(rows * heads * head_dim));
  for (uint16_t& bits : x) bits = static_cast<uint16_t>(rng());
  std::vector<int64_t> at;
  for (int64_t r = 0; r < rows; ++r) at.push_back(static_cast<int64_t>(rng() % positions));
  std::vector<uint16_t> want(x.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < heads; ++h) {
      const size_t base = static_cast<size_t>((r * heads + h) * head_dim);
      for (int64_t i = 0; i < head_dim; ++i) {
        const float value = Format::Load(x[base + i]);
        if (i >= rotary_dim) {
          want[base + i] = Format::Store(value);
          continue;
        }
        const float rotated =
            i < half ? -Format::Load(x[base + i + half]) : Format::Load(x[base + i - half]);
        const float by_cos = value * table.cos[at[r] * half + i % half];
        const float by_sin = rotated * table.sin[at[r] * half + i % half];
        want[base + i] = Format::Store(by_cos + by_sin);
      }
    }
  }
  ForEachSimdTarget([&](const char* target) {
    std::vector<uint16_t> out = x;
    RopeParams p;
    p.type = Format::kType;
    p.rows = rows, p.heads = heads, p.head_dim = head_dim, p.rotary_dim = rotary_dim;
    p.x = p.out = out.data(), p.positions = at.data();
    p.cos = table.cos.data(), p.sin = table.sin.data(), p.table_positions = positions;
    p.threads = 2;
    ASSERT_TRUE(RopeNeox(p).ok());
    EXPECT_EQ(out, want) << target << " D=" << head_dim << " rotary=" << rotary_dim;
  });
}

TEST(RopeNeox, EqualsTheSpecificationForEveryKindOfBits) {
  std::mt19937 rng(kSeed);
  for (int i = 0; i < 20; ++i) {
    const int64_t rotary_dim = 2 * (1 + static_cast<int64_t>(rng() % 40));
    const int64_t head_dim = rotary_dim + static_cast<int64_t>(rng() % 20);
    const int64_t heads = 1 + static_cast<int64_t>(rng() % 4);
    ExpectSpecification<Bf16>(rng, heads, head_dim, rotary_dim);
    ExpectSpecification<F16>(rng, heads, head_dim, rotary_dim);
  }
}

TEST(RopeNeox, RefusesWhatItDoesNotDefine) {
  float entry[4] = {1, 1, 0, 0};
  RopeTableParams t;
  t.rotary_dim = 3, t.positions = 1, t.cos = entry, t.sin = entry;
  EXPECT_FALSE(MakeRopeTable(t).ok());
  t.rotary_dim = 2, t.theta = 0.5f;
  EXPECT_FALSE(MakeRopeTable(t).ok());
  t.theta = 2, t.positions = kRopeMaxPositions + 1;
  EXPECT_FALSE(MakeRopeTable(t).ok());
  uint16_t x[4] = {};
  const int64_t position = 1;
  RopeParams p;
  p.rows = 1, p.heads = 1, p.head_dim = 4, p.rotary_dim = 4;
  p.x = p.out = x, p.positions = &position, p.cos = entry, p.sin = entry, p.table_positions = 1;
  EXPECT_EQ(RopeNeox(p).message(),
            "rope: expected positions in [0, 1) of the table, got 1 at row 0");
  p.table_positions = 2, p.rotary_dim = 6;
  EXPECT_FALSE(RopeNeox(p).ok());
}

}  // namespace
}  // namespace lockstep::kernels
