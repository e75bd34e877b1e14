#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/exact_math.h"
#include "kernels/float_formats.h"
#include "kernels/simd_targets_for_test.h"

namespace lockstep::kernels {
namespace {

constexpr uint32_t kSeed = 20261207;
using Halves = std::vector<uint16_t>;

struct Shape {
  int64_t queries, keys, query_heads, kv_heads, head_dim, value_dim;
};

template <class Format>
Halves Random(std::mt19937& rng, int64_t count) {
  std::normal_distribution<float> normal;
  Halves out(static_cast<size_t>(count));
  for (uint16_t& bits : out) bits = Format::Store(normal(rng));
  return out;
}

struct Inputs {
  Shape s;
  Halves q, k, v;
};

template <class Format>
Inputs RandomInputs(std::mt19937& rng, const Shape& s) {
  return {s, Random<Format>(rng, s.queries * s.query_heads * s.head_dim),
          Random<Format>(rng, s.keys * s.kv_heads * s.head_dim),
          Random<Format>(rng, s.keys * s.kv_heads * s.value_dim)};
}

template <class Format>
Halves Reference(const Inputs& in) {
  const Shape& s = in.s;
  Halves out;
  for (int64_t t = 0; t < s.queries; ++t) {
    for (int64_t h = 0; h < s.query_heads; ++h) {
      const int64_t g = h / (s.query_heads / s.kv_heads);
      const int64_t seen = s.keys - s.queries + t + 1;
      std::vector<float> weight;
      float max = -INFINITY;
      for (int64_t j = 0; j < seen; ++j) {
        float dot = 0.0f;
        for (int64_t d = 0; d < s.head_dim; ++d) {
          dot = std::fma(Format::Load(in.q[(t * s.query_heads + h) * s.head_dim + d]),
                         Format::Load(in.k[(j * s.kv_heads + g) * s.head_dim + d]), dot);
        }
        weight.push_back(AttentionScale(s.head_dim) * dot);
        max = std::fmax(max, weight.back());
      }
      float sum = 0.0f;
      for (float& w : weight) {
        w = ExpF32(w - max);
        sum += w;
      }
      for (int64_t d = 0; d < s.value_dim; ++d) {
        float value = 0.0f;
        for (int64_t j = 0; j < seen; ++j) {
          value = std::fma(weight[j], Format::Load(in.v[(j * s.kv_heads + g) * s.value_dim + d]),
                           value);
        }
        out.push_back(Format::Store(value / sum));
      }
    }
  }
  return out;
}

AttentionParams ParamsOf(const Inputs& in, FloatType type, uint16_t* out) {
  AttentionParams p;
  p.type = type;
  p.queries = in.s.queries, p.keys = in.s.keys;
  p.query_heads = in.s.query_heads, p.kv_heads = in.s.kv_heads;
  p.head_dim = in.s.head_dim, p.value_dim = in.s.value_dim;
  p.scale = AttentionScale(in.s.head_dim);
  p.q = in.q.data(), p.k = in.k.data(), p.v = in.v.data(), p.out = out;
  return p;
}

template <class Format>
void ExpectSpecification(const Inputs& in) {
  const Halves want = Reference<Format>(in);
  ForEachSimdTarget([&](const char* target) {
    for (const int threads : {1, 3}) {
      Halves out(want.size(), 0xBEEF);
      AttentionParams p = ParamsOf(in, Format::kType, out.data());
      p.threads = threads;
      ASSERT_TRUE(SoftmaxAttention(p).ok());
      EXPECT_EQ(out, want) << target << " T=" << in.s.queries << " S=" << in.s.keys;
    }
  });
}

TEST(Attention, EqualsTheSpecificationForGroupedHeadsAndOddLengths) {
  std::mt19937 rng(kSeed);
  const Shape shapes[] = {{1, 1, 1, 1, 1, 1},     {1, 70, 4, 2, 32, 32}, {33, 33, 4, 4, 16, 24},
                          {65, 100, 6, 2, 20, 7}, {5, 300, 8, 1, 8, 64}, {40, 41, 2, 1, 64, 33}};
  for (const Shape& shape : shapes) {
    ExpectSpecification<Bf16>(RandomInputs<Bf16>(rng, shape));
    ExpectSpecification<F16>(RandomInputs<F16>(rng, shape));
  }
}

TEST(Attention, WholeChunkedAndOneByOneGiveTheSameBytes) {
  std::mt19937 rng(kSeed + 1);
  const Inputs in = RandomInputs<Bf16>(rng, {70, 70, 4, 2, 32, 32});
  Halves whole(70 * 4 * 32);
  ASSERT_TRUE(SoftmaxAttention(ParamsOf(in, FloatType::kBf16, whole.data())).ok());
  for (const int64_t chunk : {1, 17, 32}) {
    Halves parts(whole.size());
    for (int64_t t = 0; t < 70; t += chunk) {
      AttentionParams p = ParamsOf(in, FloatType::kBf16, &parts[t * 4 * 32]);
      p.queries = std::min<int64_t>(chunk, 70 - t);
      p.keys = t + p.queries;
      p.q = &in.q[t * 4 * 32];
      ASSERT_TRUE(SoftmaxAttention(p).ok());
    }
    EXPECT_EQ(parts, whole) << "chunk " << chunk;
  }
}

TEST(Attention, AKeyThatIsNotSeenChangesNothingEvenIfItIsNaN) {
  std::mt19937 rng(kSeed + 2);
  Inputs in = RandomInputs<Bf16>(rng, {40, 40, 2, 1, 16, 16});
  const Halves clean = Reference<Bf16>(in);
  for (int64_t d = 0; d < 16; ++d) in.v[39 * 16 + d] = in.k[39 * 16 + d] = 0xFFC1;
  Halves out(clean.size());
  ASSERT_TRUE(SoftmaxAttention(ParamsOf(in, FloatType::kBf16, out.data())).ok());
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out[i], i < 39 * 2 * 16 ? clean[i] : kBf16CanonicalNan) << i;
  }
}

TEST(Attention, RefusesWhatItDoesNotDefine) {
  std::mt19937 rng(kSeed + 3);
  const Inputs in = RandomInputs<Bf16>(rng, {2, 3, 2, 1, 4, 4});
  Halves out(2 * 2 * 4);
  const AttentionParams good = ParamsOf(in, FloatType::kBf16, out.data());
  ASSERT_TRUE(SoftmaxAttention(good).ok());
  AttentionParams p = good;
  p.keys = 1;
  EXPECT_FALSE(SoftmaxAttention(p).ok());
  p = good, p.query_heads = 3, p.kv_heads = 2;
  EXPECT_EQ(SoftmaxAttention(p).message(),
            "attention: expected query heads in a multiple of the kv heads, got 3 and 2");
  p = good, p.scale = 0;
  EXPECT_FALSE(SoftmaxAttention(p).ok());
  p = good, p.type = FloatType::kF32;
  EXPECT_FALSE(SoftmaxAttention(p).ok());
  p = good, p.k_row_stride = 3;
  EXPECT_FALSE(SoftmaxAttention(p).ok());
}

}  // namespace
}  // namespace lockstep::kernels
