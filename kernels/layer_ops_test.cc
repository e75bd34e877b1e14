#include "kernels/layer_ops.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/layer_steps.h"

namespace lockstep::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<uint16_t> RandomBf16(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint16_t> values(count);
  for (uint16_t& v : values) {
    v = Bf16::Store(4.0f * (static_cast<float>(random() >> 40) * 0x1p-24f - 0.5f));
  }
  return values;
}

TEST(LayerOps, SoftplusIsNearItsTrueValueAndPinnedAtItsEnds) {
  for (float x = -85.0f; x < 30.0f; x += 0.03125f) {
    const double want = x > 20.0f ? x : std::log1p(std::exp(static_cast<double>(x)));
    EXPECT_NEAR(SoftplusStep(x), want, 4e-7 * want) << x;
  }
  EXPECT_EQ(SoftplusStep(20.5f), 20.5f);
  EXPECT_EQ(SoftplusStep(kInfinity), kInfinity);
  EXPECT_EQ(BitsOf(SoftplusStep(-kInfinity)), 0u);
  EXPECT_EQ(BitsOf(GdnDecayStep(-kInfinity, 0, 0)), 0x80000000u);
  EXPECT_EQ(BitsOf(GdnDecayStep(NAN, 0, 0)), kF32CanonicalNan);
}

TEST(LayerOps, GatesFollowTheirFormulaForBothVectorTypes) {
  constexpr int64_t kTokens = 5, kHeads = 3;
  const auto a = RandomBf16(kTokens * kHeads, 1), b = RandomBf16(kTokens * kHeads, 2);
  const auto a_log = RandomBf16(kHeads, 3), dt_bias = RandomBf16(kHeads, 4);
  std::vector<float> a_log_f32, dt_bias_f32;
  for (const uint16_t v : a_log) a_log_f32.push_back(Bf16::Load(v));
  for (const uint16_t v : dt_bias) dt_bias_f32.push_back(Bf16::Load(v));
  std::vector<float> g(a.size()), beta(a.size()), g2(a.size()), beta2(a.size());
  GdnGatesParams p;
  p.tokens = kTokens, p.value_heads = kHeads;
  p.a = a.data(), p.b = b.data(), p.a_log = a_log.data(), p.dt_bias = dt_bias.data();
  p.g = g.data(), p.beta = beta.data();
  ASSERT_TRUE(GdnGates(p).ok());
  p.vector_type = FloatType::kF32, p.a_log = a_log_f32.data(), p.dt_bias = dt_bias_f32.data();
  p.g = g2.data(), p.beta = beta2.data(), p.threads = 3;
  ASSERT_TRUE(GdnGates(p).ok());
  EXPECT_EQ(g, g2);
  EXPECT_EQ(beta, beta2);
  for (size_t i = 0; i < a.size(); ++i) {
    const size_t head = i % kHeads;
    const double x = static_cast<double>(Bf16::Load(a[i])) + dt_bias_f32[head];
    const double want = -std::exp(static_cast<double>(a_log_f32[head])) * std::log1p(std::exp(x));
    EXPECT_NEAR(g[i], want, 1e-6 * std::fabs(want));
    EXPECT_NEAR(beta[i], 1 / (1 + std::exp(-static_cast<double>(Bf16::Load(b[i])))), 1e-7);
  }
  p.vector_type = FloatType::kF16;
  EXPECT_EQ(GdnGates(p).code(), absl::StatusCode::kInvalidArgument);
}

TEST(LayerOps, SigmoidGateRoundsOnceAndTakesAGateARow) {
  const auto x = RandomBf16(12, 5), gate = RandomBf16(12, 6);
  std::vector<uint16_t> out(12), by_row(12);
  SigmoidGateParams p;
  p.rows = 3, p.columns = 4;
  p.x = x.data(), p.gate = gate.data(), p.out = out.data();
  ASSERT_TRUE(SigmoidGate(p).ok());
  p.gate_per_row = true, p.out = by_row.data(), p.threads = 2;
  ASSERT_TRUE(SigmoidGate(p).ok());
  for (size_t i = 0; i < 12; ++i) {
    const auto want = [&](uint16_t g) {
      return Bf16::Store(Bf16::Load(x[i]) * (1.0f / (1.0f + ExpF32(-Bf16::Load(g)))));
    };
    EXPECT_EQ(out[i], want(gate[i]));
    EXPECT_EQ(by_row[i], want(gate[i / 4]));
  }
}

TEST(LayerOps, GatedNormSumsByAdjacentPairsWithTheOddTailPassedUp) {
  const auto x = RandomBf16(5, 7), w = RandomBf16(5, 8), z = RandomBf16(5, 9);
  float q[5];
  for (size_t i = 0; i < 5; ++i) q[i] = Bf16::Load(x[i]) * Bf16::Load(x[i]);
  const float sum = ((q[0] + q[1]) + (q[2] + q[3])) + q[4];
  const float inv = 1.0f / std::sqrt(sum / 5.0f + 1e-6f);
  std::vector<uint16_t> out(5), from_f32(5);
  GatedRmsNormParams p;
  p.rows = 1, p.columns = 5;
  p.x = x.data(), p.weight = w.data(), p.gate = z.data(), p.out = out.data();
  ASSERT_TRUE(GatedRmsNorm(p).ok());
  for (size_t i = 0; i < 5; ++i) {
    const float g = Bf16::Load(z[i]);
    const float silu = g / (1.0f + ExpF32(-g));
    EXPECT_EQ(out[i], Bf16::Store(((Bf16::Load(x[i]) * inv) * Bf16::Load(w[i])) * silu));
  }
  std::vector<float> x_f32;
  for (const uint16_t v : x) x_f32.push_back(Bf16::Load(v));
  p.type = FloatType::kF32, p.x = x_f32.data(), p.out = from_f32.data();
  ASSERT_TRUE(GatedRmsNorm(p).ok());
  EXPECT_EQ(out, from_f32);
  p.eps = -1.0f;
  EXPECT_EQ(GatedRmsNorm(p).code(), absl::StatusCode::kInvalidArgument);
}

TEST(LayerOps, ConvolutionWithSiluSplitsAtEveryTokenWithItsTail) {
  constexpr int64_t kTokens = 9, kChannels = 5;
  const auto x = RandomBf16(kTokens * kChannels, 10), w = RandomBf16(4 * kChannels, 11);
  std::vector<uint16_t> whole(x.size()), tail(3 * kChannels);
  ShortConvParams p;
  p.tokens = kTokens, p.channels = kChannels;
  p.x = x.data(), p.weight = w.data(), p.out = whole.data(), p.tail = tail.data();
  ASSERT_TRUE(ShortConvSilu(p).ok());
  // Token 4 by hand: taps ascending from the oldest input.
  float acc = 0;
  for (size_t j = 0; j < 4; ++j) {
    acc = std::fma(Bf16::Load(w[2 * 4 + j]), Bf16::Load(x[(1 + j) * kChannels + 2]), acc);
  }
  EXPECT_EQ(whole[4 * kChannels + 2], Bf16::Store(SiluIeee(acc)));
  for (int64_t cut = 1; cut < kTokens; ++cut) {
    std::vector<uint16_t> parts(x.size()), carried(3 * kChannels);
    p.tokens = cut, p.x = x.data(), p.halo = nullptr;
    p.out = parts.data(), p.tail = carried.data();
    ASSERT_TRUE(ShortConvSilu(p).ok());
    p.tokens = kTokens - cut, p.x = x.data() + cut * kChannels, p.halo = carried.data();
    p.out = parts.data() + cut * kChannels;
    ASSERT_TRUE(ShortConvSilu(p).ok());
    EXPECT_EQ(parts, whole) << cut;
    EXPECT_EQ(carried, tail) << cut;
  }
}

TEST(LayerOps, CombineTakesOnlyTheExpertsOfItsRangeInSlotOrder) {
  const std::vector<int32_t> ids = {3, 0, 1, 2};
  const std::vector<float> weights = {0.7f, 0.3f, 0.6f, 0.4f};
  const auto outputs = RandomBf16(4 * 2, 12);
  std::vector<uint16_t> out(4);
  MoeCombineParams p;
  p.rows = 2, p.topk = 2, p.columns = 2;
  p.ids = ids.data(), p.weights = weights.data(), p.outputs = outputs.data(), p.out = out.data();
  p.first_expert = 0, p.end_expert = 4;
  ASSERT_TRUE(MoeCombine(p).ok());
  for (size_t i = 0; i < 2; ++i) {
    const float first = std::fma(0.7f, Bf16::Load(outputs[i]), 0.0f);
    EXPECT_EQ(out[i], Bf16::Store(std::fma(0.3f, Bf16::Load(outputs[2 + i]), first)));
  }
  p.first_expert = 3;
  ASSERT_TRUE(MoeCombine(p).ok());
  EXPECT_EQ(out[0], Bf16::Store(0.7f * Bf16::Load(outputs[0])));
  EXPECT_EQ(out[2], 0u);  // no expert of token 1 lies there
}

TEST(LayerOps, L2NormIsAnAscendingChain) {
  const auto x = RandomBf16(6, 13);
  std::vector<float> out(6);
  L2NormParams p;
  p.rows = 2, p.columns = 3, p.x = x.data(), p.out = out.data();
  ASSERT_TRUE(L2Norm(p).ok());
  float n = 0;
  for (size_t i = 3; i < 6; ++i) n = std::fma(Bf16::Load(x[i]), Bf16::Load(x[i]), n);
  EXPECT_EQ(out[4], Bf16::Load(x[4]) * (1.0f / std::sqrt(n + 1e-6f)));
}

TEST(LayerOps, EmbeddingAndResidualStoreCanonicallyAndRefuseAnUnknownToken) {
  const std::vector<uint16_t> weight = {0x7FFF, 0x3F80, 0x0001, 0x8000};
  std::vector<int64_t> tokens = {1, 0};
  std::vector<uint16_t> out(4);
  EmbeddingParams p;
  p.rows = 2, p.vocab = 2, p.columns = 2;
  p.tokens = tokens.data(), p.weight = weight.data(), p.out = out.data();
  ASSERT_TRUE(Embedding(p).ok());
  EXPECT_EQ(out, (std::vector<uint16_t>{0x0001, 0x8000, kBf16CanonicalNan, 0x3F80}));
  ResidualAddParams add;
  add.rows = 1, add.columns = 2;
  const std::vector<uint16_t> one = {0x3F80, 0x8000}, small = {0x3B80, 0x8000};
  add.residual = one.data(), add.x = small.data(), add.out = out.data();
  ASSERT_TRUE(ResidualAdd(add).ok());
  EXPECT_EQ(out[0], 0x3F80);  // 1 + 2^-8 is a tie, to even
  EXPECT_EQ(out[1], 0x8000);
  tokens[1] = 2;
  EXPECT_EQ(Embedding(p).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::kernels
