// SwiGLU, its derivative, MoE leaves and folds against recorded bytes.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/moe.h"
#include "kernels/swiglu.h"
#include "tests/golden/golden_file.h"

namespace lockstep::kernels {
namespace {

using Halves = std::vector<uint16_t>;

int64_t Dim(const GoldenFile& file, const std::string& name, size_t axis) {
  return static_cast<int64_t>(file.Shape(name).at(axis));
}

TEST(ActivationGoldenTest, SwigluGivesTheRecordedBytesOfEveryProgramAndRealisation) {
  const std::map<std::string, SwigluProgram> programs = {
      {kSwigluOneRoundId, SwigluProgram::kOneRoundFp32},
      {kSwigluTwoRoundId, SwigluProgram::kTwoRound},
      {kSwigluClampedId, SwigluProgram::kOneRoundFp32Clamped}};
  std::set<std::string> seen;
  for (const GoldenCase& c : GoldenCasesOf("swiglu")) {
    seen.insert(c.program + " " + c.realisation);
    const GoldenFile file(c.file);
    const Halves gate = file.Values<uint16_t>("gate"), up = file.Values<uint16_t>("up");
    Halves out(gate.size());
    SwigluParams p;
    p.program = programs.at(c.program);
    p.rows = Dim(file, "gate", 0);
    p.columns = Dim(file, "gate", 1);
    p.gate = gate.data();
    p.up = up.data();
    p.out = out.data();
    p.limit = c.Option("limit", 0);
    p.silu = *FindSiluTable(c.realisation, FloatType::kBf16);
    ASSERT_TRUE(Swiglu(p).ok()) << c.file;
    EXPECT_EQ(out, file.Values<uint16_t>("want_out")) << c.file;
  }
  EXPECT_EQ(seen.size(), 9u);
}

TEST(ActivationGoldenTest, SwigluVjpGivesTheRecordedBytesByTableAndComputed) {
  constexpr const GateTable* kComputed = nullptr;
  for (const GoldenCase& c : GoldenCasesOf("swiglu_vjp")) {
    const GoldenFile file(c.file);
    const Halves gate = file.Values<uint16_t>("gate"), up = file.Values<uint16_t>("up");
    const Halves dout = file.Values<uint16_t>("dout");
    for (const GateTable* sigmoid : {*FindSigmoidTable(FloatType::kBf16), kComputed}) {
      Halves dgate(gate.size()), dup(gate.size());
      SwigluVjpParams p;
      p.rows = Dim(file, "gate", 0);
      p.columns = Dim(file, "gate", 1);
      p.gate = gate.data();
      p.up = up.data();
      p.dout = dout.data();
      p.dgate = dgate.data();
      p.dup = dup.data();
      p.sigmoid = sigmoid;
      ASSERT_TRUE(SwigluVjp(p).ok()) << c.file;
      EXPECT_EQ(dgate, file.Values<uint16_t>("want_dgate")) << c.file;
      EXPECT_EQ(dup, file.Values<uint16_t>("want_dup")) << c.file;
    }
  }
}

TEST(ActivationGoldenTest, MoeLeafGivesTheRecordedBytesOfEveryProgram) {
  const std::map<std::string, MoeLeafProgram> programs = {
      {kMoeLeafBf16AddId, MoeLeafProgram::kBf16Add}, {kMoeLeafFp32FmaId, MoeLeafProgram::kFp32Fma}};
  std::set<std::string> seen;
  for (const GoldenCase& c : GoldenCasesOf("moe_leaf")) {
    seen.insert(c.program);
    const GoldenFile file(c.file);
    const Halves routed = file.Values<uint16_t>("routed"), shared = file.Values<uint16_t>("shared");
    Halves out(routed.size());
    MoeLeafParams p;
    p.program = programs.at(c.program);
    p.rows = Dim(file, "routed", 0);
    p.columns = Dim(file, "routed", 1);
    p.routed = routed.data();
    p.shared = shared.data();
    p.out = out.data();
    p.scale = c.Option("scale", 1);
    ASSERT_TRUE(MoeLeaf(p).ok()) << c.file;
    EXPECT_EQ(out, file.Values<uint16_t>("want_out")) << c.file;
  }
  EXPECT_EQ(seen.size(), 2u);
}

TEST(ActivationGoldenTest, MoeFoldGivesTheRecordedBytesOfEveryProgram) {
  const std::map<std::string, MoeFoldProgram> programs = {
      {kMoeFoldBf16TreeId, MoeFoldProgram::kBf16Tree},
      {kMoeFoldFp32TreeId, MoeFoldProgram::kFp32Tree},
      {kMoeFoldFp64TreeId, MoeFoldProgram::kFp64Tree}};
  std::set<std::string> seen;
  for (const GoldenCase& c : GoldenCasesOf("moe_fold")) {
    seen.insert(c.program);
    const GoldenFile file(c.file);
    const Halves partials = file.Values<uint16_t>("partials");
    MoeFoldParams p;
    p.program = programs.at(c.program);
    p.contributors = Dim(file, "partials", 0);
    p.rows = Dim(file, "partials", 1);
    p.columns = Dim(file, "partials", 2);
    Halves out(p.rows * p.columns);
    p.partials = partials.data();
    p.out = out.data();
    ASSERT_TRUE(MoeFold(p).ok()) << c.file;
    EXPECT_EQ(out, file.Values<uint16_t>("want_out")) << c.file;
  }
  EXPECT_EQ(seen.size(), 3u);
}

TEST(ActivationGoldenTest, SharedExpertOnAnH200DiffersBetweenProgramsIn18036Of65536) {
  const GoldenFile file("glm52_tp16_shared_expert.safetensors");
  const Halves x = file.Values<uint16_t>("x_512x256");  // gate|up packed
  Halves one(512 * 128), two(512 * 128);
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
  EXPECT_EQ(one, file.Values<uint16_t>("one_512x256"));
  EXPECT_EQ(two, file.Values<uint16_t>("two_512x256"));
  int differing = 0;
  for (size_t i = 0; i < one.size(); ++i) differing += one[i] != two[i];
  EXPECT_EQ(differing, 18036);
}

}  // namespace
}  // namespace lockstep::kernels
