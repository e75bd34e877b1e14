#ifndef LOCKSTEP_KERNELS_LORA_INPUTS_FOR_TEST_H_
#define LOCKSTEP_KERNELS_LORA_INPUTS_FOR_TEST_H_

// A random adapted MLP and its forward by the specification, one scalar operation at a time.
//
// Example:
//   std::mt19937 rng(1);
//   const MlpInputs in(rng, {.rows = 4, .hidden = 48, .intermediate = 64, .rank = 2});
//   const MlpForward want = ReferenceForward(in, /*tp=*/4);

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/exact_math.h"
#include "kernels/float_formats.h"
#include "kernels/lora.h"

namespace lockstep::kernels {

using Halves = std::vector<uint16_t>;

struct MlpShape {
  size_t rows, hidden, intermediate, rank;
};

struct MlpInputs {
  MlpInputs(std::mt19937& rng, const MlpShape& s) : shape(s) {
    x = Random(rng, s.rows * s.hidden, 1.0f);
    gate = Random(rng, s.intermediate * s.hidden, 0.2f);
    up = Random(rng, s.intermediate * s.hidden, 0.2f);
    down = Random(rng, s.hidden * s.intermediate, 0.2f);
    a_gate = Random(rng, s.rank * s.hidden, 0.2f);
    b_gate = Random(rng, s.intermediate * s.rank, 0.2f);
    a_up = Random(rng, s.rank * s.hidden, 0.2f);
    b_up = Random(rng, s.intermediate * s.rank, 0.2f);
    a_down = Random(rng, s.rank * s.intermediate, 0.2f);
    b_down = Random(rng, s.hidden * s.rank, 0.2f);
  }

  static Halves Random(std::mt19937& rng, size_t count, float deviation) {
    std::normal_distribution<float> normal(0.0f, deviation);
    Halves out(count);
    for (uint16_t& bits : out) bits = Bf16::Store(normal(rng));
    return out;
  }

  LoraMlpParams Params(size_t tp, uint16_t* out) const {
    LoraMlpParams p;
    p.rows = static_cast<int64_t>(shape.rows), p.hidden = static_cast<int64_t>(shape.hidden);
    p.intermediate = static_cast<int64_t>(shape.intermediate);
    p.rank = static_cast<int64_t>(shape.rank), p.tp = static_cast<int64_t>(tp);
    p.x = x.data(), p.gate = gate.data(), p.up = up.data(), p.down = down.data();
    p.gate_adapter = {a_gate.data(), b_gate.data()};
    p.up_adapter = {a_up.data(), b_up.data()};
    p.down_adapter = {a_down.data(), b_down.data()};
    p.scale = scale, p.out = out;
    return p;
  }

  MlpShape shape;
  float scale = 0.5f;
  Halves x, gate, up, down, a_gate, b_gate, a_up, b_up, a_down, b_down;
};

// A chain over `count` elements, each operand at its own stride.
inline float ReferenceChain(const uint16_t* a, size_t a_step, const uint16_t* b, size_t b_step,
                            size_t count) {
  float sum = 0.0f;
  for (size_t i = 0; i < count; ++i) {
    sum = std::fma(Bf16::Load(a[i * a_step]), Bf16::Load(b[i * b_step]), sum);
  }
  return sum;
}

// y[n] of one row; weight and a are given at the ordinal's columns.
inline uint16_t ReferenceProjection(const uint16_t* x, size_t inputs, const uint16_t* weight_row,
                                    const uint16_t* a, size_t a_stride, const uint16_t* b_row,
                                    size_t rank, float scale) {
  Halves a0(rank);
  for (size_t j = 0; j < rank; ++j) {
    a0[j] = Bf16::Store(ReferenceChain(x, 1, a + j * a_stride, 1, inputs));
  }
  const float b0 = Bf16::Load(Bf16::Store(ReferenceChain(x, 1, weight_row, 1, inputs)));
  const float scaled = scale * ReferenceChain(a0.data(), 1, b_row, 1, rank);
  return Bf16::Store(b0 + scaled);
}

// Adjacent pairs, odd tail passed up, rounded at every node.
inline uint16_t ReferenceBf16Fold(Halves nodes) {
  while (nodes.size() > 1) {
    Halves next;
    for (size_t i = 0; i + 1 < nodes.size(); i += 2) {
      next.push_back(Bf16::Store(Bf16::Load(nodes[i]) + Bf16::Load(nodes[i + 1])));
    }
    if (nodes.size() % 2 == 1) next.push_back(nodes.back());
    nodes = next;
  }
  return nodes[0];
}

struct MlpForward {
  Halves gate, up, activated;  // [rows, intermediate]
  Halves partials;             // [tp, rows, hidden]
  Halves out;                  // [rows, hidden]
};

inline MlpForward ReferenceForward(const MlpInputs& in, size_t tp) {
  const auto [rows, hidden, intermediate, rank] = in.shape;
  const size_t shard = intermediate / tp;
  MlpForward f;
  for (size_t t = 0; t < rows; ++t) {
    for (size_t i = 0; i < intermediate; ++i) {
      const uint16_t* x = &in.x[t * hidden];
      f.gate.push_back(ReferenceProjection(x, hidden, &in.gate[i * hidden], in.a_gate.data(),
                                           hidden, &in.b_gate[i * rank], rank, in.scale));
      f.up.push_back(ReferenceProjection(x, hidden, &in.up[i * hidden], in.a_up.data(), hidden,
                                         &in.b_up[i * rank], rank, in.scale));
      const float g = Bf16::Load(f.gate.back());
      const float silu = g / (1.0f + ExpF32(-g));
      f.activated.push_back(Bf16::Store(silu * Bf16::Load(f.up.back())));
    }
  }
  for (size_t o = 0; o < tp; ++o) {
    for (size_t t = 0; t < rows; ++t) {
      for (size_t h = 0; h < hidden; ++h) {
        f.partials.push_back(ReferenceProjection(&f.activated[t * intermediate + o * shard], shard,
                                                 &in.down[h * intermediate + o * shard],
                                                 &in.a_down[o * shard], intermediate,
                                                 &in.b_down[h * rank], rank, in.scale));
      }
    }
  }
  for (size_t cell = 0; cell < rows * hidden; ++cell) {
    Halves leaves;
    for (size_t o = 0; o < tp; ++o) leaves.push_back(f.partials[o * rows * hidden + cell]);
    f.out.push_back(ReferenceBf16Fold(leaves));
  }
  return f;
}

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_LORA_INPUTS_FOR_TEST_H_
