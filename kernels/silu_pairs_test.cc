// How SiLU realisations show in SwiGLU over all 2^32 gate x up pairs: exact counts, which random
// operands would not find. Only gates whose table entries differ can matter, so only those run.

#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/float_formats.h"
#include "kernels/gate_table.h"
#include "kernels/swiglu.h"

namespace lockstep::kernels {
namespace {

using Halves = std::vector<uint16_t>;

Halves AllPatterns() {
  Halves patterns(65536);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  return patterns;
}

// out[u] = swiglu(gate, u) for every bf16 u.
void RunAllUps(SwigluProgram program, const GateTable& table, uint16_t gate, Halves* out) {
  static const Halves ups = AllPatterns();
  const Halves gates(ups.size(), gate);
  out->resize(ups.size());
  SwigluParams p;
  p.program = program;
  p.rows = 1;
  p.columns = static_cast<int64_t>(ups.size());
  p.gate = gates.data();
  p.up = ups.data();
  p.out = out->data();
  p.silu = &table;
  ASSERT_TRUE(Swiglu(p).ok());
}

int CountDifferingPairs(SwigluProgram program, const char* first, const char* second) {
  const GateTable& a = **FindSiluTable(first, FloatType::kBf16);
  const GateTable& b = **FindSiluTable(second, FloatType::kBf16);
  int differing = 0;
  Halves of_a, of_b;
  for (size_t gate = 0; gate < kGateTableEntries; ++gate) {
    if (BitsOf(a.values()[gate]) == BitsOf(b.values()[gate])) continue;
    RunAllUps(program, a, static_cast<uint16_t>(gate), &of_a);
    RunAllUps(program, b, static_cast<uint16_t>(gate), &of_b);
    for (size_t up = 0; up < of_a.size(); ++up) differing += of_a[up] != of_b[up];
  }
  return differing;
}

TEST(SiluPairsTest, OneRoundTellsRealisationsApartInTheStatedNumberOfPairs) {
  constexpr SwigluProgram kOneRound = SwigluProgram::kOneRoundFp32;
  EXPECT_EQ(CountDifferingPairs(kOneRound, kSiluSm90Triton, kSiluTorchCuda), 5734);
  EXPECT_EQ(CountDifferingPairs(kOneRound, kSiluSm90Triton, kSiluIeee), 24194);
  EXPECT_EQ(CountDifferingPairs(kOneRound, kSiluTorchCuda, kSiluIeee), 18468);
  EXPECT_EQ(CountDifferingPairs(kOneRound, kSiluTorchCpu, kSiluIeee), 2);
}

TEST(SiluPairsTest, TwoRoundNeverTellsRealisationsApart) {
  constexpr SwigluProgram kTwoRound = SwigluProgram::kTwoRound;
  EXPECT_EQ(CountDifferingPairs(kTwoRound, kSiluSm90Triton, kSiluIeee), 0);
  EXPECT_EQ(CountDifferingPairs(kTwoRound, kSiluTorchCuda, kSiluIeee), 0);
  EXPECT_EQ(CountDifferingPairs(kTwoRound, kSiluTorchCpu, kSiluIeee), 0);
}

}  // namespace
}  // namespace lockstep::kernels
