#include "kernels/gdn_cp.h"

#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cp_segments.h"
#include "kernels/gdn_inputs_for_test.h"
#include "kernels/parallel.h"

namespace lockstep::kernels {
namespace {

bool SameBytes(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<int> Owners(const std::vector<CpSegment>& segments) {
  std::vector<int> owners;
  for (const CpSegment& segment : segments) owners.push_back(segment.owner);
  return owners;
}

TEST(CpSegmentsTest, ZigzagGivesRankZeroTheFirstAndTheLastSegment) {
  const auto relay = RelaySegments(1'024, 4);
  ASSERT_TRUE(relay.ok());
  EXPECT_EQ(Owners(*relay), (std::vector<int>{0, 1, 2, 3, 3, 2, 1, 0}));
  for (size_t i = 0; i < relay->size(); ++i) {
    EXPECT_EQ((*relay)[i].first, static_cast<int64_t>(i) * 128);
    EXPECT_EQ((*relay)[i].count, 128);
  }
  const auto fold = FoldSegments(6 * 1'024 + 1, 2);
  ASSERT_TRUE(fold.ok());
  EXPECT_EQ(Owners(*fold), (std::vector<int>{0, 1, 1, 0, 0, 1, 1}));
  EXPECT_EQ(fold->back().count, 1);
  EXPECT_EQ(LocalTokens(*fold, 0), 3 * 1'024);
  const auto few = FoldSegments(1'025, 8);
  ASSERT_TRUE(few.ok());
  EXPECT_EQ(LocalTokens(*few, 7), 0);
}

TEST(CpSegmentsTest, LengthsThatDoNotDivideAreRefusedByRelayOnly) {
  EXPECT_FALSE(RelaySegments(192, 2).ok());
  EXPECT_FALSE(RelaySegments(1'000, 2).ok());
  EXPECT_TRUE(RelaySegments(1'000, 1).ok());
  EXPECT_TRUE(FoldSegments(1'000, 2).ok());
  EXPECT_FALSE(RelaySegments(0, 1).ok());
  EXPECT_FALSE(FoldSegments(64, 0).ok());
  EXPECT_FALSE(FoldSegments(64, kMaxCp + 1).ok());
}

TEST(GdnCpTest, RelayGivesTheUnsplitChunkBytesForEveryRankCount) {
  GdnCase c(2'048, 1, 2, 16, 24, 21);
  ASSERT_TRUE(Gdn(c.Params(GdnProgram::kChunk64)).ok());
  const std::vector<float> want_o = c.o;
  const std::vector<float> want_state = c.state;
  for (int cp : {1, 2, 4, 8}) {
    std::fill(c.o.begin(), c.o.end(), 0.0f);
    const absl::Status status =
        GdnCpSimulated(c.Params(GdnProgram::kChunk64), GdnCpProgram::kRelay, cp);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(SameBytes(c.o, want_o)) << cp;
    EXPECT_TRUE(SameBytes(c.state, want_state)) << cp;
  }
}

TEST(GdnCpTest, CanonicalFoldGivesOneAnswerForEveryRankCountAndAnyLength) {
  for (int64_t tokens : {1, 700, 1'024, 1'025, 4'133}) {
    GdnCase c(tokens, 1, 2, 16, 8, static_cast<uint64_t>(tokens));
    ASSERT_TRUE(
        GdnCpSimulated(c.Params(GdnProgram::kChunk64), GdnCpProgram::kCanonicalFold, 1).ok());
    const std::vector<float> o = c.o;
    const std::vector<float> state = c.state;
    for (int cp : {2, 4, 8}) {
      std::fill(c.o.begin(), c.o.end(), 0.0f);
      const absl::Status status =
          GdnCpSimulated(c.Params(GdnProgram::kChunk64), GdnCpProgram::kCanonicalFold, cp);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_TRUE(SameBytes(c.o, o)) << "T=" << tokens << " cp=" << cp;
      EXPECT_TRUE(SameBytes(c.state, state)) << "T=" << tokens << " cp=" << cp;
    }
    // It is the same function as the unsplit one, in another order of operations.
    ASSERT_TRUE(Gdn(c.Params(GdnProgram::kChunk64)).ok());
    for (size_t i = 0; i < o.size(); ++i) ASSERT_NEAR(c.o[i], o[i], 1e-5f);
    for (size_t i = 0; i < state.size(); ++i) ASSERT_NEAR(c.state[i], state[i], 1e-5f);
    EXPECT_EQ(SameBytes(c.o, o), tokens <= 1'024);
  }
}

TEST(GdnCpTest, StartStateAndThreadsChangeNothingButTheStart) {
  GdnCase c(2'100, 2, 4, 8, 8, 4);
  GdnParams p = c.Params(GdnProgram::kChunk64);
  p.threads = 5;
  ASSERT_TRUE(GdnCpSimulated(p, GdnCpProgram::kCanonicalFold, 2).ok());
  const std::vector<float> with_start = c.o;
  ASSERT_TRUE(GdnCpSimulated(c.Params(GdnProgram::kChunk64), GdnCpProgram::kCanonicalFold, 4).ok());
  EXPECT_TRUE(SameBytes(c.o, with_start));
  p.s0 = nullptr;
  ASSERT_TRUE(GdnCpSimulated(p, GdnCpProgram::kCanonicalFold, 2).ok());
  EXPECT_FALSE(SameBytes(c.o, with_start));
}

TEST(GdnCpTest, WhatCannotBeSplitIsRefusedNeverRunAnotherWay) {
  GdnCase c(192, 1, 1, 8, 8, 2);
  const auto refused = [&](GdnCpProgram program, int cp, auto change) {
    GdnParams p = c.Params(GdnProgram::kChunk64);
    change(p);
    return GdnCpSimulated(p, program, cp).code() == absl::StatusCode::kInvalidArgument &&
           c.o[0] == -7.0f;
  };
  EXPECT_TRUE(refused(GdnCpProgram::kRelay, 2, [](GdnParams&) {}));
  EXPECT_TRUE(refused(GdnCpProgram::kRelay, 0, [](GdnParams&) {}));
  EXPECT_TRUE(refused(GdnCpProgram::kRelay, 1, [](GdnParams& p) { p.document_offset = 64; }));
  EXPECT_TRUE(refused(GdnCpProgram::kRelay, 1, [](GdnParams& p) { p.batch = 2; }));
  EXPECT_TRUE(refused(GdnCpProgram::kCanonicalFold, 2,
                      [](GdnParams& p) { p.state_type = FloatType::kBf16; }));
}

// Passes everything on, but damages one message on its way.
class Tampering : public CpExchange {
 public:
  Tampering(CpExchange& real, int message, size_t byte)
      : real_(real), message_(message), byte_(byte) {}

  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  absl::Status Send(int to, absl::Span<const uint8_t> data) override {
    std::vector<uint8_t> bytes(data.begin(), data.end());
    if (sent_++ == message_) bytes[byte_] ^= 1;
    return real_.Send(to, bytes);
  }
  absl::Status Receive(int from, absl::Span<uint8_t> data) override {
    return real_.Receive(from, data);
  }
  absl::Status AllGather(absl::Span<const uint8_t> mine, absl::Span<uint8_t> all) override {
    return real_.AllGather(mine, all);
  }
  absl::Status Broadcast(int root, absl::Span<uint8_t> data) override {
    return real_.Broadcast(root, data);
  }

 private:
  CpExchange& real_;
  const int message_;
  const size_t byte_;
  int sent_ = 0;
};

TEST(GdnCpTest, AWrongReceiptOrStateStopsTheReceiverBeforeItComputes) {
  struct Damage {
    int message;  // 0: receipt, 1: state
    size_t byte;
    absl::StatusCode want;
  };
  for (const Damage& damage :
       {Damage{0, offsetof(GdnStateReceipt, sender), absl::StatusCode::kFailedPrecondition},
        Damage{0, offsetof(GdnStateReceipt, receiver), absl::StatusCode::kFailedPrecondition},
        Damage{0, offsetof(GdnStateReceipt, document_offset),
               absl::StatusCode::kFailedPrecondition},
        Damage{0, offsetof(GdnStateReceipt, digest), absl::StatusCode::kDataLoss},
        Damage{1, 3, absl::StatusCode::kDataLoss}}) {
    GdnCase c(256, 1, 1, 8, 8, 2);
    LocalCpGroup group(2);
    absl::Status results[2];
    std::vector<float> states[2];
    std::vector<float> outs[2];
    ParallelFor(2, 2, [&](size_t rank, size_t) {
      // Relay over 2 ranks: segments of 64, owners 0 1 1 0. The bytes do not matter here.
      GdnCpParams p;
      p.document_tokens = 256;
      p.local = c.Params(GdnProgram::kChunk64);
      p.local.tokens = 128;
      states[rank].resize(64);
      outs[rank].assign(128 * 8, -7.0f);
      p.local.state = states[rank].data();
      p.local.o = outs[rank].data();
      Tampering exchange(group.Rank(static_cast<int>(rank)), rank == 0 ? damage.message : -1,
                         damage.byte);
      results[rank] = GdnCpRank(p, exchange);
      if (!results[rank].ok()) group.Abort(results[rank]);
    });
    EXPECT_EQ(results[1].code(), damage.want) << results[1];
    EXPECT_FALSE(results[0].ok());
    EXPECT_EQ(outs[1][0], -7.0f);
  }
}

TEST(LocalCpGroupTest, SilenceEndsInADeadlineAndOtherLengthsAreDataLoss) {
  LocalCpGroup group(2, std::chrono::milliseconds(20));
  std::vector<uint8_t> bytes(3);
  EXPECT_EQ(group.Rank(0).Receive(1, absl::MakeSpan(bytes)).code(),
            absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(group.Rank(1).Send(0, {bytes.data(), 2}).ok());
  EXPECT_EQ(group.Rank(0).Receive(1, absl::MakeSpan(bytes)).code(), absl::StatusCode::kDataLoss);
  group.Abort(absl::AbortedError("a rank failed"));
  EXPECT_EQ(group.Rank(0).Send(1, bytes).code(), absl::StatusCode::kAborted);
}

TEST(GdnCpTest, ReceiptsNameTheFieldThatIsWrong) {
  GdnCase c(64, 1, 2, 4, 4, 1);
  const GdnParams shape = c.Params(GdnProgram::kChunk64);
  const GdnStateReceipt good = MakeGdnReceipt(1, 2, 128, shape, c.s0);
  EXPECT_TRUE(CheckGdnReceipt(good, 1, 2, 128, shape, c.s0).ok());
  const auto message = [&](auto change) {
    GdnStateReceipt receipt = good;
    change(receipt);
    return std::string(CheckGdnReceipt(receipt, 1, 2, 128, shape, c.s0).message());
  };
  EXPECT_NE(message([](auto& r) { r.sender = 0; }).find("sender"), std::string::npos);
  EXPECT_NE(message([](auto& r) { r.receiver = 0; }).find("receiver"), std::string::npos);
  EXPECT_NE(message([](auto& r) { r.document_offset = 64; }).find("offset"), std::string::npos);
  EXPECT_NE(message([](auto& r) { r.type = FloatType::kBf16; }).find("F32"), std::string::npos);
  EXPECT_NE(message([](auto& r) { r.value_heads = 1; }).find("heads"), std::string::npos);
  EXPECT_NE(message([](auto& r) { r.key_dim = 8; }).find("key dim"), std::string::npos);
  EXPECT_NE(message([](auto& r) { r.value_dim = 8; }).find("value dim"), std::string::npos);
  EXPECT_NE(message([](auto& r) { r.digest[0] ^= 1; }).find("digest"), std::string::npos);
  const GdnStateReceipt off_grid = MakeGdnReceipt(1, 2, 100, shape, c.s0);
  EXPECT_NE(CheckGdnReceipt(off_grid, 1, 2, 100, shape, c.s0).message().find("grid"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::kernels
