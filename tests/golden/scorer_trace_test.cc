// The exact scorer over the recorded qwen3_5_dense run: near the log-probabilities that its engine
// recorded (bf16 class, that engine was not exact), and equal to itself however it is run.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/float_formats.h"
#include "kernels/scorer.h"
#include "kernels/simd_targets_for_test.h"
#include "tests/golden/trace_file.h"

namespace lockstep::kernels {
namespace {

constexpr char kTrace[] = "qwen3_5_dense";
constexpr size_t kBatch = 64;
constexpr int kVersions = 4;

using Logprobs = std::vector<std::vector<float>>;

std::vector<ScoredSequence> SequencesOf(const std::vector<TraceRollout>& rollouts, int version) {
  std::vector<ScoredSequence> sequences;
  for (const TraceRollout& rollout : rollouts) {
    if (rollout.policy_version == version) sequences.push_back(rollout.sequence);
  }
  return sequences;
}

Logprobs Score(const Scorer& scorer, const std::vector<ScoredSequence>& batch,
               const ScoreOptions& options = {}) {
  absl::StatusOr<Logprobs> scored = scorer.Score(batch, options);
  EXPECT_TRUE(scored.ok()) << scored.status();
  return scored.ok() ? *std::move(scored) : Logprobs{};
}

std::vector<uint32_t> Bits(const Logprobs& logprobs) {
  std::vector<uint32_t> bits;
  for (const std::vector<float>& sequence : logprobs) {
    for (const float x : sequence) bits.push_back(BitsOf(x));
  }
  return bits;
}

// How far the scores of a version's rollouts are from what the trainer's engine recorded.
struct Difference {
  double largest = 0;
  double largest_probability = 0;
  double sum = 0;
  size_t count = 0;

  void Add(double a, double b) {
    const double d = std::fabs(a - b);
    if (!(d <= largest)) largest = d;  // a NaN is the largest
    largest_probability = std::max(largest_probability, std::fabs(std::exp(a) - std::exp(b)));
    sum += d;
    ++count;
  }
  double mean() const { return sum / static_cast<double>(count); }
};

class ScorerTrace : public ::testing::Test {
 protected:
  Scorer ScorerOf(const TraceCheckpoint& checkpoint) const {
    absl::StatusOr<Scorer> scorer = Scorer::Create(config_, checkpoint.Lookup());
    EXPECT_TRUE(scorer.ok()) << scorer.status();
    return *std::move(scorer);
  }

  const Qwen35DenseConfig config_ = TraceQwenConfig(kTrace);
  const std::vector<TraceRollout> rollouts_ = ReadTraceRollouts(kTrace);
};

// The recording engine rounds to bf16 at other places (logits of 8 to 16 in steps of 1/16, for
// one), so a rare token's log-probability is off by up to a third and a likely one's hardly.
TEST_F(ScorerTrace, LogprobsAreNearTheRecordedOnesInTheirBf16Class) {
  constexpr double kLargest = 0.5, kLargestProbability = 0.2, kMean = 0.006;
  ASSERT_EQ(rollouts_.size(), kVersions * kBatch);
  Difference all;
  for (int version = 0; version < kVersions; ++version) {
    const TraceCheckpoint checkpoint(kTrace, version);
    const Logprobs scored = Score(ScorerOf(checkpoint), SequencesOf(rollouts_, version));
    ASSERT_EQ(scored.size(), kBatch);
    size_t at = 0;
    for (const TraceRollout& rollout : rollouts_) {
      if (rollout.policy_version != version) continue;
      ASSERT_EQ(scored[at].size(), rollout.trainer_logprobs.size());
      for (size_t i = 0; i < scored[at].size(); ++i) {
        all.Add(scored[at][i], rollout.trainer_logprobs[i]);
      }
      ++at;
    }
  }
  std::cout << all.count << " tokens: largest |difference| " << all.largest
            << ", of the probability " << all.largest_probability << ", mean " << all.mean()
            << std::endl;
  EXPECT_LE(all.largest, kLargest);
  EXPECT_LE(all.largest_probability, kLargestProbability);
  EXPECT_LE(all.mean(), kMean);
}

TEST_F(ScorerTrace, BytesDependNeitherOnBatchThreadsInstructionSetNorCp) {
  const TraceCheckpoint checkpoint(kTrace, 1);
  const Scorer scorer = ScorerOf(checkpoint);
  const std::vector<ScoredSequence> batch = SequencesOf(rollouts_, 1);
  const std::vector<uint32_t> want = Bits(Score(scorer, batch));
  std::vector<uint32_t> one_by_one;
  for (const ScoredSequence& sequence : batch) {
    const std::vector<uint32_t> bits = Bits(Score(scorer, {sequence}));
    one_by_one.insert(one_by_one.end(), bits.begin(), bits.end());
  }
  EXPECT_EQ(one_by_one, want);
  for (const int threads : {2, 8}) {
    ScoreOptions options;
    options.threads = threads;
    EXPECT_EQ(Bits(Score(scorer, batch, options)), want) << threads << " threads";
  }
  for (const int cp : {1, 2}) {
    ScoreOptions options;
    options.split = GdnSplit{GdnCpProgram::kCanonicalFold, cp};
    EXPECT_EQ(Bits(Score(scorer, batch, options)), want) << "cp " << cp;
  }
  ForEachSimdTarget([&](const char* target) {
    EXPECT_EQ(Bits(Score(scorer, {batch[0], batch[1]})),
              std::vector<uint32_t>(want.begin(), want.begin() + 10))
        << target;
  });
}

TEST_F(ScorerTrace, ALongSequenceHasTheSameBytesUnderRelayAndALaterTokenChangesNothing) {
  const TraceCheckpoint checkpoint(kTrace, 0);
  const Scorer scorer = ScorerOf(checkpoint);
  std::mt19937_64 random(20);
  ScoredSequence sequence;
  sequence.prompt = {8, 7, 5};
  while (sequence.completion.size() + sequence.prompt.size() < 256) {
    sequence.completion.push_back(static_cast<int64_t>(random() % 64));
  }
  const std::vector<uint32_t> want = Bits(Score(scorer, {sequence}));
  for (const GdnCpProgram program : {GdnCpProgram::kRelay, GdnCpProgram::kCanonicalFold}) {
    ScoreOptions options;
    options.split = GdnSplit{program, 2};
    options.threads = 2;
    EXPECT_EQ(Bits(Score(scorer, {sequence}, options)), want);
  }
  ScoredSequence prefix = sequence;
  prefix.completion.resize(100);
  EXPECT_EQ(Bits(Score(scorer, {prefix})), std::vector<uint32_t>(want.begin(), want.begin() + 100));
}

TEST_F(ScorerTrace, WhatDoesNotFitIsRefused) {
  const TraceCheckpoint checkpoint(kTrace, 0);
  const Scorer scorer = ScorerOf(checkpoint);
  const auto refusal = [&](const std::vector<ScoredSequence>& batch, const ScoreOptions& options) {
    return scorer.Score(batch, options).status().code();
  };
  ScoreOptions relay;
  relay.split = GdnSplit{GdnCpProgram::kRelay, 2};
  EXPECT_EQ(refusal({rollouts_[0].sequence}, relay), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal({}, {}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal({{{}, {1}}}, {}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal({{{1}, {}}}, {}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal({{{1}, {64}}}, {}), absl::StatusCode::kInvalidArgument);
  Qwen35DenseConfig other = config_;
  other.sizes.value_dim = 16;
  const absl::Status status = Scorer::Create(other, checkpoint.Lookup()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("model.layers.0.linear_attn.in_proj_qkv.weight"),
            absl::string_view::npos)
      << status;
}

// GLM-5.2's site over a real checkpoint: 8 experts and a shared expert over 16 contributors.
TEST(MoeSiteTrace, RowsOfARealCheckpointDoNotDependOnTheirBatch) {
  const TraceCheckpoint checkpoint("glm_moe_dsa", 0);
  const std::string prefix = "model.layers.1.mlp.";
  MoeSite site = Glm52MoeSite();
  site.hidden = 128, site.intermediate = site.shared_intermediate = 64;
  site.topk = 2, site.routed_scale = 2.5f;
  MoeWeights w;
  w.router = checkpoint.At(prefix + "gate.weight");
  w.router_bias = checkpoint.At(prefix + "gate.e_score_correction_bias");
  w.experts = StackedExperts(checkpoint.At(prefix + "experts.gate_up_proj"),
                             checkpoint.At(prefix + "experts.down_proj"), 8, 64, 128);
  w.shared = {checkpoint.At(prefix + "shared_experts.gate_proj.weight"),
              checkpoint.At(prefix + "shared_experts.up_proj.weight"),
              checkpoint.At(prefix + "shared_experts.down_proj.weight")};
  const LayerWeight x = checkpoint.At("model.embed_tokens.weight");  // 64 rows
  const auto run = [&](int64_t first, int64_t rows, int threads) {
    LayerRun layer_run;
    layer_run.document_tokens = absl::MakeConstSpan(&rows, 1);
    layer_run.threads = threads;
    std::vector<uint16_t> out(static_cast<size_t>(rows * site.hidden));
    const absl::Status status =
        RunMoeSite(site, w, layer_run, x.bf16() + first * site.hidden, out.data());
    EXPECT_TRUE(status.ok()) << status;
    return out;
  };
  const std::vector<uint16_t> whole = run(0, 64, 1);
  EXPECT_EQ(run(0, 64, 8), whole);
  for (int64_t row = 0; row < 64; row += 7) {
    const std::vector<uint16_t> alone = run(row, 1, 1);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), whole.begin() + row * site.hidden)) << row;
  }
}

}  // namespace
}  // namespace lockstep::kernels
