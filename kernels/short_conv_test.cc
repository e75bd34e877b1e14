#include "kernels/short_conv.h"

#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cp_segments.h"
#include "kernels/exact_fma.h"
#include "kernels/float_formats.h"
#include "kernels/parallel.h"
#include "kernels/simd_targets_for_test.h"

namespace lockstep::kernels {
namespace {

struct Inputs {
  Inputs(int64_t tokens, int64_t channels, uint64_t seed) : tokens(tokens), channels(channels) {
    std::mt19937_64 random(seed);
    const auto fill = [&](std::vector<uint16_t>& values, int64_t count) {
      values.resize(static_cast<size_t>(count));
      // Any bf16: denormals, infinities and NaNs included.
      for (uint16_t& x : values) x = static_cast<uint16_t>(random());
    };
    fill(x, tokens * channels);
    fill(weight, channels * 4);
    fill(halo, 3 * channels);
    out.resize(x.size());
    tail.resize(halo.size());
  }

  ShortConvParams Params() {
    ShortConvParams p;
    p.tokens = tokens, p.channels = channels;
    p.x = x.data(), p.weight = weight.data(), p.halo = halo.data();
    p.out = out.data(), p.tail = tail.data();
    return p;
  }

  // Token t counts from the document's start; negative ones are the halo's.
  uint16_t At(int64_t t, int64_t c) const {
    return t < 0 ? halo[(3 + t) * channels + c] : x[t * channels + c];
  }

  std::vector<uint16_t> WantOut() const {
    std::vector<uint16_t> want;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t c = 0; c < channels; ++c) {
        float sum = 0;
        for (int64_t j = 0; j < 4; ++j) {
          sum = ExactFma(Bf16::Load(weight[c * 4 + j]), Bf16::Load(At(t - 3 + j, c)), sum);
        }
        want.push_back(Bf16::Store(sum));
      }
    }
    return want;
  }

  std::vector<uint16_t> WantTail() const {
    std::vector<uint16_t> want;
    for (int64_t t = tokens - 3; t < tokens; ++t) {
      for (int64_t c = 0; c < channels; ++c) want.push_back(At(t, c));
    }
    return want;
  }

  int64_t tokens, channels;
  std::vector<uint16_t> x, weight, halo, out, tail;
};

TEST(ShortConvTest, EqualsThePlainChainOnEveryTargetForAnyLength) {
  for (int64_t tokens : {1, 2, 3, 4, 50}) {
    for (int64_t channels : {1, 7, 16, 37}) {
      Inputs in(tokens, channels, static_cast<uint64_t>(tokens * 100 + channels));
      ForEachSimdTarget([&](const char* target) {
        ShortConvParams p = in.Params();
        p.threads = 3;
        ASSERT_TRUE(ShortConv(p).ok());
        EXPECT_EQ(in.out, in.WantOut()) << target << " " << tokens << "x" << channels;
        EXPECT_EQ(in.tail, in.WantTail());
      });
    }
  }
}

TEST(ShortConvTest, Float32InputsKeepTheSumAndNoHaloIsZeros) {
  std::vector<float> x = {1, 2, 3, 4, 5};
  std::vector<float> weight = {0.5f, 0.25f, 2, 1};
  std::vector<float> out(5);
  ShortConvParams p;
  p.type = p.weight_type = FloatType::kF32;
  p.tokens = 5, p.channels = 1;
  p.x = x.data(), p.weight = weight.data(), p.out = out.data();
  ASSERT_TRUE(ShortConv(p).ok());
  EXPECT_EQ(out, (std::vector<float>{1, 4, 7.25f, 11, 14.75f}));
}

TEST(ShortConvTest, RanksWithTheirHaloGiveTheWholeDocumentsBytesAndTail) {
  for (GdnCpProgram split : {GdnCpProgram::kRelay, GdnCpProgram::kCanonicalFold}) {
    for (int64_t tokens : {1'024, 1'025, 1'026, 2'048, 3'073}) {
      if (split == GdnCpProgram::kRelay && tokens % 1'024 != 0) continue;
      for (int cp : {1, 2, 4, 8}) {
        const int64_t channels = 5;
        Inputs in(tokens, channels, static_cast<uint64_t>(tokens));
        const auto segments =
            split == GdnCpProgram::kRelay ? RelaySegments(tokens, cp) : FoldSegments(tokens, cp);
        ASSERT_TRUE(segments.ok());
        LocalCpGroup group(cp);
        std::vector<std::vector<uint16_t>> tails(cp, std::vector<uint16_t>(3 * channels));
        ParallelFor(cp, cp, [&](size_t rank, size_t) {
          std::vector<uint16_t> x;
          for (const CpSegment& s : *segments) {
            if (s.owner != static_cast<int>(rank)) continue;
            x.insert(x.end(), in.x.begin() + s.first * channels,
                     in.x.begin() + (s.first + s.count) * channels);
          }
          std::vector<uint16_t> out(x.size());
          ShortConvParams p = in.Params();
          p.tokens = LocalTokens(*segments, static_cast<int>(rank));
          p.x = x.data(), p.out = out.data(), p.tail = tails[rank].data();
          const absl::Status status =
              ShortConvCpRank(p, split, tokens, group.Rank(static_cast<int>(rank)));
          EXPECT_TRUE(status.ok()) << status;
          if (!status.ok()) return group.Abort(status);
          auto from = out.begin();
          for (const CpSegment& s : *segments) {
            if (s.owner != static_cast<int>(rank)) continue;
            std::copy_n(from, s.count * channels, in.out.begin() + s.first * channels);
            from += s.count * channels;
          }
        });
        EXPECT_EQ(in.out, in.WantOut()) << "T=" << tokens << " cp=" << cp;
        for (const auto& tail : tails) EXPECT_EQ(tail, in.WantTail());
      }
    }
  }
}

TEST(ShortConvTest, BadShapesAreRefused) {
  Inputs in(4, 2, 1);
  const auto refused = [&](auto change) {
    ShortConvParams p = in.Params();
    change(p);
    return ShortConv(p).code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](ShortConvParams& p) { p.tokens = 0; }));
  EXPECT_TRUE(refused([](ShortConvParams& p) { p.channels = 0; }));
  EXPECT_TRUE(refused([](ShortConvParams& p) { p.type = FloatType::kF16; }));
  EXPECT_TRUE(refused([](ShortConvParams& p) { p.weight = nullptr; }));
  EXPECT_TRUE(refused([](ShortConvParams& p) { p.x = nullptr; }));
}

}  // namespace
}  // namespace lockstep::kernels
