#include "kernels/gdn.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/exact_fma.h"
#include "kernels/exact_math.h"
#include "kernels/float_formats.h"
#include "kernels/gdn_inputs_for_test.h"
#include "kernels/simd_targets_for_test.h"

namespace lockstep::kernels {
namespace {

using Floats = std::vector<float>;

bool SameBytes(const Floats& a, const Floats& b) {
  return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The specification read aloud, one scalar at a time, for one value head.
struct Plain {
  size_t t, k_dim, v_dim;
  std::vector<Floats> q, k, v;  // per token, normalised and scaled
  Floats g, beta;
  std::vector<Floats> s;  // [K][V]
  std::vector<Floats> o;

  Plain(const GdnCase& c, size_t head)
      : t(c.tokens), k_dim(c.key_dim), v_dim(c.value_dim), s(c.key_dim, Floats(c.value_dim)) {
    const size_t key_head = head * c.key_heads / c.value_heads;
    const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(k_dim)));
    for (size_t i = 0; i < t; ++i) {
      const auto row = [&](const Floats& x, size_t heads, size_t at, size_t dim) {
        const auto begin = x.begin() + (i * heads + at) * dim;
        return Floats(begin, begin + dim);
      };
      q.push_back(Normalised(row(c.q, c.key_heads, key_head, k_dim)));
      for (float& x : q.back()) x *= scale;
      k.push_back(Normalised(row(c.k, c.key_heads, key_head, k_dim)));
      v.push_back(row(c.v, c.value_heads, head, v_dim));
      g.push_back(c.g[i * c.value_heads + head]);
      beta.push_back(c.beta[i * c.value_heads + head]);
    }
    for (size_t r = 0; r < k_dim; ++r) {
      for (size_t j = 0; j < v_dim; ++j) s[r][j] = c.s0[(head * k_dim + r) * v_dim + j];
    }
  }

  static Floats Normalised(Floats x) {
    float sum = 0;
    for (float e : x) sum = ExactFma(e, e, sum);
    const float inverse = 1.0f / std::sqrt(sum + 1e-6f);
    for (float& e : x) e *= inverse;
    return x;
  }

  static float Dot(const Floats& a, const Floats& b) {
    float sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum = ExactFma(a[i], b[i], sum);
    return sum;
  }

  float Column(const Floats& a, const std::vector<Floats>& m, size_t j, size_t terms) const {
    float sum = 0;
    for (size_t r = 0; r < terms; ++r) sum = ExactFma(a[r], m[r][j], sum);
    return sum;
  }

  void Recurrent() {
    for (size_t i = 0; i < t; ++i) {
      o.emplace_back(v_dim);
      for (size_t j = 0; j < v_dim; ++j) {
        for (size_t r = 0; r < k_dim; ++r) s[r][j] = ExpF32(g[i]) * s[r][j];
        const float d = beta[i] * (v[i][j] - Column(k[i], s, j, k_dim));
        for (size_t r = 0; r < k_dim; ++r) s[r][j] = ExactFma(k[i][r], d, s[r][j]);
        o[i][j] = Column(q[i], s, j, k_dim);
      }
    }
  }

  void Chunked() {
    for (size_t first = 0; first < t; first += 64) Chunk(first, std::min<size_t>(64, t - first));
  }

  void Chunk(size_t first, size_t n) {
    Floats cumulative(g.begin() + first, g.begin() + first + n);
    for (size_t i = 1; i < n; ++i) cumulative[i] = cumulative[i - 1] + cumulative[i];
    const auto decay = [&](size_t i, size_t j) { return ExpF32(cumulative[i] - cumulative[j]); };
    std::vector<Floats> a(n, Floats(n)), inverse(n, Floats(n)), u(n, Floats(v_dim)),
        w(n, Floats(k_dim)), p(n, Floats(n)), corrected(n, Floats(v_dim));
    std::vector<Floats> beta_v = u, beta_k = w;
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < i; ++j) {
        a[i][j] = (beta[first + i] * Dot(k[first + i], k[first + j])) * decay(i, j);
      }
      for (size_t j = 0; j < i; ++j) inverse[i][j] = -Column(a[i], inverse, j, i);
      inverse[i][i] = 1;
      for (size_t j = 0; j < v_dim; ++j) beta_v[i][j] = beta[first + i] * v[first + i][j];
      const float grown = beta[first + i] * ExpF32(cumulative[i]);
      for (size_t r = 0; r < k_dim; ++r) beta_k[i][r] = grown * k[first + i][r];
    }
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < v_dim; ++j) u[i][j] = Column(inverse[i], beta_v, j, i + 1);
      for (size_t r = 0; r < k_dim; ++r) w[i][r] = Column(inverse[i], beta_k, r, i + 1);
      for (size_t j = 0; j < v_dim; ++j) corrected[i][j] = u[i][j] - Column(w[i], s, j, k_dim);
    }
    for (size_t i = 0; i < n; ++i) {
      Floats grown_q = q[first + i];
      for (float& x : grown_q) x *= ExpF32(cumulative[i]);
      for (size_t j = 0; j <= i; ++j) p[i][j] = Dot(q[first + i], k[first + j]) * decay(i, j);
      o.emplace_back(v_dim);
      for (size_t j = 0; j < v_dim; ++j) {
        o.back()[j] = Column(grown_q, s, j, k_dim) + Column(p[i], corrected, j, i + 1);
      }
    }
    for (size_t r = 0; r < k_dim; ++r) {
      Floats keys(n);
      for (size_t i = 0; i < n; ++i) keys[i] = k[first + i][r] * decay(n - 1, i);
      for (size_t j = 0; j < v_dim; ++j) {
        s[r][j] = ExpF32(cumulative[n - 1]) * s[r][j] + Column(keys, corrected, j, n);
      }
    }
  }
};

TEST(GdnTest, BothProgramsEqualThePlainReadingOnEveryTargetAndThreadCount) {
  struct Shape {
    int64_t t, hk, hv, k, v;
  };
  for (const Shape& shape : {Shape{1, 1, 1, 1, 1}, Shape{63, 1, 2, 8, 24}, Shape{64, 2, 3, 17, 5},
                             Shape{65, 1, 1, 33, 16}, Shape{200, 2, 4, 32, 32}}) {
    for (GdnProgram program : {GdnProgram::kRecurrent, GdnProgram::kChunk64}) {
      GdnCase c(shape.t, shape.hk, shape.hv, shape.k, shape.v, 17 + shape.t);
      Floats want_o(c.o.size());
      Floats want_state;
      for (int64_t head = 0; head < shape.hv; ++head) {
        Plain plain(c, head);
        program == GdnProgram::kRecurrent ? plain.Recurrent() : plain.Chunked();
        for (int64_t i = 0; i < shape.t; ++i) {
          std::copy(plain.o[i].begin(), plain.o[i].end(),
                    want_o.begin() + (i * shape.hv + head) * shape.v);
        }
        for (const Floats& row : plain.s) {
          want_state.insert(want_state.end(), row.begin(), row.end());
        }
      }
      ForEachSimdTarget([&](const char* target) {
        for (int threads : {1, 3}) {
          GdnParams p = c.Params(program);
          p.threads = threads;
          ASSERT_TRUE(Gdn(p).ok());
          EXPECT_TRUE(SameBytes(c.o, want_o)) << target << " T=" << shape.t;
          EXPECT_TRUE(SameBytes(c.state, want_state)) << target << " T=" << shape.t;
        }
      });
    }
  }
}

TEST(GdnTest, ContinuingFromAStateOnTheGridGivesTheUnsplitBytes) {
  for (GdnProgram program : {GdnProgram::kRecurrent, GdnProgram::kChunk64}) {
    GdnCase whole(190, 1, 2, 16, 16, 3);
    ASSERT_TRUE(Gdn(whole.Params(program)).ok());
    GdnCase parts(190, 1, 2, 16, 16, 3);
    GdnParams p = parts.Params(program);
    p.tokens = 128;
    ASSERT_TRUE(Gdn(p).ok());
    p.tokens = 62;
    p.document_offset = 128;
    p.q = parts.q.data() + 128 * 16, p.k = parts.k.data() + 128 * 16;
    p.v = parts.v.data() + 128 * 32, p.o = parts.o.data() + 128 * 32;
    p.g = parts.g.data() + 128 * 2, p.beta = parts.beta.data() + 128 * 2;
    p.s0 = p.state;
    ASSERT_TRUE(Gdn(p).ok());
    EXPECT_TRUE(SameBytes(parts.o, whole.o));
    EXPECT_TRUE(SameBytes(parts.state, whole.state));
  }
}

TEST(GdnTest, ALaterTokenNeverChangesAnEarlierOutputNotEvenByNan) {
  for (GdnProgram program : {GdnProgram::kRecurrent, GdnProgram::kChunk64}) {
    GdnCase clean(100, 1, 1, 16, 16, 5);
    GdnCase late(100, 1, 1, 16, 16, 5);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (size_t c = 0; c < 16; ++c) {
      late.q[70 * 16 + c] = late.k[70 * 16 + c] = late.v[70 * 16 + c] = -nan;
    }
    late.g[70] = -std::numeric_limits<float>::infinity();
    ASSERT_TRUE(Gdn(clean.Params(program)).ok());
    ASSERT_TRUE(Gdn(late.Params(program)).ok());
    EXPECT_EQ(memcmp(clean.o.data(), late.o.data(), 70 * 16 * sizeof(float)), 0);
    for (size_t i = 70 * 16; i < late.o.size(); ++i) {
      ASSERT_EQ(BitsOf(late.o[i]), kF32CanonicalNan);
    }
    for (float x : late.state) ASSERT_EQ(BitsOf(x), kF32CanonicalNan);
  }
}

TEST(GdnTest, Bf16InputsAreWidenedAndBf16OutputRoundsOnce) {
  GdnCase c(70, 1, 2, 16, 16, 6);
  std::vector<uint16_t> q, k, v;
  for (const auto& [from, to] : {std::pair(&c.q, &q), std::pair(&c.k, &k), std::pair(&c.v, &v)}) {
    for (float& x : *from) {
      to->push_back(Bf16::Store(x));
      x = Bf16::Load(to->back());
    }
  }
  ASSERT_TRUE(Gdn(c.Params(GdnProgram::kChunk64)).ok());
  std::vector<uint16_t> o(c.o.size());
  Floats state(c.state.size());
  GdnParams p = c.Params(GdnProgram::kChunk64);
  p.input_type = p.out_type = FloatType::kBf16;
  p.q = q.data(), p.k = k.data(), p.v = v.data(), p.o = o.data(), p.state = state.data();
  ASSERT_TRUE(Gdn(p).ok());
  EXPECT_TRUE(SameBytes(state, c.state));
  for (size_t i = 0; i < o.size(); ++i) ASSERT_EQ(o[i], Bf16::Store(c.o[i]));
}

TEST(GdnTest, NoStartStateIsAStateOfZeros) {
  GdnCase c(65, 1, 1, 8, 8, 8);
  std::fill(c.s0.begin(), c.s0.end(), 0.0f);
  ASSERT_TRUE(Gdn(c.Params(GdnProgram::kChunk64)).ok());
  const Floats o = c.o;
  GdnParams p = c.Params(GdnProgram::kChunk64);
  p.s0 = nullptr;
  ASSERT_TRUE(Gdn(p).ok());
  EXPECT_TRUE(SameBytes(c.o, o));
}

TEST(GdnTest, WhatTheProgramsCannotDoIsRefusedAndNothingWritten) {
  GdnCase c(64, 1, 1, 8, 8, 9);
  const auto refused = [&](auto change) {
    GdnParams p = c.Params(GdnProgram::kChunk64);
    change(p);
    return Gdn(p).code() == absl::StatusCode::kInvalidArgument && c.o[0] == -7.0f &&
           c.state[0] == -7.0f;
  };
  EXPECT_TRUE(refused([](GdnParams& p) { p.batch = 2; }));
  EXPECT_TRUE(refused([](GdnParams& p) { p.tokens = 0; }));
  EXPECT_TRUE(refused([](GdnParams& p) { p.key_heads = 0; }));
  EXPECT_TRUE(refused([](GdnParams& p) { p.key_dim = kGdnMaxHeadDim + 1; }));
  EXPECT_TRUE(refused([](GdnParams& p) { p.state_type = FloatType::kBf16; }));
  EXPECT_TRUE(refused([](GdnParams& p) { p.input_type = FloatType::kF16; }));
  EXPECT_TRUE(refused([](GdnParams& p) { p.document_offset = 32; }));
  EXPECT_TRUE(refused([](GdnParams& p) { p.document_offset = -64; }));
  EXPECT_TRUE(refused([](GdnParams& p) { p.beta = nullptr; }));
}

}  // namespace
}  // namespace lockstep::kernels
