#include "kernels/router_topk.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/exact_math.h"
#include "kernels/float_formats.h"

namespace lockstep::kernels {
namespace {

constexpr uint32_t kSeed = 20261208;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Routed {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

Routed Route(RouterTopkParams p, const std::vector<float>& logits) {
  p.rows = static_cast<int64_t>(logits.size()) / p.experts;
  Routed out{std::vector<int32_t>(static_cast<size_t>(p.rows * p.topk)),
             std::vector<float>(static_cast<size_t>(p.rows * p.topk))};
  p.logits = logits.data(), p.ids = out.ids.data(), p.weights = out.weights.data();
  EXPECT_TRUE(RouterTopk(p).ok());
  return out;
}

RouterTopkParams ParamsOf(RouterScore score, int64_t experts, int64_t topk) {
  RouterTopkParams p;
  p.score = score, p.experts = experts, p.topk = topk;
  return p;
}

// The best left is taken k times: no sort, so no order but the specification's.
void ExpectSpecification(const RouterTopkParams& p, const std::vector<float>& logits) {
  const Routed got = Route(p, logits);
  for (size_t r = 0; r < logits.size() / p.experts; ++r) {
    const float* l = &logits[r * p.experts];
    std::vector<float> score;
    float max = l[0], total = 0.0f;
    for (int64_t i = 1; i < p.experts; ++i) max = std::fmax(max, l[i]);
    for (int64_t i = 0; i < p.experts; ++i) {
      const float e = p.score == RouterScore::kSoftmax ? ExpF32(l[i] - max) : ExpF32(-l[i]);
      total += e;
      score.push_back(p.score == RouterScore::kSoftmax ? e : 1.0f / (1.0f + e));
    }
    if (p.score == RouterScore::kSoftmax) {
      for (float& s : score) s /= total;
    }
    std::vector<bool> taken(score.size());
    std::vector<float> weights;
    float sum = 0.0f;
    for (int64_t k = 0; k < p.topk; ++k) {
      int64_t best = -1;
      for (int64_t i = 0; i < p.experts; ++i) {
        const auto choice = [&](int64_t e) {
          return p.bias != nullptr ? score[e] + p.bias[e] : score[e];
        };
        if (!taken[i] && (best < 0 || choice(i) > choice(best))) best = i;
      }
      taken[best] = true;
      EXPECT_EQ(got.ids[r * p.topk + k], best);
      weights.push_back(score[best]);
      sum += score[best];
    }
    if (p.score == RouterScore::kSigmoid) sum += 1e-20f;
    for (int64_t k = 0; k < p.topk; ++k) {
      const float w = p.renormalise ? weights[k] / sum : weights[k];
      EXPECT_EQ(BitsOf(got.weights[r * p.topk + k]), BitsOf(w * p.scale));
    }
  }
}

TEST(RouterTopk, EqualsTheSpecificationWithManyTies) {
  std::mt19937 rng(kSeed);
  for (int i = 0; i < 200; ++i) {
    RouterTopkParams p = ParamsOf(i % 2 == 0 ? RouterScore::kSoftmax : RouterScore::kSigmoid,
                                  1 + static_cast<int64_t>(rng() % 64), 1);
    p.topk = 1 + static_cast<int64_t>(rng() % p.experts);
    p.renormalise = i % 3 != 0;
    p.scale = i % 5 == 0 ? 1.0f : 2.5f;
    p.threads = 1 + i % 3;
    std::vector<float> bias(static_cast<size_t>(p.experts));
    for (float& b : bias) b = static_cast<float>(rng() % 3) * 0.125f;
    if (i % 4 < 2) p.bias = bias.data();
    std::vector<float> logits(static_cast<size_t>(7 * p.experts));
    for (float& l : logits) l = static_cast<float>(static_cast<int>(rng() % 9) - 4) * 0.5f;
    ExpectSpecification(p, logits);
  }
}

TEST(RouterTopk, OfEqualsTheLowestIdComesFirst) {
  const RouterTopkParams p = ParamsOf(RouterScore::kSigmoid, 6, 4);
  const Routed out = Route(p, {0.0f, 1.0f, -0.0f, 1.0f, 0.0f, 1.0f});
  EXPECT_EQ(out.ids, (std::vector<int32_t>{1, 3, 5, 0}));
}

TEST(RouterTopk, TheBiasChoosesButDoesNotWeigh) {
  RouterTopkParams p = ParamsOf(RouterScore::kSigmoid, 3, 1);
  const std::vector<float> bias = {0.0f, 10.0f, 0.0f};
  p.bias = bias.data();
  const Routed out = Route(p, {2.0f, -2.0f, 1.0f});
  EXPECT_EQ(out.ids[0], 1);
  EXPECT_EQ(out.weights[0], 1.0f / (1.0f + ExpF32(2.0f)));
}

TEST(RouterTopk, NaNComesLastAndItsWeightIsCanonical) {
  const Routed some = Route(ParamsOf(RouterScore::kSigmoid, 4, 4), {kNan, -kInf, -kNan, 3.0f});
  EXPECT_EQ(some.ids, (std::vector<int32_t>{3, 1, 0, 2}));
  EXPECT_EQ(some.weights[1], 0.0f);
  EXPECT_EQ(BitsOf(some.weights[2]), kF32CanonicalNan);
  EXPECT_EQ(BitsOf(some.weights[3]), kF32CanonicalNan);
  const Routed all = Route(ParamsOf(RouterScore::kSoftmax, 4, 2), {1.0f, 2.0f, kNan, 3.0f});
  EXPECT_EQ(all.ids, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(BitsOf(all.weights[0]), kF32CanonicalNan);
}

TEST(RouterTopk, RefusesATopkBeyondTheExperts) {
  const float logits[2] = {};
  int32_t ids[3];
  float weights[3];
  RouterTopkParams p = ParamsOf(RouterScore::kSoftmax, 2, 3);
  p.rows = 1, p.logits = logits, p.ids = ids, p.weights = weights;
  EXPECT_EQ(RouterTopk(p).message(),
            "router: expected logits [T,E] with T and E of at least 1 and a top-k from 1 to E, got "
            "T=1 E=2 k=3");
  p.topk = 2, p.scale = kInf;
  EXPECT_FALSE(RouterTopk(p).ok());
}

}  // namespace
}  // namespace lockstep::kernels
