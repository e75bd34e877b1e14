// SwiGLU, its derivative, MoE leaves and folds against recorded bytes.

#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/moe.h"
#include "kernels/swiglu.h"
#include "tests/golden/golden_data.h"

namespace lockstep::kernels {
namespace {

using golden::GoldenTensor;
using golden::GoldenTensors;
using golden::GoldenVector;

// Each vector of `op`, with its tensors.
std::vector<std::pair<GoldenVector, GoldenTensors>> VectorsOf(const std::string& op) {
  std::vector<std::pair<GoldenVector, GoldenTensors>> found;
  const auto index = golden::ReadGoldenIndex();
  EXPECT_TRUE(index.ok()) << index.status();
  if (!index.ok()) return found;
  for (const GoldenVector& vector : *index) {
    if (vector.op != op) continue;
    auto tensors = golden::ReadGoldenTensors("vectors/" + vector.file);
    EXPECT_TRUE(tensors.ok()) << tensors.status();
    if (tensors.ok()) found.emplace_back(vector, *std::move(tensors));
  }
  return found;
}

float OptionOr(const GoldenVector& vector, const std::string& name, float otherwise) {
  const auto option = vector.options.find(name);
  return option == vector.options.end() ? otherwise : std::strtof(option->second.c_str(), nullptr);
}

TEST(ActivationGoldenTest, SwigluGivesTheRecordedBytesOfEveryProgramAndRealisation) {
  const std::map<std::string, SwigluProgram> programs = {
      {kSwigluOneRoundId, SwigluProgram::kOneRoundFp32},
      {kSwigluTwoRoundId, SwigluProgram::kTwoRound},
      {kSwigluClampedId, SwigluProgram::kOneRoundFp32Clamped}};
  std::set<std::string> seen;
  for (const auto& [vector, tensors] : VectorsOf("swiglu")) {
    seen.insert(vector.program + " " + vector.realisation);
    const GoldenTensor& gate = tensors.at("gate");
    SwigluParams p;
    p.program = programs.at(vector.program);
    p.rows = gate.shape[0];
    p.columns = gate.shape[1];
    p.gate = gate.data();
    p.up = tensors.at("up").data();
    p.limit = OptionOr(vector, "limit", 0);
    p.silu = *FindSiluTable(vector.realisation, FloatType::kBf16);
    std::vector<uint8_t> out(gate.bytes.size());
    p.out = out.data();
    ASSERT_TRUE(Swiglu(p).ok()) << vector.file;
    EXPECT_EQ(out, tensors.at("want_out").bytes) << vector.file;
  }
  EXPECT_EQ(seen.size(), 9u);
}

TEST(ActivationGoldenTest, SwigluVjpGivesTheRecordedBytes) {
  const auto vectors = VectorsOf("swiglu_vjp");
  ASSERT_EQ(vectors.size(), 1u);
  const GoldenTensors& tensors = vectors[0].second;
  const GoldenTensor& gate = tensors.at("gate");
  constexpr const GateTable* kComputed = nullptr;
  for (const GateTable* sigmoid : {*FindSigmoidTable(FloatType::kBf16), kComputed}) {
    std::vector<uint8_t> dgate(gate.bytes.size()), dup(gate.bytes.size());
    SwigluVjpParams p;
    p.rows = gate.shape[0];
    p.columns = gate.shape[1];
    p.gate = gate.data();
    p.up = tensors.at("up").data();
    p.dout = tensors.at("dout").data();
    p.dgate = dgate.data();
    p.dup = dup.data();
    p.sigmoid = sigmoid;
    ASSERT_TRUE(SwigluVjp(p).ok());
    EXPECT_EQ(dgate, tensors.at("want_dgate").bytes);
    EXPECT_EQ(dup, tensors.at("want_dup").bytes);
  }
}

TEST(ActivationGoldenTest, MoeLeafGivesTheRecordedBytes) {
  const auto vectors = VectorsOf("moe_leaf");
  EXPECT_EQ(vectors.size(), 2u);
  for (const auto& [vector, tensors] : vectors) {
    const GoldenTensor& routed = tensors.at("routed");
    MoeLeafParams p;
    p.program =
        vector.program == kMoeLeafBf16AddId ? MoeLeafProgram::kBf16Add : MoeLeafProgram::kFp32Fma;
    p.rows = routed.shape[0];
    p.columns = routed.shape[1];
    p.routed = routed.data();
    p.shared = tensors.at("shared").data();
    p.scale = OptionOr(vector, "scale", 1);
    std::vector<uint8_t> out(routed.bytes.size());
    p.out = out.data();
    ASSERT_TRUE(MoeLeaf(p).ok()) << vector.file;
    EXPECT_EQ(out, tensors.at("want_out").bytes) << vector.file;
  }
}

TEST(ActivationGoldenTest, MoeFoldGivesTheRecordedBytes) {
  const std::map<std::string, MoeFoldProgram> programs = {
      {kMoeFoldBf16TreeId, MoeFoldProgram::kBf16Tree},
      {kMoeFoldFp32TreeId, MoeFoldProgram::kFp32Tree},
      {kMoeFoldFp64TreeId, MoeFoldProgram::kFp64Tree}};
  const auto vectors = VectorsOf("moe_fold");
  EXPECT_EQ(vectors.size(), 9u);
  for (const auto& [vector, tensors] : vectors) {
    const GoldenTensor& partials = tensors.at("partials");
    MoeFoldParams p;
    p.program = programs.at(vector.program);
    p.contributors = partials.shape[0];
    p.rows = partials.shape[1];
    p.columns = partials.shape[2];
    p.partials = partials.data();
    std::vector<uint8_t> out(tensors.at("want_out").bytes.size());
    p.out = out.data();
    ASSERT_TRUE(MoeFold(p).ok()) << vector.file;
    EXPECT_EQ(out, tensors.at("want_out").bytes) << vector.file;
  }
}

TEST(ActivationGoldenTest, SharedExpertOnAnH200DiffersBetweenProgramsIn18036Of65536) {
  const auto tensors = golden::ReadGoldenTensors("glm52_tp16_shared_expert.safetensors");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  const GoldenTensor& x = tensors->at("x_512x256");  // gate|up packed
  std::vector<uint16_t> one(512 * 128), two(512 * 128);
  SwigluParams p;
  p.rows = 512;
  p.columns = 128;
  p.SetPackedGateUp(x.data());
  p.silu = *FindSiluTable(kSiluSm90Triton, FloatType::kBf16);
  p.program = SwigluProgram::kOneRoundFp32;
  p.out = one.data();
  ASSERT_TRUE(Swiglu(p).ok());
  p.program = SwigluProgram::kTwoRound;
  p.out = two.data();
  ASSERT_TRUE(Swiglu(p).ok());
  const auto bytes = [](const std::vector<uint16_t>& halves) {
    const auto* data = reinterpret_cast<const uint8_t*>(halves.data());
    return std::vector<uint8_t>(data, data + 2 * halves.size());
  };
  EXPECT_EQ(bytes(one), tensors->at("one_512x256").bytes);
  EXPECT_EQ(bytes(two), tensors->at("two_512x256").bytes);
  int differing = 0;
  for (size_t i = 0; i < one.size(); ++i) differing += one[i] != two[i];
  EXPECT_EQ(differing, 18036);
}

}  // namespace
}  // namespace lockstep::kernels
