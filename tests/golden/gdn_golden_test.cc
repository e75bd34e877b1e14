// The gated delta net against recorded outputs of the reference implementation: near (1e-5), since
// the reference is not exact.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/gdn.h"
#include "tests/golden/golden_file.h"

namespace lockstep::kernels {
namespace {

constexpr float kTolerance = 1e-5f;

float LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    // Written so that a NaN is the largest.
    const float difference = std::fabs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

TEST(GdnGolden, BothProgramsAreNearTheRecordedReferenceWithAndWithoutAStartState) {
  const GoldenFile file("gdn_fp32.safetensors");
  const auto q = file.Values<float>("q"), k = file.Values<float>("k"), v = file.Values<float>("v");
  const auto g = file.Values<float>("g"), beta = file.Values<float>("beta");
  const auto s0 = file.Values<float>("s0");
  const auto dim = [&](const std::string& name, size_t axis) {
    return static_cast<int64_t>(file.Shape(name).at(axis));
  };
  for (const auto& [program, prefix] :
       {std::pair(GdnProgram::kChunk64, "chunk"), std::pair(GdnProgram::kRecurrent, "rec")}) {
    for (bool with_state : {false, true}) {
      std::vector<float> o(v.size());
      std::vector<float> state(s0.size());
      GdnParams p;
      p.program = program;
      p.tokens = dim("q", 1), p.key_heads = dim("q", 2), p.key_dim = dim("q", 3);
      p.value_heads = dim("v", 2), p.value_dim = dim("v", 3);
      p.q = q.data(), p.k = k.data(), p.v = v.data(), p.g = g.data(), p.beta = beta.data();
      p.s0 = with_state ? s0.data() : nullptr;
      p.o = o.data(), p.state = state.data();
      ASSERT_TRUE(Gdn(p).ok());
      const std::string name = std::string(prefix) + (with_state ? "1" : "0");
      const float o_difference = LargestDifference(o, file.Values<float>(name + "_o"));
      const float state_difference = LargestDifference(state, file.Values<float>(name + "_state"));
      EXPECT_LE(o_difference, kTolerance) << name;
      EXPECT_LE(state_difference, kTolerance) << name;
      RecordProperty(name + "_o", std::to_string(o_difference));
      RecordProperty(name + "_state", std::to_string(state_difference));
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels
