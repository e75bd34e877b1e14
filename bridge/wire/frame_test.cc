// Frames that no sender of ours writes: damaged, foreign, hostile.

#include "bridge/wire/frame.h"

#include <capnp/message.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bridge/schema/control.capnp.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/wire.h"
#include "bridge/wire/wire_testing.h"

namespace lockstep::wire {
namespace {

using Bytes = std::vector<uint8_t>;

// `frame` with a header that is right for its payload.
Bytes Checksummed(const Bytes& frame) {
  return FrameAround(kMessageFormat, absl::MakeConstSpan(frame).subspan(kFrameHeaderBytes));
}

constexpr uint8_t kIncarnationBytes[16] = {1};
constexpr uint8_t kDigestBytes[32] = {2};

// A frame with a right header around whatever `fill` does to an envelope.
Bytes Craft(const std::function<void(schema::Envelope::Builder)>& fill) {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<schema::Envelope>();
  root.setIncarnation(kj::arrayPtr(kIncarnationBytes, 16));
  fill(root);
  return BuildFrame(kMessageFormat, message);
}

void ExpectRefused(const Bytes& frame, const std::string& needle) {
  const absl::StatusOr<Envelope> decoded = Decode(frame);
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(decoded.status().message().find(needle), absl::string_view::npos)
      << decoded.status() << " does not say '" << needle << "'";
}

// The messages of these tests: one small, one with texts and lists, one with digests.
std::vector<Bytes> SomeFrames() {
  constexpr size_t kHello = 0, kSubmitRollout = 28, kVerified = 19;
  std::vector<Bytes> frames;
  for (size_t kind : {kHello, kSubmitRollout, kVerified}) {
    frames.push_back(Encode(RandomFiller(11).RandomEnvelope(kind)));
  }
  return frames;
}

TEST(FrameTest, EverySingleBitFlipIsRefused) {
  for (const Bytes& frame : SomeFrames()) {
    ASSERT_TRUE(Decode(frame).ok());
    for (size_t bit = 0; bit < 8 * frame.size(); ++bit) {
      Bytes damaged = frame;
      damaged[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
      ASSERT_FALSE(Decode(damaged).ok()) << "bit " << bit;
    }
  }
}

TEST(FrameTest, EveryTruncationIsRefused) {
  for (const Bytes& frame : SomeFrames()) {
    for (size_t size = 0; size < frame.size(); ++size) {
      ASSERT_FALSE(Decode(absl::MakeConstSpan(frame).first(size)).ok()) << "size " << size;
    }
  }
}

TEST(FrameTest, TrailingBytesAreRefused) {
  for (Bytes frame : SomeFrames()) {
    for (int extra = 0; extra < 16; ++extra) {
      frame.push_back(0);
      ASSERT_FALSE(Decode(frame).ok());
    }
  }
}

TEST(FrameTest, TrailingWordsUnderARightChecksumAreRefused) {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<schema::Envelope>();
  root.setIncarnation(kj::arrayPtr(kIncarnationBytes, 16));
  root.initBody().initPing();
  Bytes frame = BuildFrame(kMessageFormat, message);
  frame.resize(frame.size() + 8, 0);
  ExpectRefused(Checksummed(frame), "words follow it");
}

TEST(FrameTest, MisalignedFrameDecodes) {
  const Bytes frame = SomeFrames()[1];
  for (size_t shift = 0; shift < 8; ++shift) {
    Bytes storage(frame.size() + shift);
    std::memcpy(storage.data() + shift, frame.data(), frame.size());
    EXPECT_TRUE(Decode(absl::MakeConstSpan(storage).subspan(shift)).ok()) << shift;
  }
}

TEST(FrameTest, OtherProtocolVersionIsToldApartWhateverFollows) {
  const Bytes frames[] = {
      {'L', 'K', 'S', 'T', 0x39, 0x30},  // nothing else
      {'L', 'K', 'S', 'T', 0x39, 0x30, 0xff, 0xff, 'a', 'n', 'y', 't', 'h', 'i', 'n', 'g', '!'},
  };
  for (const Bytes& frame : frames) {
    const absl::Status status = Decode(frame).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(IsProtocolVersionError(status));
    EXPECT_NE(status.message().find("12345"), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find(std::to_string(kProtocolVersion)), absl::string_view::npos);
    EXPECT_TRUE(IsProtocolVersionError(DecodeHeader(frame).status()));
  }
  EXPECT_FALSE(IsProtocolVersionError(Decode(Bytes{'L', 'K', 'S', 'T', 1}).status()));
  EXPECT_FALSE(IsProtocolVersionError(Decode(Bytes{}).status()));
  EXPECT_FALSE(IsProtocolVersionError(absl::OkStatus()));
}

TEST(FrameTest, EmptyPayloadIsRefused) {
  Bytes frame = SomeFrames()[0];
  frame.resize(kFrameHeaderBytes);
  ExpectRefused(Checksummed(frame), "damaged frame");
}

TEST(FrameTest, UnknownKindIsRefused) {
  Bytes frame = Craft([](auto root) { root.initBody().initPing(); });
  // The discriminant is a uint16 in the envelope's data section; find it by its value.
  bool refused = false;
  const uint16_t ping = static_cast<uint16_t>(schema::Envelope::Body::PING);
  for (size_t at = kFrameHeaderBytes; at + 2 <= frame.size(); at += 2) {
    if (frame[at] != ping || frame[at + 1] != 0) continue;
    Bytes changed = frame;
    changed[at] = 0xee;
    const absl::Status status = Decode(Checksummed(changed)).status();
    refused |= status.message().find("its kind 238 is none") != absl::string_view::npos;
  }
  EXPECT_TRUE(refused);
}

TEST(FrameTest, EnumeratorOfNoMeaningIsRefused) {
  ExpectRefused(Craft([](auto root) {
                  root.initBody().initHello().setRole(static_cast<schema::PeerRole>(3));
                }),
                "hello.role");
  ExpectRefused(Craft([](auto root) {
                  auto tensors = root.initBody().initRoundStart().initManifest().initTensors(1);
                  tensors[0].setDtype(static_cast<schema::Dtype>(16));
                }),
                "tensor.dtype");
}

TEST(FrameTest, UnknownReasonIsRefused) {
  ExpectRefused(
      Craft([](auto root) { root.initBody().initFence().initRefusal().setCode("because"); }),
      "'because'");
}

TEST(FrameTest, DigestOfAnotherSizeIsRefused) {
  for (unsigned size : {0u, 31u, 33u}) {
    const Bytes frame = Craft([size](auto root) {
      auto key = root.initBody().initRoundKey();
      const std::vector<uint8_t> bytes(size);
      key.setKey(kj::arrayPtr(bytes.data(), bytes.size()));
    });
    ExpectRefused(frame, "round_key.key");
  }
  ExpectRefused(Craft([](auto root) {
                  auto digest = root.initBody().initVerified().initDigest();
                  digest.setManifestRoot(kj::arrayPtr(kDigestBytes, 32));
                  digest.setTensorRoots(kj::arrayPtr(kDigestBytes, 31));
                }),
                "tensor_roots");
}

TEST(FrameTest, EvidenceThatNamesOneThingTwiceIsRefused) {
  ExpectRefused(Craft([](auto root) {
                  auto tables = root.initBody().initRegisterSampler().initEvidence().initTables(2);
                  for (auto table : tables) {
                    table.setName("silu/ieee@v1");
                    table.setDigest(kj::arrayPtr(kDigestBytes, 32));
                  }
                }),
                "twice");
}

TEST(FrameTest, MissingIncarnationIsRefused) {
  capnp::MallocMessageBuilder message;
  message.initRoot<schema::Envelope>().initBody().initPing();
  ExpectRefused(BuildFrame(kMessageFormat, message), "envelope.incarnation");
}

// A list of empty structs costs nothing on the wire and much in memory.
TEST(FrameTest, ListOfNothingIsNotAmplified) {
  Bytes frame = Craft([](auto root) { root.initBody().initEventsReply().initEvents(1); });
  // A struct list starts with a tag word: the count (above 2 bits of zero), then the words of
  // data and of pointers of an element (Event: 2 and 3). Claim a million empty ones instead.
  bool tried = false;
  for (size_t at = kFrameHeaderBytes; at + 8 <= frame.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, &frame[at], 8);
    const uint64_t event_size = (uint64_t{2} << 32) | (uint64_t{3} << 48);
    if (word != ((uint64_t{1} << 2) | event_size)) continue;
    word = uint64_t{1} << 22;
    std::memcpy(&frame[at], &word, 8);
    tried = true;
    break;
  }
  ASSERT_TRUE(tried);
  ExpectRefused(Checksummed(frame), "bad message");
}

TEST(FrameTest, SmallMessageKindsTakeNoLargeFrames) {
  ExpectRefused(
      Craft([](auto root) { root.initBody().initHello().initName(unsigned{kMaxSmallFrameBytes}); }),
      "for its kind");
}

}  // namespace
}  // namespace lockstep::wire
