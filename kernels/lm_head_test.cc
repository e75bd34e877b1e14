#include "kernels/lm_head.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/exact_math.h"
#include "kernels/float_formats.h"
#include "kernels/simd_targets_for_test.h"

namespace lockstep::kernels {
namespace {

constexpr uint32_t kSeed = 20261202;

struct Inputs {
  int64_t rows, hidden_size, vocab;
  std::vector<uint16_t> hidden, weight;
  std::vector<int64_t> tokens;
};

Inputs RandomInputs(std::mt19937& rng, int64_t rows, int64_t hidden_size, int64_t vocab) {
  std::normal_distribution<float> normal;
  Inputs in{rows, hidden_size, vocab, {}, {}, {}};
  for (int64_t i = 0; i < rows * hidden_size; ++i) in.hidden.push_back(Bf16::Store(normal(rng)));
  for (int64_t i = 0; i < vocab * hidden_size; ++i) in.weight.push_back(Bf16::Store(normal(rng)));
  for (int64_t i = 0; i < rows; ++i) in.tokens.push_back(static_cast<int64_t>(rng() % vocab));
  return in;
}

std::vector<float> Logits(const Inputs& in, int64_t row) {
  std::vector<float> logits;
  for (int64_t v = 0; v < in.vocab; ++v) {
    float dot = 0.0f;
    for (int64_t k = 0; k < in.hidden_size; ++k) {
      dot = std::fma(Bf16::Load(in.hidden[row * in.hidden_size + k]),
                     Bf16::Load(in.weight[v * in.hidden_size + k]), dot);
    }
    logits.push_back(dot);
  }
  return logits;
}

// Tiles [begin, begin + width), width a power of two that may reach past the last tile.
LmHeadTileStat Tree(const std::vector<float>& logits, int64_t begin, int64_t width) {
  const int64_t vocab = static_cast<int64_t>(logits.size());
  if (width > 1) {
    const LmHeadTileStat a = Tree(logits, begin, width / 2);
    if ((begin + width / 2) * kLmHeadTile >= vocab) return a;
    const LmHeadTileStat b = Tree(logits, begin + width / 2, width / 2);
    const float m = std::max(a.max, b.max);
    const float left = a.sum * ExpF32(a.max - m);
    const float right = b.sum * ExpF32(b.max - m);
    return {m, left + right};
  }
  const int64_t end = std::min(vocab, (begin + 1) * kLmHeadTile);
  float m = -std::numeric_limits<float>::infinity();
  for (int64_t v = begin * kLmHeadTile; v < end; ++v) m = std::max(m, logits[v]);
  float s = 0.0f;
  for (int64_t v = begin * kLmHeadTile; v < end; ++v) s += ExpF32(logits[v] - m);
  return {m, s};
}

std::vector<uint32_t> Reference(const Inputs& in) {
  int64_t width = 1;
  while (width < LmHeadTiles(in.vocab)) width *= 2;
  std::vector<uint32_t> out;
  for (int64_t r = 0; r < in.rows; ++r) {
    const std::vector<float> logits = Logits(in, r);
    const LmHeadTileStat all = Tree(logits, 0, width);
    const float shifted = logits[in.tokens[r]] - all.max;
    out.push_back(BitsOf(shifted - LogF32(all.sum)));
  }
  return out;
}

std::vector<uint32_t> BitsOfAll(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float x : values) bits.push_back(BitsOf(x));
  return bits;
}

std::vector<uint32_t> LogprobBits(const Inputs& in, int threads) {
  std::vector<float> out(static_cast<size_t>(in.rows));
  LmHeadParams p;
  p.rows = in.rows, p.hidden_size = in.hidden_size, p.vocab = in.vocab;
  p.hidden = in.hidden.data(), p.weight = in.weight.data(), p.tokens = in.tokens.data();
  p.logprob = out.data(), p.threads = threads;
  EXPECT_TRUE(SelectedLogprob(p).ok());
  return BitsOfAll(out);
}

// As `ranks` ranks would: each its tiles, all tiles gathered, then merged.
std::vector<uint32_t> ShardedLogprobBits(const Inputs& in, const std::vector<int64_t>& cuts) {
  const int64_t tiles = LmHeadTiles(in.vocab);
  std::vector<LmHeadTileStat> stats(static_cast<size_t>(in.rows * tiles));
  std::vector<float> selected(static_cast<size_t>(in.rows), 1e30f);
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    LmHeadShardParams p;
    p.rows = in.rows, p.hidden_size = in.hidden_size, p.vocab = in.vocab;
    p.vocab_begin = cuts[i], p.shard_vocab = cuts[i + 1] - cuts[i];
    p.hidden = in.hidden.data(), p.tokens = in.tokens.data();
    p.shard_weight = in.weight.data() + cuts[i] * in.hidden_size;
    p.tiles = stats.data() + cuts[i] / kLmHeadTile, p.tiles_row_stride = tiles;
    p.selected_logit = selected.data();
    EXPECT_TRUE(LmHeadShard(p).ok());
  }
  std::vector<float> out(static_cast<size_t>(in.rows));
  LmHeadMergeParams p;
  p.rows = in.rows, p.vocab = in.vocab, p.tiles = stats.data();
  p.selected_logit = selected.data(), p.logprob = out.data();
  EXPECT_TRUE(LmHeadMerge(p).ok());
  return BitsOfAll(out);
}

TEST(LmHead, EqualsTheSpecificationForOddVocabularies) {
  std::mt19937 rng(kSeed);
  for (const int64_t vocab : {1, 64, 127, 128, 129, 300, 640, 1500, 2100}) {
    const Inputs in = RandomInputs(rng, 1 + static_cast<int64_t>(rng() % 5), 33, vocab);
    const std::vector<uint32_t> want = Reference(in);
    ForEachSimdTarget([&](const char* target) {
      EXPECT_EQ(LogprobBits(in, 1), want) << target << " V=" << vocab;
      EXPECT_EQ(LogprobBits(in, 3), want) << target << " V=" << vocab;
    });
  }
}

TEST(LmHead, ShardsAtTileBoundariesGiveTheSameBytes) {
  std::mt19937 rng(kSeed + 1);
  const Inputs in = RandomInputs(rng, 130, 24, 1500);
  const std::vector<uint32_t> want = LogprobBits(in, 2);
  EXPECT_EQ(ShardedLogprobBits(in, {0, 1500}), want);
  EXPECT_EQ(ShardedLogprobBits(in, {0, 768, 1500}), want);
  EXPECT_EQ(ShardedLogprobBits(in, {0, 128, 256, 1024, 1408, 1500}), want);
}

TEST(LmHead, NaNAnywhereAndATileOfMinusInfinityGiveTheCanonicalNaN) {
  std::mt19937 rng(kSeed + 2);
  Inputs in = RandomInputs(rng, 1, 1, 300);
  in.hidden = {Bf16::Store(1.0f)};
  const Inputs clean = in;
  in.weight[299] = 0xFFC1;
  EXPECT_EQ(LogprobBits(in, 1)[0], kF32CanonicalNan);
  in = clean;
  for (int v = 128; v < 256; ++v) in.weight[v] = 0xFF80;
  EXPECT_EQ(LogprobBits(in, 1)[0], kF32CanonicalNan);
  in.weight[200] = Bf16::Store(0.5f);  // one finite logit is enough
  in.tokens[0] = 200;
  EXPECT_EQ(LogprobBits(in, 1), Reference(in));
  in.tokens[0] = 201;
  EXPECT_EQ(LogprobBits(in, 1)[0], BitsOf(-std::numeric_limits<float>::infinity()));
}

TEST(LmHead, RefusesACutInsideATileAndATokenOutOfRange) {
  std::mt19937 rng(kSeed + 3);
  Inputs in = RandomInputs(rng, 1, 4, 300);
  std::vector<LmHeadTileStat> stats(3);
  float out = 0;
  LmHeadShardParams p;
  p.rows = 1, p.hidden_size = 4, p.vocab = 300, p.vocab_begin = 0, p.shard_vocab = 100;
  p.hidden = in.hidden.data(), p.shard_weight = in.weight.data(), p.tokens = in.tokens.data();
  p.tiles = stats.data(), p.selected_logit = &out;
  EXPECT_EQ(LmHeadShard(p).message(),
            "lm_head: expected a shard cut at multiples of 128 within V=300, got 100 rows from 0");
  p.shard_vocab = 128;
  EXPECT_TRUE(LmHeadShard(p).ok());
  in.tokens[0] = 300;
  EXPECT_EQ(LmHeadShard(p).message(), "lm_head: expected tokens in [0, V=300), got 300 at row 0");
}

}  // namespace
}  // namespace lockstep::kernels
