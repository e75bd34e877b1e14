#include "kernels/moe.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/float_formats.h"
#include "kernels/simd_targets_for_test.h"

namespace lockstep::kernels {
namespace {

using Halves = std::vector<uint16_t>;

constexpr MoeFoldProgram kFolds[] = {MoeFoldProgram::kBf16Tree, MoeFoldProgram::kFp32Tree,
                                     MoeFoldProgram::kFp64Tree};

// One element of a fold, level by level as the specification words it.
template <class Node, class Round>
uint16_t FoldLevels(const Halves& leaves, Round round) {
  std::vector<Node> level;
  for (const uint16_t leaf : leaves) level.push_back(Bf16::Load(leaf));
  while (level.size() > 1) {
    std::vector<Node> next;
    for (size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(round(level[i] + level[i + 1]));
    if (level.size() % 2 == 1) next.push_back(level.back());
    level = next;
  }
  return Bf16::StoreF64(level[0]);
}

uint16_t FoldReference(MoeFoldProgram program, const Halves& leaves) {
  switch (program) {
    case MoeFoldProgram::kBf16Tree:
      return FoldLevels<float>(leaves, [](float x) { return Bf16::Load(Bf16::Store(x)); });
    case MoeFoldProgram::kFp32Tree:
      return FoldLevels<float>(leaves, [](float x) { return x; });
    case MoeFoldProgram::kFp64Tree:
      return FoldLevels<double>(leaves, [](double x) { return x; });
  }
  return 0;
}

// Folds single elements; leaves[e] is contributor e.
uint16_t FoldOne(MoeFoldProgram program, const Halves& leaves) {
  uint16_t out = 0;
  MoeFoldParams p;
  p.program = program;
  p.contributors = static_cast<int64_t>(leaves.size());
  p.rows = p.columns = 1;
  p.partials = leaves.data();
  p.out = &out;
  EXPECT_TRUE(MoeFold(p).ok());
  return out;
}

uint16_t ModerateBf16(std::mt19937* random) {
  return Bf16::Store(std::normal_distribution<float>()(*random));
}

// Any pattern at all in one element of eight, an ordinary value in the others.
uint16_t AnyBf16(std::mt19937* random) {
  return (*random)() % 8 == 0 ? static_cast<uint16_t>((*random)()) : ModerateBf16(random);
}

TEST(MoeFoldTest, EveryContributorCountStrideSplitAndTargetEqualsTheLevelByLevelTree) {
  constexpr uint32_t kSeed = 77;
  std::mt19937 random(kSeed);
  for (int64_t contributors = 1; contributors <= 37; ++contributors) {
    const int64_t rows = 1 + random() % 3, columns = 1 + random() % 150;
    const int64_t row_stride = columns + random() % 5;
    const int64_t contributor_stride = rows * row_stride + random() % 9;
    Halves partials(contributors * contributor_stride);
    for (uint16_t& value : partials) value = AnyBf16(&random);
    for (const MoeFoldProgram program : kFolds) {
      MoeFoldParams p;
      p.program = program;
      p.contributors = contributors;
      p.rows = rows;
      p.columns = columns;
      p.partials = partials.data();
      p.contributor_stride = contributor_stride;
      p.partials_row_stride = row_stride;
      p.threads = 1 + static_cast<int>(random() % 3);
      ForEachSimdTarget([&](const char* target) {
        Halves out(rows * columns);
        p.out = out.data();
        ASSERT_TRUE(MoeFold(p).ok());
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < columns; ++c) {
            Halves leaves;
            for (int64_t e = 0; e < contributors; ++e) {
              leaves.push_back(partials[e * contributor_stride + r * row_stride + c]);
            }
            ASSERT_EQ(out[r * columns + c], FoldReference(program, leaves))
                << target << " E " << contributors << " program " << static_cast<int>(program)
                << " row " << r << " column " << c << " seed " << kSeed;
          }
        }
      });
    }
  }
}

TEST(MoeFoldTest, ContributorsInterleavedWithRowsFoldAlike) {
  std::mt19937 random(5);
  constexpr int64_t kContributors = 6, kRows = 3, kColumns = 70;
  Halves apart(kContributors * kRows * kColumns), interleaved(apart.size());
  for (uint16_t& value : apart) value = ModerateBf16(&random);
  for (int64_t e = 0; e < kContributors; ++e) {
    for (int64_t r = 0; r < kRows; ++r) {
      memcpy(&interleaved[(r * kContributors + e) * kColumns], &apart[(e * kRows + r) * kColumns],
             kColumns * 2);
    }
  }
  for (const MoeFoldProgram program : kFolds) {
    Halves want(kRows * kColumns), got(kRows * kColumns);
    MoeFoldParams p;
    p.program = program;
    p.contributors = kContributors;
    p.rows = kRows;
    p.columns = kColumns;
    p.partials = apart.data();
    p.out = want.data();
    ASSERT_TRUE(MoeFold(p).ok());
    p.partials = interleaved.data();
    p.contributor_stride = kColumns;
    p.partials_row_stride = kContributors * kColumns;
    p.out = got.data();
    ASSERT_TRUE(MoeFold(p).ok());
    EXPECT_EQ(got, want);
  }
}

TEST(MoeFoldTest, CraftedLeavesSeparateTheThreeFolds) {
  // 1 + 2^-25 is 1 in float32; with 2^-8 added it is a tie that goes to even, while float64 sees
  // that it lies above the midpoint.
  const Halves v2_from_v3 = {0x3F80, 0x3300, 0x3B80, 0x0000};
  EXPECT_EQ(FoldOne(MoeFoldProgram::kFp32Tree, v2_from_v3), 0x3F80);
  EXPECT_EQ(FoldOne(MoeFoldProgram::kFp64Tree, v2_from_v3), 0x3F81);
  // 1 + 2^-9 is 1 in bf16; kept, it lifts 3 * 2^-10 over the midpoint.
  const Halves v1_from_v2 = {0x3F80, 0x3B00, 0x3B00, 0x3A80};
  EXPECT_EQ(FoldOne(MoeFoldProgram::kBf16Tree, v1_from_v2), 0x3F80);
  EXPECT_EQ(FoldOne(MoeFoldProgram::kFp32Tree, v1_from_v2), 0x3F81);
  // A float64 root just above a bf16 midpoint, which float32 would round onto it: one rounding.
  const Halves once = {0x3F80, 0x3B80, 0x2F80, 0x0000};
  EXPECT_EQ(FoldOne(MoeFoldProgram::kFp64Tree, once), 0x3F81);
}

TEST(MoeFoldTest, TheOddTailIsPassedUpNotAddedEarly) {
  // ((1 + 1) + (-2 + 0)) + tail keeps the tail; adding it first would lose it in bf16.
  const Halves leaves = {0x3F80, 0x3F80, 0xC000, 0x0000, 0x3780};
  EXPECT_EQ(FoldOne(MoeFoldProgram::kBf16Tree, leaves), 0x3780);
}

TEST(MoeFoldTest, OneContributorPassesThroughOneStore) {
  for (const MoeFoldProgram program : kFolds) {
    for (uint32_t i = 0; i < 65536; ++i) {
      const uint16_t leaf = static_cast<uint16_t>(i);
      const uint16_t want = std::isnan(Bf16::Load(leaf)) ? kBf16CanonicalNan : leaf;
      ASSERT_EQ(FoldOne(program, {leaf}), want) << i;
    }
  }
}

TEST(MoeFoldTest, NormalLeavesSeparateV1FromV3InAboutFiftySixPercent) {
  std::mt19937 random(9);
  constexpr int64_t kContributors = 16, kColumns = 65536;
  Halves partials(kContributors * kColumns), v1(kColumns), v3(kColumns);
  for (uint16_t& value : partials) value = ModerateBf16(&random);
  MoeFoldParams p;
  p.contributors = kContributors;
  p.rows = 1;
  p.columns = kColumns;
  p.partials = partials.data();
  p.program = MoeFoldProgram::kBf16Tree;
  p.out = v1.data();
  ASSERT_TRUE(MoeFold(p).ok());
  p.program = MoeFoldProgram::kFp64Tree;
  p.out = v3.data();
  ASSERT_TRUE(MoeFold(p).ok());
  int differing = 0;
  for (int64_t i = 0; i < kColumns; ++i) differing += v1[i] != v3[i];
  EXPECT_NEAR(differing / static_cast<double>(kColumns), 0.56, 0.01);
}

TEST(MoeFoldTest, WhatDoesNotFitIsRefused) {
  Halves data(64, 0x3F80);
  MoeFoldParams valid;
  valid.contributors = 2;
  valid.rows = 2;
  valid.columns = 8;
  valid.partials = data.data();
  valid.out = data.data() + 32;
  ASSERT_TRUE(MoeFold(valid).ok());
  const auto refused = [](const MoeFoldParams& p, const std::string& fragment) {
    const absl::Status status = MoeFold(p);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << fragment;
    EXPECT_TRUE(absl::StrContains(status.message(), fragment)) << status;
  };
  MoeFoldParams p = valid;
  p.contributors = 0;
  refused(p, "contributors, got 0");
  p.contributors = kMoeFoldMaxContributors + 1;
  refused(p, "contributors");
  p = valid;
  p.contributor_stride = -1;
  refused(p, "contributor stride");
  p = valid;
  p.rows = 0;
  refused(p, "empty batch");
  p = valid;
  p.partials_row_stride = 7;
  refused(p, "'partials'");
  p = valid;
  p.out = nullptr;
  refused(p, "'out'");
}

uint16_t LeafReference(MoeLeafProgram program, uint16_t routed, uint16_t shared, float scale) {
  const float r = Bf16::Load(routed), s = Bf16::Load(shared);
  if (program == MoeLeafProgram::kFp32Fma) return Bf16::Store(std::fma(r, scale, s));
  return Bf16::Store(Bf16::Load(Bf16::Store(r * scale)) + s);
}

TEST(MoeLeafTest, EveryRoutedPatternEqualsThePlainReadingOnEveryTarget) {
  const float scales[] = {1.0f, 2.5f, 0.1f, -1.7320508f, 0x1p-120f, 3e38f, 1e-40f, 0.0f};
  const Halves others = {0x3F80, 0xBF81, 0x0000, 0x8000, 0x0001, 0x807F, 0x7F7F,
                         0xFF7F, 0x7F80, 0xFF80, 0xFFFF, 0x3EAB, 0x4049};
  Halves routed(65536), shared(65536), out(65536);
  for (size_t i = 0; i < routed.size(); ++i) routed[i] = static_cast<uint16_t>(i);
  ForEachSimdTarget([&](const char* target) {
    for (const MoeLeafProgram program : {MoeLeafProgram::kBf16Add, MoeLeafProgram::kFp32Fma}) {
      for (size_t k = 0; k < std::size(scales); ++k) {
        for (size_t i = 0; i < shared.size(); ++i) shared[i] = others[(i + k) % others.size()];
        MoeLeafParams p;
        p.program = program;
        p.rows = 1;
        p.columns = 65536;
        p.routed = routed.data();
        p.shared = shared.data();
        p.out = out.data();
        p.scale = scales[k];
        ASSERT_TRUE(MoeLeaf(p).ok());
        for (size_t i = 0; i < out.size(); ++i) {
          ASSERT_EQ(out[i], LeafReference(program, routed[i], shared[i], scales[k]))
              << target << std::hex << " routed 0x" << i << " shared 0x" << shared[i] << " scale "
              << scales[k];
        }
      }
    }
  });
}

TEST(MoeLeafTest, CraftedOperandsSeparateTheTwoLeavesAndAnFmaFromMulAndAdd) {
  const auto run = [](MoeLeafProgram program, uint16_t routed, uint16_t shared, float scale) {
    uint16_t out = 0;
    MoeLeafParams p;
    p.program = program;
    p.rows = p.columns = 1;
    p.routed = &routed;
    p.shared = &shared;
    p.out = &out;
    p.scale = scale;
    EXPECT_TRUE(MoeLeaf(p).ok());
    return out;
  };
  // (1 + 3 * 2^-7)(1 + 2^-7) loses its 3 * 2^-14 in bf16 before -1 is added.
  EXPECT_EQ(run(MoeLeafProgram::kBf16Add, 0x3F83, 0xBF80, 1.0078125f), 0x3D00);
  EXPECT_EQ(run(MoeLeafProgram::kFp32Fma, 0x3F83, 0xBF80, 1.0078125f), 0x3D01);
  // (1 + 2^-7)(1 + 2^-23) - (1 + 2^-7) keeps what a rounded product would drop.
  const float scale = 1.0f + 0x1p-23f;
  const float product = Bf16::Load(0x3F81) * scale;
  EXPECT_NE(run(MoeLeafProgram::kFp32Fma, 0x3F81, 0xBF81, scale),
            Bf16::Store(product - Bf16::Load(0x3F81)));
}

TEST(MoeLeafTest, BytesDoNotDependOnShapeStrideThreadsOrTarget) {
  constexpr uint32_t kSeed = 31;
  std::mt19937 random(kSeed);
  for (int round = 0; round < 40; ++round) {
    const int64_t rows = 1 + random() % 4;
    const int64_t columns = round % 10 == 0 ? 4096 + random() % 100 : 1 + random() % 60;
    const int64_t routed_stride = columns + random() % 4, shared_stride = columns + random() % 4;
    const int64_t out_stride = columns + random() % 4;
    Halves routed(rows * routed_stride), shared(rows * shared_stride);
    for (uint16_t& value : routed) value = AnyBf16(&random);
    for (uint16_t& value : shared) value = AnyBf16(&random);
    MoeLeafParams p;
    p.program = round % 2 == 0 ? MoeLeafProgram::kBf16Add : MoeLeafProgram::kFp32Fma;
    p.rows = rows;
    p.columns = columns;
    p.routed = routed.data();
    p.shared = shared.data();
    p.routed_row_stride = routed_stride;
    p.shared_row_stride = shared_stride;
    p.out_row_stride = out_stride;
    p.scale = 1.8f;
    p.threads = 1 + round % 3;
    ForEachSimdTarget([&](const char* target) {
      Halves out(rows * out_stride);
      p.out = out.data();
      ASSERT_TRUE(MoeLeaf(p).ok());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          ASSERT_EQ(out[r * out_stride + c], LeafReference(p.program, routed[r * routed_stride + c],
                                                           shared[r * shared_stride + c], p.scale))
              << target << " seed " << kSeed << " round " << round;
        }
      }
    });
  }
}

TEST(MoeLeafTest, WhatDoesNotFitIsRefused) {
  Halves data(64, 0x3F80);
  MoeLeafParams valid;
  valid.rows = 2;
  valid.columns = 8;
  valid.routed = data.data();
  valid.shared = data.data() + 16;
  valid.out = data.data() + 32;
  ASSERT_TRUE(MoeLeaf(valid).ok());
  for (const float scale : {std::numeric_limits<float>::infinity(), NAN}) {
    MoeLeafParams p = valid;
    p.scale = scale;
    EXPECT_EQ(MoeLeaf(p).code(), absl::StatusCode::kInvalidArgument);
  }
  MoeLeafParams p = valid;
  p.shared = nullptr;
  EXPECT_TRUE(absl::StrContains(MoeLeaf(p).message(), "'shared'"));
}

}  // namespace
}  // namespace lockstep::kernels
