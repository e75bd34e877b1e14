#include "policy/probe_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "policy/registry.h"

namespace lockstep {
namespace {

constexpr uint64_t kHidden = 128;
constexpr uint64_t kSeed = 42;

class Checkpoint {
 public:
  Checkpoint& Add(std::string name, std::vector<uint64_t> shape, Dtype dtype = Dtype::kBF16) {
    manifest_.tensors.push_back({std::move(name), dtype, std::move(shape)});
    return *this;
  }
  Checkpoint& Mlp(const std::string& folder, uint64_t intermediate, uint64_t hidden = kHidden) {
    Add(folder + "gate_proj.weight", {intermediate, hidden});
    Add(folder + "up_proj.weight", {intermediate, hidden});
    return Add(folder + "down_proj.weight", {hidden, intermediate});
  }
  Manifest Done() {
    std::sort(manifest_.tensors.begin(), manifest_.tensors.end(),
              [](const TensorSpec& a, const TensorSpec& b) { return a.name < b.name; });
    EXPECT_TRUE(CheckManifest(manifest_).empty()) << FormatRefusals(CheckManifest(manifest_));
    return manifest_;
  }

 private:
  Manifest manifest_;
};

// As the qwen3_5_dense trace has it, what a probe does not read left out but for one product.
Manifest DenseTrace(const std::string& prefix = "model.") {
  Checkpoint checkpoint;
  for (int layer = 0; layer < 4; ++layer) {
    const std::string at = absl::StrCat(prefix, "layers.", layer, ".");
    checkpoint.Add(at + "input_layernorm.weight", {kHidden});
    checkpoint.Add(at + "post_attention_layernorm.weight", {kHidden});
    checkpoint.Add(at + "linear_attn.in_proj_qkv.weight", {512, kHidden});
    checkpoint.Mlp(at + "mlp.", 384);
  }
  return checkpoint.Add(prefix + "embed_tokens.weight", {64, kHidden})
      .Add(prefix + "norm.weight", {kHidden})
      .Done();
}

Contract WithPrograms(absl::string_view dense, absl::string_view routed) {
  Contract contract;
  contract.sites["dense_mlp"] = {std::string(dense), std::string(kDefaultRealisation), {}, {}, {}};
  contract.sites["shared_expert"] = contract.sites["dense_mlp"];
  contract.sites["routed_experts"] = {std::string(routed), std::string(kDefaultRealisation)};
  contract.sites["norm"].program = "rmsnorm/pair_tree@v2";
  contract.sites["norm"].geometry["zero_centered"] = 1;
  contract.sites["norm"].constants["eps"] = 1e-5f;
  contract.sites["gemm"].program = "gemm/k_chain@v1";
  return contract;
}
Contract Exact() { return WithPrograms(kOneRound, kTwoRound); }

std::vector<std::string> Names(const ProbePlan& plan) {
  std::vector<std::string> names;
  for (const ProbeComponent& component : plan.components) names.push_back(component.name);
  return names;
}

const ProbeComponent& Named(const ProbePlan& plan, const std::string& name) {
  for (const ProbeComponent& component : plan.components) {
    if (component.name == name) return component;
  }
  ADD_FAILURE() << "no component " << name;
  static const ProbeComponent kNone;
  return kNone;
}

// What any plan must hold for the runner: inputs before users, sizes that fit, blocks inside
// their tensors.
void ExpectSound(const ProbePlan& plan, const Manifest& manifest) {
  ASSERT_FALSE(plan.components.empty());
  EXPECT_LE(plan.components.size(), kProbeMaxComponents);
  std::set<std::string> names;
  for (size_t i = 0; i < plan.components.size(); ++i) {
    const ProbeComponent& component = plan.components[i];
    EXPECT_TRUE(names.insert(component.name).second) << component.name;
    if (component.input) {
      ASSERT_LT(*component.input, i);
      EXPECT_EQ(plan.components[*component.input].out_columns, component.in_columns);
    }
    for (const ProbeOperand& operand : component.operands) {
      EXPECT_LE(operand.rows, 2 * kProbeMaxRows);
      if (!operand.tensor) continue;
      const TensorSpec& spec = manifest.tensors[*operand.tensor];
      const uint64_t end =
          operand.offset + (operand.rows - 1) * operand.row_stride + operand.columns;
      EXPECT_LE(end * DtypeBytes(operand.dtype), TensorBytes(spec).value()) << component.name;
      EXPECT_EQ(spec.origin, TensorOrigin::kSynced);
    }
  }
}

TEST(ProbePlanTest, DenseTraceOfFourLayersHasEighteenComponents) {
  const Manifest manifest = DenseTrace();
  const ProbePlan plan = DeriveProbePlan(manifest, Exact(), kSeed);
  ExpectSound(plan, manifest);
  EXPECT_EQ(plan.components.size(), 18u);
  const std::vector<std::string> names = Names(plan);
  EXPECT_EQ(std::vector<std::string>(names.begin(), names.begin() + 4),
            (std::vector<std::string>{"layers.0.norm", "layers.0.mlp.gate_up",
                                      "layers.0.mlp.swiglu", "layers.0.mlp.down"}));
  EXPECT_EQ(names[16], "norm");
  EXPECT_EQ(names[17], "lm_head");
  const ProbeComponent& head = Named(plan, "lm_head");
  EXPECT_EQ(manifest.tensors[*head.operands[0].tensor].name, "model.embed_tokens.weight");
  EXPECT_EQ(head.out_columns, 64u);
  const ProbeComponent& norm = Named(plan, "layers.2.norm");
  EXPECT_EQ(manifest.tensors[*norm.operands[0].tensor].name,
            "model.layers.2.post_attention_layernorm.weight");
  EXPECT_EQ(norm.eps, 1e-5f);
  EXPECT_TRUE(norm.zero_centered);
  EXPECT_EQ(Named(plan, "layers.3.mlp.swiglu").program, kOneRound);
  EXPECT_EQ(Named(plan, "layers.3.mlp.gate_up").out_columns, 768u);
}

TEST(ProbePlanTest, PrefixOfAMultimodalCheckpointChangesNoName) {
  EXPECT_EQ(Names(DeriveProbePlan(DenseTrace("model.language_model."), Exact(), kSeed)),
            Names(DeriveProbePlan(DenseTrace(), Exact(), kSeed)));
}

TEST(ProbePlanTest, PlanDependsOnManifestContractAndSeedAlone) {
  const Manifest manifest = DenseTrace();
  EXPECT_EQ(DeriveProbePlan(manifest, Exact(), 1).components,
            DeriveProbePlan(manifest, Exact(), 1).components);
  EXPECT_NE(DeriveProbePlan(manifest, Exact(), 1).components,
            DeriveProbePlan(manifest, WithPrograms(kTwoRound, kTwoRound), 1).components);
}

Checkpoint MoeCheckpoint(int layers) {
  Checkpoint checkpoint;
  for (int layer = 0; layer < layers; ++layer) {
    const std::string at = absl::StrCat("model.layers.", layer, ".");
    checkpoint.Add(at + "post_attention_layernorm.weight", {kHidden});
    checkpoint.Mlp(at + "mlp.shared_experts.", 64);
  }
  return checkpoint;
}

TEST(ProbePlanTest, StackedExpertsAreProbedAtTheSitesProgram) {
  Checkpoint checkpoint = MoeCheckpoint(3);
  for (int layer = 0; layer < 3; ++layer) {
    const std::string at = absl::StrCat("model.layers.", layer, ".mlp.experts.");
    checkpoint.Add(at + "gate_up_proj", {8, 2 * 64, kHidden})
        .Add(at + "down_proj", {8, kHidden, 64});
  }
  checkpoint.Add("lm_head.weight", {64, kHidden}).Add("model.embed_tokens.weight", {64, kHidden});
  const Manifest manifest = checkpoint.Add("model.norm.weight", {kHidden}).Done();
  std::set<std::string> experts;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const ProbePlan plan = DeriveProbePlan(manifest, Exact(), seed);
    ExpectSound(plan, manifest);
    ASSERT_EQ(plan.components.size(), 3u * 7 + 2);
    EXPECT_EQ(plan.components[2].name, "layers.0.shared_expert.swiglu");
    EXPECT_EQ(plan.components[2].program, kOneRound);
    experts.insert(plan.components[5].name);
    EXPECT_EQ(plan.components[5].program, kTwoRound);
    EXPECT_EQ(manifest.tensors[*Named(plan, "lm_head").operands[0].tensor].name, "lm_head.weight");
  }
  EXPECT_EQ(experts.size(), 8u);  // the seed reaches every expert
  EXPECT_EQ(*experts.begin(), "layers.0.experts.0.swiglu");
}

TEST(ProbePlanTest, SeparateAndPackedExpertsAreFoundToo) {
  Checkpoint separate = MoeCheckpoint(1);
  Checkpoint packed = MoeCheckpoint(1);
  Checkpoint mixtral;
  for (int expert = 0; expert < 12; ++expert) {
    const std::string at = absl::StrCat("model.layers.0.mlp.experts.", expert, ".");
    separate.Mlp(at, 32);
    packed.Add(at + "gate_up_proj.weight", {64, kHidden});
    packed.Add(at + "down_proj.weight", {kHidden, 32});
    const std::string w = absl::StrCat("model.layers.0.block_sparse_moe.experts.", expert, ".w");
    mixtral.Add(w + "1.weight", {32, kHidden}).Add(w + "3.weight", {32, kHidden});
    mixtral.Add(w + "2.weight", {kHidden, 32});
  }
  for (Checkpoint* checkpoint : {&separate, &packed, &mixtral}) {
    const Manifest manifest = checkpoint->Done();
    const ProbePlan plan = DeriveProbePlan(manifest, Exact(), kSeed);
    ExpectSound(plan, manifest);
    const std::vector<std::string> names = Names(plan);
    EXPECT_EQ(std::count_if(names.begin(), names.end(),
                            [](const std::string& name) {
                              return name.find(".experts.") != std::string::npos;
                            }),
              3);
  }
}

TEST(ProbePlanTest, CostOfAHugeModelIsBounded) {
  Checkpoint checkpoint;
  for (int layer = 0; layer < 3; ++layer) {
    const std::string at = absl::StrCat("model.layers.", layer, ".");
    checkpoint.Add(at + "post_attention_layernorm.weight", {16'384});
    checkpoint.Mlp(at + "mlp.", 53'248, 16'384);
  }
  const Manifest manifest = checkpoint.Add("lm_head.weight", {151'936, 16'384}).Done();
  const ProbePlan plan = DeriveProbePlan(manifest, Exact(), kSeed);
  ExpectSound(plan, manifest);
  std::set<uint64_t> starts;
  for (const ProbeComponent& component : plan.components) {
    uint64_t products = 0;
    for (const ProbeOperand& operand : component.operands) {
      EXPECT_LE(operand.rows, kProbeMaxRows);
      products += operand.rows * operand.columns;
    }
    EXPECT_LE(products, 2 * kProbeMaxRows * 16'384);
    if (component.op == ProbeOp::kGemm) starts.insert(component.operands[0].offset);
  }
  EXPECT_GT(starts.size(), 4u);  // the blocks lie in different places
}

TEST(ProbePlanTest, ManyLayersStayUnderTheLimit) {
  Checkpoint checkpoint;
  for (int layer = 0; layer < 3'000; ++layer) {
    checkpoint.Mlp(absl::StrCat("model.layers.", layer, ".mlp."), 4, 4);
  }
  const Manifest manifest = checkpoint.Done();
  ExpectSound(DeriveProbePlan(manifest, Exact(), kSeed), manifest);
}

TEST(ProbePlanTest, SiteWithoutAProgramMakesNoClaimAboutItsBytes) {
  Contract contract = Exact();
  contract.sites["dense_mlp"].program.clear();
  const ProbePlan plan = DeriveProbePlan(DenseTrace(), contract, kSeed);
  EXPECT_EQ(plan.components.size(), 14u);
  EXPECT_FALSE(Named(plan, "layers.0.mlp.down").input.has_value());
}

TEST(ProbePlanTest, UnknownNamesGiveOneProductAMatrix) {
  Checkpoint checkpoint;
  checkpoint.Add("a", {7, 5}).Add("b", {7, 5}, Dtype::kF16).Add("c", {7, 5}, Dtype::kF32);
  const Manifest manifest = checkpoint.Add("d", {7}).Add("e", {0, 5}).Done();
  const ProbePlan plan = DeriveProbePlan(manifest, Exact(), kSeed);
  ExpectSound(plan, manifest);
  EXPECT_EQ(Names(plan), (std::vector<std::string>{"tensor.a", "tensor.b"}));
  Checkpoint many;
  for (int i = 0; i < 1'000; ++i) many.Add(absl::StrCat("t", i), {3, 3});
  EXPECT_EQ(DeriveProbePlan(many.Done(), Exact(), kSeed).components.size(), kProbeMaxGeneric);
}

TEST(ProbePlanTest, EveryCheckpointHasAComponent) {
  const Manifest floats = Checkpoint().Add("x", {1'000'000}, Dtype::kF8E4M3).Done();
  const ProbePlan plan = DeriveProbePlan(floats, Exact(), kSeed);
  ExpectSound(plan, floats);
  EXPECT_EQ(Names(plan), std::vector<std::string>{"tensor.x"});
  EXPECT_EQ(plan.components[0].op, ProbeOp::kBytes);
  for (const Manifest& manifest :
       {Manifest(), Checkpoint().Add("empty", {0}).Done(), Checkpoint().Add("e", {0, 4}).Done()}) {
    ExpectSound(DeriveProbePlan(manifest, Exact(), kSeed), manifest);
  }
}

TEST(ProbePlanTest, LongestTensorNameStillGivesANameThatTravels) {
  const Manifest manifest = Checkpoint().Add(std::string(kMaxTensorNameBytes, 'n'), {3, 3}).Done();
  const ProbePlan plan = DeriveProbePlan(manifest, Exact(), kSeed);
  ExpectSound(plan, manifest);
  EXPECT_LE(plan.components[0].name.size(), kMaxTensorNameBytes);
}

TEST(ProbePlanTest, ShapesThatDoNotFitAreLeftToTheGenericPlan) {
  Checkpoint checkpoint;
  checkpoint.Add("model.layers.0.mlp.gate_proj.weight", {384, kHidden});
  checkpoint.Add("model.layers.0.mlp.up_proj.weight", {384, kHidden});
  // Transposed, as some families store it.
  const Manifest manifest =
      checkpoint.Add("model.layers.0.mlp.down_proj.weight", {384, 128}).Done();
  const ProbePlan plan = DeriveProbePlan(manifest, Exact(), kSeed);
  ExpectSound(plan, manifest);
  EXPECT_EQ(plan.components.size(), 3u);
  EXPECT_EQ(plan.components[0].name, "tensor.model.layers.0.mlp.down_proj.weight");
}

TEST(ProbePlanTest, RegistrationProbeReadsNoWeights) {
  const ProbePlan plan = RegistrationProbePlan();
  ExpectSound(plan, Manifest());
  for (const ProbeComponent& component : plan.components) {
    for (const ProbeOperand& operand : component.operands) EXPECT_FALSE(operand.tensor);
  }
}

}  // namespace
}  // namespace lockstep
