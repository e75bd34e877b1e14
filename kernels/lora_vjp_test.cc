#include "kernels/lora_vjp.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/exact_math.h"
#include "kernels/float_formats.h"
#include "kernels/lora_inputs_for_test.h"
#include "kernels/simd_targets_for_test.h"

namespace lockstep::kernels {
namespace {

constexpr uint32_t kSeed = 20261204;

struct Gradients {
  explicit Gradients(const MlpShape& s)
      : dx(s.rows * s.hidden, 0xBEEF),
        da_gate(s.rank * s.hidden, 1e30f),
        db_gate(s.intermediate * s.rank, 1e30f),
        da_up(s.rank * s.hidden, 1e30f),
        db_up(s.intermediate * s.rank, 1e30f),
        da_down(s.rank * s.intermediate, 1e30f),
        db_down(s.hidden * s.rank, 1e30f),
        dgate(s.intermediate * s.hidden, 1e30f),
        dup(s.intermediate * s.hidden, 1e30f),
        ddown(s.hidden * s.intermediate, 1e30f) {}

  std::vector<std::pair<std::string, std::vector<float>*>> Parameters() {
    return {{"a_gate", &da_gate}, {"b_gate", &db_gate}, {"a_up", &da_up},
            {"b_up", &db_up},     {"a_down", &da_down}, {"b_down", &db_down},
            {"gate", &dgate},     {"up", &dup},         {"down", &ddown}};
  }

  bool operator==(const Gradients&) const = default;

  Halves dx;
  std::vector<float> da_gate, db_gate, da_up, db_up, da_down, db_down, dgate, dup, ddown;
};

Gradients Backward(const MlpInputs& in, size_t tp, const Halves& dout, int threads,
                   Halves* forward_out) {
  const MlpShape& s = in.shape;
  Halves gate(s.rows * s.intermediate), up(gate.size()), activated(gate.size());
  forward_out->resize(s.rows * s.hidden);
  LoraMlpVjpParams p;
  p.forward = in.Params(tp, forward_out->data());
  p.forward.saved_gate = gate.data(), p.forward.saved_up = up.data();
  p.forward.saved_activated = activated.data(), p.forward.threads = threads;
  EXPECT_TRUE(LoraMlp(p.forward).ok());
  Gradients g(s);
  p.dout = dout.data(), p.dx = g.dx.data();
  p.gate_adapter = {g.da_gate.data(), g.db_gate.data()};
  p.up_adapter = {g.da_up.data(), g.db_up.data()};
  p.down_adapter = {g.da_down.data(), g.db_down.data()};
  p.dgate = g.dgate.data(), p.dup = g.dup.data(), p.ddown = g.ddown.data();
  EXPECT_TRUE(LoraMlpVjp(p).ok());
  return g;
}

// ---- the specification, one scalar operation at a time ----

using Floats = std::vector<float>;

struct Site {
  size_t rows, inputs, outputs, rank;
  std::function<float(size_t, size_t)> x, w, a, b, dy;  // [t,k], [n,k], [j,k], [n,j], [t,n]
  float scale;
};

struct SiteGradients {
  Floats da, db, dw;
  Halves dx;
};

SiteGradients ReferenceSite(const Site& s) {
  SiteGradients g;
  Floats a0(s.rows * s.rank), da0(s.rows * s.rank);
  for (size_t t = 0; t < s.rows; ++t) {
    for (size_t j = 0; j < s.rank; ++j) {
      float dot = 0.0f;
      for (size_t k = 0; k < s.inputs; ++k) dot = std::fma(s.x(t, k), s.a(j, k), dot);
      a0[t * s.rank + j] = Bf16::Load(Bf16::Store(dot));
      float back = 0.0f;
      for (size_t n = 0; n < s.outputs; ++n) back = std::fma(s.dy(t, n), s.b(n, j), back);
      da0[t * s.rank + j] = s.scale * back;
    }
  }
  for (size_t n = 0; n < s.outputs; ++n) {
    for (size_t j = 0; j < s.rank; ++j) {
      float sum = 0.0f;
      for (size_t t = 0; t < s.rows; ++t) sum = std::fma(s.dy(t, n), a0[t * s.rank + j], sum);
      g.db.push_back(s.scale * sum);
    }
    for (size_t k = 0; k < s.inputs; ++k) {
      float sum = 0.0f;
      for (size_t t = 0; t < s.rows; ++t) sum = std::fma(s.dy(t, n), s.x(t, k), sum);
      g.dw.push_back(sum);
    }
  }
  for (size_t j = 0; j < s.rank; ++j) {
    for (size_t k = 0; k < s.inputs; ++k) {
      float sum = 0.0f;
      for (size_t t = 0; t < s.rows; ++t) sum = std::fma(da0[t * s.rank + j], s.x(t, k), sum);
      g.da.push_back(sum);
    }
  }
  for (size_t t = 0; t < s.rows; ++t) {
    for (size_t k = 0; k < s.inputs; ++k) {
      float base = 0.0f, adapter = 0.0f;
      for (size_t n = 0; n < s.outputs; ++n) base = std::fma(s.dy(t, n), s.w(n, k), base);
      for (size_t j = 0; j < s.rank; ++j) {
        adapter = std::fma(da0[t * s.rank + j], s.a(j, k), adapter);
      }
      g.dx.push_back(Bf16::Store(base + adapter));
    }
  }
  return g;
}

std::function<float(size_t, size_t)> View(const Halves& h, size_t stride, size_t offset = 0) {
  return
      [&h, stride, offset](size_t i, size_t j) { return Bf16::Load(h[offset + i * stride + j]); };
}

float Fold(Floats nodes) {
  while (nodes.size() > 1) {
    Floats next;
    for (size_t i = 0; i + 1 < nodes.size(); i += 2) next.push_back(nodes[i] + nodes[i + 1]);
    if (nodes.size() % 2 == 1) next.push_back(nodes.back());
    nodes = next;
  }
  return nodes[0];
}

void FoldInto(const std::vector<Floats>& parts, Floats* out) {
  for (size_t i = 0; i < out->size(); ++i) {
    Floats nodes;
    for (const Floats& part : parts) nodes.push_back(part[i]);
    (*out)[i] = Fold(nodes);
  }
}

Gradients ReferenceBackward(const MlpInputs& in, size_t tp, const Halves& dout) {
  const auto [rows, hidden, intermediate, rank] = in.shape;
  const size_t shard = intermediate / tp;
  const MlpForward f = ReferenceForward(in, tp);
  Gradients g(in.shape);
  std::vector<Floats> da_gate, da_up, db_down;
  std::vector<Halves> dx;
  for (size_t o = 0; o < tp; ++o) {
    const size_t at = o * shard;
    const SiteGradients down =
        ReferenceSite({rows, shard, hidden, rank, View(f.activated, intermediate, at),
                       View(in.down, intermediate, at), View(in.a_down, intermediate, at),
                       View(in.b_down, rank), View(dout, hidden), in.scale});
    Halves dgate, dup;
    for (size_t t = 0; t < rows; ++t) {
      for (size_t i = 0; i < shard; ++i) {
        const float gate = Bf16::Load(f.gate[t * intermediate + at + i]);
        const float up = Bf16::Load(f.up[t * intermediate + at + i]);
        const float d = Bf16::Load(down.dx[t * shard + i]);
        const float s = 1.0f / (1.0f + ExpF32(-gate));
        dgate.push_back(Bf16::Store((d * up) * (s + ((gate * s) * (1.0f - s)))));
        dup.push_back(Bf16::Store(d * (gate * s)));
      }
    }
    const SiteGradients gate = ReferenceSite(
        {rows, hidden, shard, rank, View(in.x, hidden), View(in.gate, hidden, at * hidden),
         View(in.a_gate, hidden), View(in.b_gate, rank, at * rank), View(dgate, shard), in.scale});
    const SiteGradients up = ReferenceSite(
        {rows, hidden, shard, rank, View(in.x, hidden), View(in.up, hidden, at * hidden),
         View(in.a_up, hidden), View(in.b_up, rank, at * rank), View(dup, shard), in.scale});
    for (size_t i = 0; i < shard * rank; ++i) g.db_gate[at * rank + i] = gate.db[i];
    for (size_t i = 0; i < shard * rank; ++i) g.db_up[at * rank + i] = up.db[i];
    for (size_t i = 0; i < shard * hidden; ++i) g.dgate[at * hidden + i] = gate.dw[i];
    for (size_t i = 0; i < shard * hidden; ++i) g.dup[at * hidden + i] = up.dw[i];
    for (size_t i = 0; i < shard; ++i) {
      for (size_t h = 0; h < hidden; ++h) {
        g.ddown[h * intermediate + at + i] = down.dw[h * shard + i];
      }
      for (size_t j = 0; j < rank; ++j) {
        g.da_down[j * intermediate + at + i] = down.da[j * shard + i];
      }
    }
    da_gate.push_back(gate.da), da_up.push_back(up.da), db_down.push_back(down.db);
    Halves& branch_sum = dx.emplace_back();
    for (size_t i = 0; i < gate.dx.size(); ++i) {
      branch_sum.push_back(ReferenceBf16Fold({gate.dx[i], up.dx[i]}));
    }
  }
  FoldInto(da_gate, &g.da_gate), FoldInto(da_up, &g.da_up), FoldInto(db_down, &g.db_down);
  for (size_t i = 0; i < g.dx.size(); ++i) {
    Halves leaves;
    for (const Halves& part : dx) leaves.push_back(part[i]);
    g.dx[i] = ReferenceBf16Fold(leaves);
  }
  return g;
}

TEST(LoraMlpVjp, EqualsTheSpecificationForEveryTensorParallelDegree) {
  std::mt19937 rng(kSeed);
  const MlpInputs in(rng, {6, 19, 30, 3});
  const Halves dout = MlpInputs::Random(rng, 6 * 19, 1.0f);
  for (const size_t tp : {1, 2, 3, 5}) {
    Gradients want = ReferenceBackward(in, tp, dout);
    ForEachSimdTarget([&](const char* target) {
      for (const int threads : {1, 2}) {
        Halves out;
        Gradients got = Backward(in, tp, dout, threads, &out);
        EXPECT_EQ(got.dx, want.dx) << target << " tp " << tp;
        for (size_t i = 0; i < want.Parameters().size(); ++i) {
          EXPECT_EQ(*got.Parameters()[i].second, *want.Parameters()[i].second)
              << target << " tp " << tp << " " << want.Parameters()[i].first;
        }
      }
    });
  }
}

// ---- is it the derivative? ----

// The MLP in float64 without any rounding: what the program computes but for its roundings.
double SmoothLoss(const MlpInputs& in, const std::vector<std::vector<double>>& p,
                  const Halves& dout) {
  const auto [rows, hidden, intermediate, rank] = in.shape;
  const double scale = in.scale;
  const auto project = [&, r = rank](const std::vector<double>& x, size_t inputs, size_t outputs,
                                     int w, int a, int b) {
    std::vector<double> y(outputs), a0(r);
    for (size_t j = 0; j < r; ++j) {
      for (size_t k = 0; k < inputs; ++k) a0[j] += x[k] * p[a][j * inputs + k];
    }
    for (size_t n = 0; n < outputs; ++n) {
      for (size_t k = 0; k < inputs; ++k) y[n] += x[k] * p[w][n * inputs + k];
      for (size_t j = 0; j < r; ++j) y[n] += scale * a0[j] * p[b][n * r + j];
    }
    return y;
  };
  double loss = 0;
  for (size_t t = 0; t < rows; ++t) {
    const std::vector<double> x(p[9].begin() + t * hidden, p[9].begin() + (t + 1) * hidden);
    const std::vector<double> gate = project(x, hidden, intermediate, 6, 0, 1);
    std::vector<double> act = project(x, hidden, intermediate, 7, 2, 3);
    for (size_t i = 0; i < intermediate; ++i) act[i] *= gate[i] / (1 + std::exp(-gate[i]));
    const std::vector<double> y = project(act, intermediate, hidden, 8, 4, 5);
    for (size_t h = 0; h < hidden; ++h) loss += y[h] * Bf16::Load(dout[t * hidden + h]);
  }
  return loss;
}

std::vector<double> ToDouble(const Halves& h) {
  std::vector<double> out;
  for (const uint16_t bits : h) out.push_back(Bf16::Load(bits));
  return out;
}

TEST(LoraMlpVjp, IsTheDerivativeOfTheMlpUpToBf16Rounding) {
  std::mt19937 rng(kSeed + 1);
  const MlpInputs in(rng, {4, 12, 16, 2});
  const Halves dout = MlpInputs::Random(rng, 4 * 12, 1.0f);
  Halves out;
  Gradients g = Backward(in, 1, dout, 1, &out);
  std::vector<std::vector<double>> p = {
      ToDouble(in.a_gate), ToDouble(in.b_gate), ToDouble(in.a_up), ToDouble(in.b_up),
      ToDouble(in.a_down), ToDouble(in.b_down), ToDouble(in.gate), ToDouble(in.up),
      ToDouble(in.down),   ToDouble(in.x)};
  std::vector<std::pair<std::string, std::vector<double>>> got;
  for (const auto& [name, values] : g.Parameters()) {
    got.push_back({name, std::vector<double>(values->begin(), values->end())});
  }
  got.push_back({"x", ToDouble(g.dx)});
  for (size_t which = 0; which < p.size(); ++which) {
    double error2 = 0, norm2 = 0;
    for (size_t i = 0; i < p[which].size(); ++i) {
      const double kept = p[which][i], step = 1e-5;
      p[which][i] = kept + step;
      const double above = SmoothLoss(in, p, dout);
      p[which][i] = kept - step;
      const double below = SmoothLoss(in, p, dout);
      p[which][i] = kept;
      const double want = (above - below) / (2 * step);
      error2 += (got[which].second[i] - want) * (got[which].second[i] - want);
      norm2 += want * want;
    }
    EXPECT_LT(std::sqrt(error2 / norm2), 0.02) << got[which].first;
  }
}

TEST(LoraMlpVjp, LaneGateForwardIsExactAndEveryGradientIsAlive) {
  std::mt19937 rng(kSeed + 2);
  for (const size_t tp : {1, 16}) {
    MlpInputs in(rng, {8, 64, 96, 4});
    const Halves dout = MlpInputs::Random(rng, 8 * 64, 1.0f);
    Halves out;
    Gradients g = Backward(in, tp, dout, 1, &out);
    EXPECT_EQ(out, ReferenceForward(in, tp).out) << "tp " << tp;
    const auto expect_alive = [&](const std::string& name, const std::vector<double>& values) {
      ASSERT_FALSE(values.empty()) << name;
      size_t nonzero = 0;
      for (const double v : values) {
        ASSERT_TRUE(std::isfinite(v)) << name << " tp " << tp;
        nonzero += v != 0;
      }
      EXPECT_GT(nonzero, values.size() * 9 / 10) << name << " tp " << tp;
    };
    expect_alive("x", ToDouble(g.dx));
    for (const auto& [name, values] : g.Parameters()) {
      expect_alive(name, std::vector<double>(values->begin(), values->end()));
    }
  }
}

TEST(LoraMlpVjp, AFrozenBaseGetsNoGradientAndMissingTensorsAreRefused) {
  std::mt19937 rng(kSeed + 3);
  const MlpInputs in(rng, {2, 8, 6, 1});
  const Halves dout = MlpInputs::Random(rng, 2 * 8, 1.0f);
  Halves out;
  const Gradients want = Backward(in, 1, dout, 1, &out);
  Halves gate(12), up(12), activated(12);
  LoraMlpVjpParams p;
  p.forward = in.Params(1, out.data());
  Gradients g(in.shape);
  p.dout = dout.data(), p.dx = g.dx.data();
  p.gate_adapter = {g.da_gate.data(), g.db_gate.data()};
  p.up_adapter = {g.da_up.data(), g.db_up.data()};
  p.down_adapter = {g.da_down.data(), g.db_down.data()};
  EXPECT_FALSE(LoraMlpVjp(p).ok());  // nothing saved
  p.forward.saved_gate = gate.data(), p.forward.saved_up = up.data();
  p.forward.saved_activated = activated.data();
  ASSERT_TRUE(LoraMlp(p.forward).ok());
  ASSERT_TRUE(LoraMlpVjp(p).ok());
  EXPECT_EQ(g.dx, want.dx);
  EXPECT_EQ(g.da_down, want.da_down);
  EXPECT_EQ(g.dgate, std::vector<float>(g.dgate.size(), 1e30f));
  p.up_adapter.a = nullptr;
  EXPECT_FALSE(LoraMlpVjp(p).ok());
}

}  // namespace
}  // namespace lockstep::kernels
