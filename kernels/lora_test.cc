#include "kernels/lora.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/float_formats.h"
#include "kernels/lora_inputs_for_test.h"
#include "kernels/simd_targets_for_test.h"

namespace lockstep::kernels {
namespace {

constexpr uint32_t kSeed = 20261203;

TEST(LoraMlp, EqualsTheSpecificationForEveryTensorParallelDegree) {
  std::mt19937 rng(kSeed);
  const MlpInputs in(rng, {5, 37, 48, 3});
  for (const size_t tp : {1, 2, 3, 4, 16}) {
    const MlpForward want = ReferenceForward(in, tp);
    ForEachSimdTarget([&](const char* target) {
      for (const int threads : {1, 3}) {
        MlpForward got = want;
        for (Halves* h : {&got.gate, &got.up, &got.activated, &got.partials, &got.out}) {
          std::fill(h->begin(), h->end(), 0xBEEF);
        }
        LoraMlpParams p = in.Params(tp, got.out.data());
        p.partials = got.partials.data();
        p.saved_gate = got.gate.data(), p.saved_up = got.up.data();
        p.saved_activated = got.activated.data();
        p.threads = threads;
        ASSERT_TRUE(LoraMlp(p).ok());
        EXPECT_EQ(got.gate, want.gate) << target << " tp " << tp;
        EXPECT_EQ(got.up, want.up) << target << " tp " << tp;
        EXPECT_EQ(got.activated, want.activated) << target << " tp " << tp;
        EXPECT_EQ(got.partials, want.partials) << target << " tp " << tp;
        EXPECT_EQ(got.out, want.out) << target << " tp " << tp;
      }
    });
  }
}

TEST(LoraMlp, TheTensorParallelDegreeIsPartOfTheBytes) {
  std::mt19937 rng(kSeed + 1);
  const MlpInputs in(rng, {4, 48, 64, 2});
  EXPECT_NE(ReferenceForward(in, 1).out, ReferenceForward(in, 4).out);
}

TEST(LoraMlp, Float32MastersAreSeenAsTheirBf16View) {
  std::mt19937 rng(kSeed + 2);
  MlpInputs in(rng, {3, 20, 24, 4});
  std::uniform_real_distribution<float> nudge(-0.001f, 0.001f);
  std::vector<std::vector<float>> masters;
  for (Halves* h : {&in.a_gate, &in.b_gate, &in.a_up, &in.b_up, &in.a_down, &in.b_down}) {
    std::vector<float>& m = masters.emplace_back();
    for (uint16_t& bits : *h) {
      m.push_back(Bf16::Load(bits) * (1.0f + nudge(rng)));
      bits = Bf16::Store(m.back());
    }
  }
  const MlpForward want = ReferenceForward(in, 2);
  Halves out(want.out.size());
  LoraMlpParams p = in.Params(2, out.data());
  p.factor_type = FloatType::kF32;
  p.gate_adapter = {masters[0].data(), masters[1].data()};
  p.up_adapter = {masters[2].data(), masters[3].data()};
  p.down_adapter = {masters[4].data(), masters[5].data()};
  ASSERT_TRUE(LoraMlp(p).ok());
  EXPECT_EQ(out, want.out);
}

TEST(LoraMlp, RefusesADegreeThatDoesNotDivideAndMissingFactors) {
  std::mt19937 rng(kSeed + 3);
  const MlpInputs in(rng, {1, 8, 12, 1});
  Halves out(8);
  LoraMlpParams p = in.Params(5, out.data());
  EXPECT_EQ(LoraMlp(p).message(),
            "lora_mlp: expected a tensor-parallel degree that divides I=12, got 5");
  p = in.Params(1, out.data());
  p.up_adapter.b = nullptr;
  EXPECT_FALSE(LoraMlp(p).ok());
  p = in.Params(1, out.data());
  p.factor_type = FloatType::kF16;
  EXPECT_FALSE(LoraMlp(p).ok());
  p = in.Params(1, out.data());
  p.scale = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(LoraMlp(p).ok());
  p = in.Params(1, nullptr);
  EXPECT_FALSE(LoraMlp(p).ok());
}

TEST(LoraMerge, EqualsTheSpecificationAlsoInPlace) {
  std::mt19937 rng(kSeed + 4);
  for (const size_t rank : {1, 2, 16}) {
    const size_t outputs = 131, inputs = 45;
    Halves weight = MlpInputs::Random(rng, outputs * inputs, 1.0f);
    const Halves a = MlpInputs::Random(rng, rank * inputs, 1.0f);
    const Halves b = MlpInputs::Random(rng, outputs * rank, 1.0f);
    const float scale = 0.7f;
    Halves want;
    for (size_t n = 0; n < outputs; ++n) {
      for (size_t k = 0; k < inputs; ++k) {
        const float dot = ReferenceChain(&b[n * rank], 1, &a[k], inputs, rank);
        const float scaled = scale * dot;
        want.push_back(Bf16::Store(Bf16::Load(weight[n * inputs + k]) + scaled));
      }
    }
    LoraMergeParams p;
    p.out_features = outputs, p.in_features = inputs, p.rank = static_cast<int64_t>(rank);
    p.weight = p.out = weight.data(), p.factors = {a.data(), b.data()}, p.scale = scale;
    p.threads = 2;
    ASSERT_TRUE(LoraMerge(p).ok());
    EXPECT_EQ(weight, want) << "rank " << rank;
    p.rank = 0;
    EXPECT_FALSE(LoraMerge(p).ok());
  }
}

}  // namespace
}  // namespace lockstep::kernels
