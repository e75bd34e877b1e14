// Matrix product, norm, head and adapters against byte vectors of an independent implementation.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/gate_table.h"
#include "kernels/gemm.h"
#include "kernels/lm_head.h"
#include "kernels/lora.h"
#include "kernels/rmsnorm.h"
#include "kernels/simd_targets_for_test.h"
#include "tests/golden/golden_file.h"

namespace lockstep::kernels {
namespace {

using Halves = std::vector<uint16_t>;

int64_t Dim(const GoldenFile& file, const std::string& name, size_t axis) {
  return static_cast<int64_t>(file.Shape(name).at(axis));
}

TEST(Golden, GemmGivesTheRecordedBytesOnEveryTarget) {
  for (const GoldenCase& c : GoldenCasesOf("gemm")) {
    const GoldenFile file(c.file);
    const Halves a = file.Values<uint16_t>("a");
    const Halves b = file.Values<uint16_t>("b");
    const Halves want = file.Values<uint16_t>("want_out");
    ASSERT_TRUE(c.program == kGemmChainId || c.program == kGemmTileId) << c.program;
    ForEachSimdTarget([&](const char* target) {
      Halves out(want.size());
      GemmParams p;
      p.program = c.program == kGemmTileId ? GemmProgram::kTile : GemmProgram::kChain;
      p.m = Dim(file, "a", 0), p.n = Dim(file, "b", 0), p.k = Dim(file, "a", 1);
      p.a = a.data(), p.b = b.data(), p.out = out.data();
      ASSERT_TRUE(Gemm(p).ok());
      EXPECT_EQ(out, want) << c.file << " " << target;
    });
  }
}

TEST(Golden, RmsNormGivesTheRecordedBytesOnEveryTarget) {
  for (const GoldenCase& c : GoldenCasesOf("rmsnorm")) {
    const GoldenFile file(c.file);
    ASSERT_EQ(c.program, kRmsNormId);
    const Halves x = file.Values<uint16_t>("x");
    const Halves residual = file.Has("residual") ? file.Values<uint16_t>("residual") : Halves();
    const Halves weight = file.Values<uint16_t>("weight");
    const Halves want = file.Values<uint16_t>("want_out");
    ForEachSimdTarget([&](const char* target) {
      for (const int64_t split : {0, 64}) {
        Halves out(want.size());
        RmsNormParams p;
        p.rows = Dim(file, "x", 0), p.columns = Dim(file, "x", 1);
        p.x = x.data(), p.weight = weight.data(), p.out = out.data();
        p.residual = residual.empty() ? nullptr : residual.data();
        p.zero_centered = c.options.count("zero-centered") != 0;
        p.eps = c.Option("eps", 1e-6f);
        p.split_columns = split;
        ASSERT_TRUE(RmsNorm(p).ok());
        EXPECT_EQ(out, want) << c.file << " " << target;
      }
    });
  }
}

TEST(Golden, LmHeadGivesTheRecordedBytesWholeAndSharded) {
  for (const GoldenCase& c : GoldenCasesOf("lm_head")) {
    const GoldenFile file(c.file);
    ASSERT_EQ(c.program, kLmHeadId);
    const Halves hidden = file.Values<uint16_t>("hidden");
    const Halves weight = file.Values<uint16_t>("weight");
    const std::vector<int64_t> tokens = file.Values<int64_t>("tokens");
    const std::vector<uint32_t> want = file.Values<uint32_t>("want_logprob");
    std::vector<float> out(want.size());
    const auto bits = [&] {
      std::vector<uint32_t> b(out.size());
      std::memcpy(b.data(), out.data(), 4 * out.size());
      return b;
    };
    LmHeadParams p;
    p.rows = Dim(file, "hidden", 0), p.hidden_size = Dim(file, "hidden", 1);
    p.vocab = Dim(file, "weight", 0);
    p.hidden = hidden.data(), p.weight = weight.data(), p.tokens = tokens.data();
    p.logprob = out.data();
    ASSERT_TRUE(SelectedLogprob(p).ok());
    EXPECT_EQ(bits(), want) << c.file;

    const int64_t tiles = LmHeadTiles(p.vocab);
    std::vector<LmHeadTileStat> stats(static_cast<size_t>(p.rows * tiles));
    std::vector<float> selected(static_cast<size_t>(p.rows));
    for (int64_t begin = 0; begin < p.vocab; begin += 256) {
      LmHeadShardParams shard;
      shard.rows = p.rows, shard.hidden_size = p.hidden_size, shard.vocab = p.vocab;
      shard.vocab_begin = begin, shard.shard_vocab = std::min<int64_t>(256, p.vocab - begin);
      shard.hidden = p.hidden, shard.shard_weight = weight.data() + begin * p.hidden_size;
      shard.tokens = p.tokens, shard.tiles = stats.data() + begin / kLmHeadTile;
      shard.tiles_row_stride = tiles, shard.selected_logit = selected.data();
      ASSERT_TRUE(LmHeadShard(shard).ok());
    }
    std::fill(out.begin(), out.end(), 0.0f);
    LmHeadMergeParams merge;
    merge.rows = p.rows, merge.vocab = p.vocab, merge.tiles = stats.data();
    merge.selected_logit = selected.data(), merge.logprob = out.data();
    ASSERT_TRUE(LmHeadMerge(merge).ok());
    EXPECT_EQ(bits(), want) << c.file << " sharded";
  }
}

TEST(Golden, LoraMlpGivesTheRecordedBytesAndPartials) {
  for (const GoldenCase& c : GoldenCasesOf("lora_mlp")) {
    const GoldenFile file(c.file);
    ASSERT_EQ(c.program, kLoraActiveId);
    const auto load = [&](const char* name) { return file.Values<uint16_t>(name); };
    const Halves x = load("x"), gate = load("gate"), up = load("up"), down = load("down");
    const Halves a_gate = load("a_gate"), b_gate = load("b_gate"), a_up = load("a_up"),
                 b_up = load("b_up"), a_down = load("a_down"), b_down = load("b_down");
    LoraMlpParams p;
    p.rows = Dim(file, "x", 0), p.hidden = Dim(file, "x", 1);
    p.intermediate = Dim(file, "gate", 0), p.rank = Dim(file, "a_gate", 0);
    p.tp = static_cast<int64_t>(c.Option("tp", 1)), p.scale = c.Option("scale", 1);
    p.x = x.data(), p.gate = gate.data(), p.up = up.data(), p.down = down.data();
    p.gate_adapter = {a_gate.data(), b_gate.data()};
    p.up_adapter = {a_up.data(), b_up.data()};
    p.down_adapter = {a_down.data(), b_down.data()};
    for (const bool table : {false, true}) {
      if (table) p.silu = *FindSiluTable(c.realisation, FloatType::kBf16);
      Halves out(x.size()), partials(static_cast<size_t>(p.tp) * x.size());
      p.out = out.data(), p.partials = partials.data();
      ASSERT_TRUE(LoraMlp(p).ok());
      EXPECT_EQ(out, load("want_out")) << c.file;
      EXPECT_EQ(partials, p.tp > 1 ? load("want_partials") : load("want_out")) << c.file;
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels
