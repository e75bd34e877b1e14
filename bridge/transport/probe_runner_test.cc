#include "bridge/transport/probe_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "policy/registry.h"

namespace lockstep::transport {
namespace {

constexpr uint64_t kSeed = 7;
constexpr uint64_t kHidden = 96;
constexpr uint64_t kIntermediate = 200;

Contract WithDense(absl::string_view program, absl::string_view realisation) {
  Contract contract;
  contract.sites["dense_mlp"].program = std::string(program);
  contract.sites["dense_mlp"].realisation = std::string(realisation);
  return contract;
}
Contract Exact() { return WithDense(kOneRound, kDefaultRealisation); }

// A decoder of two layers with weights of its own.
class Model {
 public:
  explicit Model(Dtype dtype = Dtype::kBF16) {
    for (int layer = 0; layer < 2; ++layer) {
      const std::string at = absl::StrCat("model.layers.", layer, ".");
      Add(at + "post_attention_layernorm.weight", {kHidden}, dtype);
      Add(at + "mlp.gate_proj.weight", {kIntermediate, kHidden}, dtype);
      Add(at + "mlp.up_proj.weight", {kIntermediate, kHidden}, dtype);
      Add(at + "mlp.down_proj.weight", {kHidden, kIntermediate}, dtype);
    }
    Add("model.norm.weight", {kHidden}, dtype);
    Add("model.embed_tokens.weight", {50, kHidden}, dtype);
    std::sort(manifest_.tensors.begin(), manifest_.tensors.end(),
              [](const TensorSpec& a, const TensorSpec& b) { return a.name < b.name; });
    EXPECT_TRUE(CheckManifest(manifest_).empty());
    std::mt19937 random(3);
    for (const TensorSpec& spec : manifest_.tensors) {
      std::vector<uint8_t>& bytes = bytes_.emplace_back(TensorBytes(spec).value());
      for (size_t i = 0; i < bytes.size(); i += 2) {
        // About +-0.05 in BF16; some normal number in F16.
        const uint32_t bits = random();
        bytes[i] = static_cast<uint8_t>(bits);
        bytes[i + 1] = static_cast<uint8_t>(0x3D | ((bits >> 8) & 0x80));
      }
    }
  }

  std::vector<ComponentDigest> Probe(const Contract& contract, int threads = 1) const {
    const ProbePlan plan = DeriveProbePlan(manifest_, contract, kSeed);
    auto digests = RunProbe(
        plan, [this](size_t i) { return absl::MakeConstSpan(bytes_[i]); }, threads);
    EXPECT_TRUE(digests.ok()) << digests.status();
    return *std::move(digests);
  }

  const Manifest& manifest() const { return manifest_; }
  std::vector<std::vector<uint8_t>>& bytes() { return bytes_; }

  std::vector<uint8_t>& Tensor(const std::string& name) {
    for (size_t i = 0; i < manifest_.tensors.size(); ++i) {
      if (manifest_.tensors[i].name == name) return bytes_[i];
    }
    ADD_FAILURE() << name;
    return bytes_[0];
  }

 private:
  void Add(std::string name, std::vector<uint64_t> shape, Dtype dtype) {
    manifest_.tensors.push_back({std::move(name), dtype, std::move(shape)});
  }

  Manifest manifest_;
  std::vector<std::vector<uint8_t>> bytes_;
};

std::vector<std::string> Differences(const std::vector<ComponentDigest>& a,
                                     const std::vector<ComponentDigest>& b) {
  EXPECT_EQ(a.size(), b.size());
  std::vector<std::string> names;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name);
    if (a[i].digest != b[i].digest) names.push_back(a[i].name);
  }
  return names;
}

TEST(ProbeRunnerTest, EqualWeightsGiveEqualDigestsForAnyThreadCount) {
  const auto one = Model().Probe(Exact(), 1);
  EXPECT_EQ(one.size(), 2u * 4 + 2);
  EXPECT_TRUE(Differences(one, Model().Probe(Exact(), 3)).empty());
}

TEST(ProbeRunnerTest, AlignmentOfTheTensorsDoesNotMatter) {
  Model model;
  const auto want = model.Probe(Exact());
  std::vector<std::vector<uint8_t>> shifted;
  for (const std::vector<uint8_t>& bytes : model.bytes()) {
    shifted.emplace_back(bytes.size() + 1);
    std::copy(bytes.begin(), bytes.end(), shifted.back().begin() + 1);
  }
  auto got = RunProbe(
      DeriveProbePlan(model.manifest(), Exact(), kSeed),
      [&](size_t i) { return absl::MakeConstSpan(shifted[i]).subspan(1); }, 1);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(Differences(want, *got).empty());
}

TEST(ProbeRunnerTest, OneBitOfAWeightChangesItsComponentAndWhatFollows) {
  Model model;
  const auto want = model.Probe(Exact());
  model.Tensor("model.layers.1.mlp.down_proj.weight")[101] ^= 0x80;
  EXPECT_EQ(Differences(want, model.Probe(Exact())), std::vector<std::string>{"layers.1.mlp.down"});
  model.Tensor("model.layers.1.mlp.down_proj.weight")[101] ^= 0x80;
  model.Tensor("model.layers.0.post_attention_layernorm.weight")[1] ^= 0x80;
  EXPECT_EQ(Differences(want, model.Probe(Exact())),
            (std::vector<std::string>{"layers.0.norm", "layers.0.mlp.gate_up",
                                      "layers.0.mlp.swiglu", "layers.0.mlp.down"}));
}

TEST(ProbeRunnerTest, AnotherSwigluProgramChangesSwigluAndDown) {
  const Model model;
  EXPECT_EQ(
      Differences(model.Probe(Exact()), model.Probe(WithDense(kTwoRound, kDefaultRealisation))),
      (std::vector<std::string>{"layers.0.mlp.swiglu", "layers.0.mlp.down", "layers.1.mlp.swiglu",
                                "layers.1.mlp.down"}));
}

TEST(ProbeRunnerTest, AnotherRealisationChangesSwiglu) {
  const Model model;
  const auto names =
      Differences(model.Probe(Exact()), model.Probe(WithDense(kOneRound, "silu/sm90_triton@v1")));
  EXPECT_EQ(std::count(names.begin(), names.end(), "layers.0.mlp.swiglu"), 1);
}

TEST(ProbeRunnerTest, SeedChangesEveryComponent) {
  const Model model;
  const auto a = model.Probe(Exact());
  ProbePlan plan = DeriveProbePlan(model.manifest(), Exact(), kSeed);
  plan.seed = kSeed + 1;
  Model copy;
  const auto b = RunProbe(
      plan, [&](size_t i) { return absl::MakeConstSpan(copy.bytes()[i]); }, 1);
  ASSERT_TRUE(b.ok());
  EXPECT_EQ(Differences(a, *b).size(), a.size());
}

TEST(ProbeRunnerTest, HalfPrecisionCheckpointRunsWithItsOwnInputs) {
  EXPECT_EQ(Model(Dtype::kF16).Probe(Exact()).size(), 2u * 3 + 1);
}

TEST(ProbeRunnerTest, BytesAreReadWhereNoProgramFits) {
  Manifest manifest;
  manifest.tensors = {{"scales", Dtype::kF8E4M3, {3}}};
  const std::vector<uint8_t> bytes = {1, 2, 3};
  auto digests = RunProbe(
      DeriveProbePlan(manifest, Exact(), kSeed), [&](size_t) { return absl::MakeConstSpan(bytes); },
      1);
  ASSERT_TRUE(digests.ok()) << digests.status();
  ASSERT_EQ(digests->size(), 1u);
  // As the header states it.
  Blake2b256Hasher want;
  want.Update("lockstep probe component@v1\n");
  want.UpdateString("tensor.scales");
  want.UpdateString("");
  want.UpdateString("");
  want.UpdateString("BF16");
  want.UpdateU64(1);
  want.UpdateU64(3);
  want.Update(absl::MakeConstSpan(bytes));
  EXPECT_EQ((*digests)[0].digest, want.Finish());
}

TEST(ProbeRunnerTest, WhatThisBuildCannotRunIsAnErrorWithTheName) {
  const Model model;
  const auto none = [](size_t) { return absl::Span<const uint8_t>(); };
  const auto probe = [&](const Contract& contract) {
    Model copy;
    return RunProbe(
               DeriveProbePlan(model.manifest(), contract, kSeed),
               [&](size_t i) { return absl::MakeConstSpan(copy.bytes()[i]); }, 1)
        .status();
  };
  EXPECT_EQ(probe(WithDense(kOneRound, "silu/user_x@v1")).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(probe(WithDense("swiglu/three_round@v9", kDefaultRealisation)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RunProbe(DeriveProbePlan(model.manifest(), Exact(), kSeed), none, 1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ProbeRunnerTest, EvidenceShowsEveryTableAndProgramAndIsStable) {
  const auto evidence = MakeEvidence();
  ASSERT_TRUE(evidence.ok()) << evidence.status();
  EXPECT_EQ(evidence->tables.size(), 4u);
  EXPECT_EQ(ToHex(evidence->tables.at("silu/ieee@v1")),
            "274ebf0ac6bccfe960ce26de023946959df3384ebdc1dd08b1643ae8f05d9cd1");
  EXPECT_EQ(evidence->probe.size(), 5u);
  EXPECT_NE(evidence->probe.at("swiglu/one_round_fp32@v1"),
            evidence->probe.at("swiglu/two_round@v1"));
  EXPECT_EQ(*MakeEvidence(), *evidence);
}

}  // namespace
}  // namespace lockstep::transport
