#ifndef LOCKSTEP_KERNELS_GDN_INPUTS_FOR_TEST_H_
#define LOCKSTEP_KERNELS_GDN_INPUTS_FOR_TEST_H_

// Random inputs of the gated delta net with realistic gates, and room for its outputs.
//
// Example:
//   GdnCase c(130, 1, 2, 16, 16, 7);
//   ASSERT_TRUE(Gdn(c.Params(GdnProgram::kChunk64)).ok());
//   use(c.o, c.state);

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/gdn.h"

namespace lockstep::kernels {

struct GdnCase {
  GdnCase(int64_t tokens, int64_t key_heads, int64_t value_heads, int64_t key_dim,
          int64_t value_dim, uint64_t seed)
      : tokens(tokens),
        key_heads(key_heads),
        value_heads(value_heads),
        key_dim(key_dim),
        value_dim(value_dim),
        q(static_cast<size_t>(tokens * key_heads * key_dim)),
        k(q.size()),
        v(static_cast<size_t>(tokens * value_heads * value_dim)),
        g(static_cast<size_t>(tokens * value_heads)),
        beta(g.size()),
        s0(static_cast<size_t>(value_heads * key_dim * value_dim)),
        o(v.size(), -7.0f),
        state(s0.size(), -7.0f) {
    std::mt19937_64 random(seed);
    // Uniform with the low mantissa bits of a float in use; libstdc++'s own distributions differ
    // between libraries.
    const auto uniform = [&] { return static_cast<float>(random() >> 40) * 0x1p-23f - 1.0f; };
    for (auto* values : {&q, &k, &v, &s0}) {
      for (float& x : *values) x = uniform();
    }
    for (float& x : g) x = -0.2f * (uniform() + 1.0f);
    for (float& x : beta) x = 0.5f * (uniform() + 1.0f);
  }

  GdnParams Params(GdnProgram program) {
    GdnParams p;
    p.program = program;
    p.tokens = tokens, p.key_heads = key_heads, p.value_heads = value_heads;
    p.key_dim = key_dim, p.value_dim = value_dim;
    p.q = q.data(), p.k = k.data(), p.v = v.data(), p.g = g.data(), p.beta = beta.data();
    p.s0 = s0.data(), p.o = o.data(), p.state = state.data();
    return p;
  }

  int64_t tokens, key_heads, value_heads, key_dim, value_dim;
  std::vector<float> q, k, v, g, beta, s0;
  std::vector<float> o, state;
};

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_GDN_INPUTS_FOR_TEST_H_
