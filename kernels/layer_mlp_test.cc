#include "kernels/layer_mlp.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/float_formats.h"
#include "kernels/layer_ops.h"
#include "kernels/layer_qwen3_5.h"

namespace lockstep::kernels {
namespace {

constexpr int64_t kHidden = 12, kIntermediate = 7, kShared = 8, kExperts = 6, kRows = 9;

std::vector<uint16_t> Random(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (uint16_t& v : values) {
    v = Bf16::Store(static_cast<float>(random() >> 40) * 0x1p-23f - 1.0f);
  }
  return values;
}

LayerWeight Weight(const std::vector<uint16_t>& values) {
  return {FloatType::kBf16, values.data(), static_cast<int64_t>(values.size())};
}

// A site with random weights, of either family's shape.
struct Case {
  explicit Case(MoeSite base) : site(base) {
    site.hidden = kHidden, site.intermediate = kIntermediate, site.shared_intermediate = kShared;
    site.topk = 2;
    weights.router = Weight(router);
    weights.experts =
        StackedExperts(Weight(gate_up), Weight(down), kExperts, kIntermediate, kHidden);
    weights.shared = {Weight(shared_gate), Weight(shared_up), Weight(shared_down)};
  }

  std::vector<uint16_t> Run(int64_t first, int64_t rows, int threads,
                            LayerObserver observe = nullptr) const {
    LayerRun run;
    const int64_t documents[] = {rows};
    run.document_tokens = documents;
    run.threads = threads, run.observe = std::move(observe);
    std::vector<uint16_t> out(static_cast<size_t>(rows * kHidden));
    const absl::Status status =
        RunMoeSite(site, weights, run, x.data() + first * kHidden, out.data());
    EXPECT_TRUE(status.ok()) << status;
    return out;
  }

  std::vector<uint16_t> router = Random(kExperts * kHidden, 1);
  std::vector<uint16_t> gate_up = Random(kExperts * 2 * kIntermediate * kHidden, 2);
  std::vector<uint16_t> down = Random(kExperts * kIntermediate * kHidden, 3);
  std::vector<uint16_t> shared_gate = Random(kShared * kHidden, 4);
  std::vector<uint16_t> shared_up = Random(kShared * kHidden, 5);
  std::vector<uint16_t> shared_down = Random(kShared * kHidden, 6);
  std::vector<uint16_t> shared_expert_gate = Random(kHidden, 7);
  std::vector<uint16_t> x = Random(kRows * kHidden, 8);
  MoeSite site;
  MoeWeights weights;
};

Case QwenCase() {
  Case c(Qwen35MoeSite());
  return c;
}

Case GlmCase() {
  MoeSite site = Glm52MoeSite();
  site.contributors = 4, site.routed_scale = 2.5f;
  return Case(site);
}

TEST(LayerMlp, ARowsBytesDependNeitherOnItsBatchNorOnThreads) {
  Case qwen = QwenCase();
  qwen.weights.shared_expert_gate = Weight(qwen.shared_expert_gate);
  const Case glm = GlmCase();
  for (const Case* c : {const_cast<const Case*>(&qwen), &glm}) {
    const std::vector<uint16_t> whole = c->Run(0, kRows, 1);
    EXPECT_EQ(whole, c->Run(0, kRows, 2));
    EXPECT_EQ(whole, c->Run(0, kRows, 8));
    for (int64_t row = 0; row < kRows; ++row) {
      const std::vector<uint16_t> alone = c->Run(row, 1, 1);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), whole.begin() + row * kHidden)) << row;
    }
  }
}

TEST(LayerMlp, OneChosenExpertRunsTwoRoundAndTheSharedExpertOneRound) {
  Case c = QwenCase();
  c.site.topk = 1;  // renormalised, so its weight is 1
  std::vector<uint16_t> routed, shared;
  const std::vector<uint16_t> out =
      c.Run(0, 1, 1, [&](absl::string_view component, const LayerTensor& t) {
        const auto* data = static_cast<const uint16_t*>(t.data);
        const std::vector<uint16_t> copy(data, data + t.rows * t.columns);
        if (component == "routed_experts") routed = copy;
        if (component == "shared_partial.0") shared = copy;
      });
  const int64_t one[] = {1};
  LayerRun run;
  run.document_tokens = one;
  std::vector<uint16_t> dense(kHidden);
  ASSERT_TRUE(RunDenseMlp(c.weights.shared, kHidden, kShared, run, c.x.data(), dense.data()).ok());
  EXPECT_EQ(shared, dense);
  ASSERT_EQ(routed.size(), static_cast<size_t>(kHidden));
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out[i], Bf16::Store(Bf16::Load(routed[i]) + Bf16::Load(shared[i])));
  }
}

TEST(LayerMlp, ContributorsAreEachTheirExpertsAndTheirShareOfTheSharedExpert) {
  const Case c = GlmCase();
  std::vector<std::string> seen;
  c.Run(0, kRows, 1,
        [&](absl::string_view component, const LayerTensor&) { seen.emplace_back(component); });
  EXPECT_EQ(seen,
            (std::vector<std::string>{"router_logits", "router_weights", "routed_experts",
                                      "routed_partial.0", "shared_partial.0", "routed_partial.1",
                                      "shared_partial.1", "routed_partial.2", "shared_partial.2",
                                      "routed_partial.3", "shared_partial.3", "moe_fold"}));
  Case other = GlmCase();
  other.site.contributors = 1;
  EXPECT_NE(c.Run(0, kRows, 1), other.Run(0, kRows, 1));
}

TEST(LayerMlp, WhatDoesNotFitIsRefusedByName) {
  Case c = GlmCase();
  const int64_t rows[] = {kRows};
  LayerRun run;
  run.document_tokens = rows;
  std::vector<uint16_t> out(kRows * kHidden);
  c.site.contributors = 3;  // does not divide the shared intermediate
  EXPECT_EQ(RunMoeSite(c.site, c.weights, run, c.x.data(), out.data()).code(),
            absl::StatusCode::kInvalidArgument);
  c.site.contributors = 4;
  c.weights.shared.up.elements -= 1;
  const absl::Status status = RunMoeSite(c.site, c.weights, run, c.x.data(), out.data());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'up'"), absl::string_view::npos) << status;
  run.document_tokens = {};
  EXPECT_EQ(RunMoeSite(c.site, c.weights, run, c.x.data(), out.data()).code(),
            absl::StatusCode::kInvalidArgument);
}

// A Qwen3.5-MoE decoder layer: a gated delta net, then experts.
TEST(LayerQwen35, ADocumentInABatchHasTheBytesItHasAlone) {
  Case c = QwenCase();
  Qwen35Sizes sizes;
  sizes.hidden = kHidden;
  sizes.key_heads = 1, sizes.value_heads = 2, sizes.key_dim = sizes.value_dim = 4;
  const int64_t channels = sizes.conv_channels();
  const auto qkv = Random(channels * kHidden, 20), z = Random(8 * kHidden, 21);
  const auto a = Random(2 * kHidden, 22), b = Random(2 * kHidden, 23);
  const auto conv = Random(channels * 4, 24), a_log = Random(2, 25), dt_bias = Random(2, 26);
  const auto norm = Random(4, 27), out_proj = Random(kHidden * 8, 28), norms = Random(kHidden, 29);
  const GdnMixerWeights gdn = {Weight(qkv),     Weight(z),    Weight(a),
                               Weight(b),       Weight(conv), Weight(a_log),
                               Weight(dt_bias), Weight(norm), Weight(out_proj)};
  Qwen35Layer layer;
  layer.input_norm = layer.post_attention_norm = Weight(norms);
  layer.gdn = &gdn, layer.moe = &c.weights, layer.moe_site = &c.site;
  const auto run_layer = [&](const std::vector<int64_t>& documents, int64_t first) {
    LayerRun run;
    run.document_tokens = documents;
    const auto begin = c.x.begin() + first * kHidden;
    std::vector<uint16_t> hidden(begin, begin + run.rows() * kHidden);
    const absl::Status status =
        RunQwen35Layer(sizes, layer, run, RopeTable{}, std::nullopt, hidden.data());
    EXPECT_TRUE(status.ok()) << status;
    return hidden;
  };
  std::vector<uint16_t> alone;
  int64_t first = 0;
  for (const int64_t tokens : {3, 1, 5}) {
    const std::vector<uint16_t> one = run_layer({tokens}, first);
    alone.insert(alone.end(), one.begin(), one.end());
    first += tokens;
  }
  EXPECT_EQ(run_layer({3, 1, 5}, 0), alone);
  EXPECT_NE(run_layer({9}, 0), alone);
  layer.mlp = &c.weights.shared;
  LayerRun run;
  const int64_t rows[] = {kRows};
  run.document_tokens = rows;
  EXPECT_EQ(RunQwen35Layer(sizes, layer, run, RopeTable{}, std::nullopt, c.x.data()).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::kernels
