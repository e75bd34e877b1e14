#include "bridge/wire/wire.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "bridge/wire/limits.h"
#include "bridge/wire/wire_testing.h"

namespace lockstep::wire {
namespace {

template <typename T>
const T& BodyOf(const absl::StatusOr<Envelope>& envelope) {
  return std::get<T>(envelope->body);
}

Envelope WithBody(Message body) {
  return {.incarnation = {1, 2, 3}, .seq = 7, .reply_to = 0, .body = std::move(body)};
}

RC_GTEST_PROP(WireTest, EveryMessageComesBackBitForBit, (uint64_t seed)) {
  RandomFiller filler(seed);
  for (size_t kind = 0; kind < kMessageKinds; ++kind) {
    const Envelope sent = filler.RandomEnvelope(kind);
    const absl::StatusOr<Envelope> received = Decode(Encode(sent));
    if (!received.ok()) RC_LOG() << "kind " << kind << ": " << received.status() << '\n';
    RC_ASSERT(received.ok());
    RC_ASSERT(received->body.index() == kind);
    RC_ASSERT(SameBits(*received, sent));
  }
}

RC_GTEST_PROP(WireTest, EveryBlobComesBackBitForBit, (uint64_t seed)) {
  RandomFiller filler(seed);
  const auto decision = filler.Random<Decision>();
  RC_ASSERT(SameBits(DecodeDecision(EncodeDecision(decision)).value(), decision));
  const auto rollout = filler.Random<Rollout>();
  RC_ASSERT(SameBits(DecodeRollout(EncodeRollout(rollout)).value(), rollout));
  const auto manifest = filler.Random<Manifest>();
  RC_ASSERT(SameBits(DecodeManifest(EncodeManifest(manifest)).value(), manifest));
  const auto digest = filler.Random<VersionDigest>();
  RC_ASSERT(SameBits(DecodeVersionDigest(EncodeVersionDigest(digest)).value(), digest));
  const auto components = filler.Random<std::vector<ComponentDigest>>();
  RC_ASSERT(SameBits(DecodeComponents(EncodeComponents(components)).value(), components));
  const auto evidence = filler.Random<Evidence>();
  RC_ASSERT(SameBits(DecodeEvidence(EncodeEvidence(evidence)).value(), evidence));
  const auto refusals = filler.Random<std::vector<Refusal>>();
  RC_ASSERT(SameBits(DecodeRefusals(EncodeRefusals(refusals)).value(), refusals));
}

TEST(WireTest, RandomContentAndItsComparisonAreNotVacuous) {
  const auto one = RandomFiller(1).Random<Decision>();
  EXPECT_FALSE(SameBits(one, RandomFiller(2).Random<Decision>()));
  Decision other = one;
  other.mismatched_tokens ^= 1;
  EXPECT_FALSE(SameBits(other, one));
}

TEST(WireTest, OneEncodingForOneMessage) {
  for (size_t kind = 0; kind < kMessageKinds; ++kind) {
    EXPECT_EQ(Encode(RandomFiller(5).RandomEnvelope(kind)),
              Encode(RandomFiller(5).RandomEnvelope(kind)));
  }
}

TEST(WireTest, BlobOfOneKindIsNoOther) {
  EXPECT_FALSE(DecodeRollout(EncodeDecision({})).ok());
  EXPECT_FALSE(DecodeComponents(EncodeRefusals({})).ok());
  EXPECT_FALSE(DecodeManifest(Encode(WithBody(Ping{}))).ok());
  EXPECT_FALSE(Decode(EncodeManifest({})).ok());
}

TEST(WireTest, HeaderOfRefusedBodyIsReadable) {
  Envelope envelope = WithBody(Hello{.role = PeerRole::kSampler,
                                     .name = std::string(kMaxNameBytes + 1, 'x'),
                                     .run = "",
                                     .software = ""});
  envelope.reply_to = 9;
  const std::vector<uint8_t> frame = Encode(envelope);
  const absl::StatusOr<Envelope> decoded = Decode(frame);
  EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(decoded.status().message().find("hello.name"), absl::string_view::npos);
  const absl::StatusOr<EnvelopeHeader> header = DecodeHeader(frame);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->incarnation, envelope.incarnation);
  EXPECT_EQ(header->seq, 7u);
  EXPECT_EQ(header->reply_to, 9u);
}

TEST(WireTest, NameAtTheLimitIsAccepted) {
  const Hello hello{.role = PeerRole::kSampler,
                    .name = std::string(kMaxNameBytes, 'x'),
                    .run = "",
                    .software = ""};
  const absl::StatusOr<Envelope> decoded = Decode(Encode(WithBody(hello)));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(BodyOf<Hello>(decoded).name, hello.name);
}

TEST(WireTest, TextThatIsNotUtf8IsRefused) {
  const Hello hello{.role = PeerRole::kSampler, .name = "s\xff", .run = "", .software = ""};
  const absl::StatusOr<Envelope> decoded = Decode(Encode(WithBody(hello)));
  ASSERT_FALSE(decoded.ok());
  EXPECT_NE(decoded.status().message().find("UTF-8"), absl::string_view::npos);
}

TEST(WireTest, RolloutBeyondItsLimitsIsRefused) {
  SubmitRollout submit;
  submit.rollout.tokens.resize(kMaxRolloutTokens);
  EXPECT_TRUE(Decode(Encode(WithBody(submit))).ok());
  submit.rollout.tokens.resize(kMaxRolloutTokens + 1);
  EXPECT_FALSE(Decode(Encode(WithBody(submit))).ok());
  submit.rollout.tokens.clear();
  submit.rollout.spans.resize(kMaxRolloutSpans + 1);
  EXPECT_FALSE(Decode(Encode(WithBody(submit))).ok());
}

TEST(WireTest, LogprobsOfAnotherCountThanTokensAreTheCoresToJudge) {
  SubmitRollout submit;
  submit.rollout.tokens = {1, 2, 3};
  submit.rollout.sampler_logprobs = {0.5f};
  EXPECT_TRUE(Decode(Encode(WithBody(submit))).ok());
}

TEST(WireTest, RefusalsAreMadeToFit) {
  Refused refused;
  refused.refusals.assign(kMaxRefusals + 10, {RefusalCode::kManifestMismatch, "k", "m"});
  refused.refusals[0].message = std::string(kMaxRefusalMessageBytes - 1, 'a') + "é";
  refused.refusals[1].message = "bad \xc3( byte";
  const absl::StatusOr<Envelope> decoded = Decode(Encode(WithBody(refused)));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const std::vector<Refusal>& got = BodyOf<Refused>(decoded).refusals;
  ASSERT_EQ(got.size(), kMaxRefusals);
  EXPECT_EQ(got[0].message, std::string(kMaxRefusalMessageBytes - 1, 'a'));
  EXPECT_EQ(got[1].message, "bad ?( byte");
  EXPECT_EQ(got.back().code, RefusalCode::kManifestMismatch);
  EXPECT_NE(got.back().message.find("and 11 more"), std::string::npos) << got.back().message;
}

TEST(WireTest, OptionalEmptyListIsNotAnAbsentOne) {
  SubmitRolloutFor submit;
  EXPECT_FALSE(
      BodyOf<SubmitRolloutFor>(Decode(Encode(WithBody(submit)))).trainer_logprobs.has_value());
  submit.trainer_logprobs.emplace();
  EXPECT_TRUE(
      BodyOf<SubmitRolloutFor>(Decode(Encode(WithBody(submit)))).trainer_logprobs.has_value());
  RegisterSampler sampler;
  EXPECT_FALSE(BodyOf<RegisterSampler>(Decode(Encode(WithBody(sampler)))).manifest.has_value());
  sampler.manifest.emplace();
  EXPECT_TRUE(BodyOf<RegisterSampler>(Decode(Encode(WithBody(sampler)))).manifest.has_value());
}

}  // namespace
}  // namespace lockstep::wire
