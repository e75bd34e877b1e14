#include <gtest/gtest.h>
#include <zmq.h>

#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "bridge/transport/bulk_reader.h"
#include "bridge/transport/bulk_testing.h"
#include "bridge/transport/bulk_writer.h"

namespace lockstep::transport {
namespace {

constexpr uint64_t kArena = 3;
constexpr uint64_t kBytes = 10'000'019;
const Digest256 kKey{1, 2, 3};
const Incarnation kTrainer{1};
const Incarnation kSampler{2};

std::vector<uint8_t> RandomBytes(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(n);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

BulkOptions Quick() {
  BulkOptions options;
  options.chunk_bytes = 256 << 10;
  options.stall_timeout = absl::Seconds(2);
  return options;
}

class BulkTest : public ::testing::Test {
 protected:
  // An arena of the bridge's with random bytes, readable by kSampler up to `ready`.
  void MakeArena(uint64_t ready) {
    source_ = RandomBytes(kBytes, 7);
    server_.With([&](ArenaStore& store) {
      ASSERT_TRUE(store.Create(kArena, kBytes).ok());
      store.Grant(kSampler, kArena, /*write=*/false);
      std::copy(source_.begin(), source_.end(), store.Find(kArena)->writable_bytes().begin());
      store.SetServeMark(kArena, ready);
    });
  }

  BulkReader Reader(const Digest256& key, const BulkOptions& options = Quick()) {
    auto reader = BulkReader::Connect({server_.address(), key, kSampler}, options);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return *std::move(reader);
  }

  BulkServerThread server_{kKey};
  std::vector<uint8_t> source_;
  RoundFeed feed_;
};

TEST_F(BulkTest, SamplerPullsExactlyTheArenasBytes) {
  MakeArena(kBytes);
  BulkReader reader = Reader(kKey);
  std::vector<uint8_t> into(kBytes);
  feed_.Advance(kBytes);
  uint64_t done = 0;
  const absl::Status status = reader.Fetch(kArena, absl::MakeSpan(into), feed_, done);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(done, kBytes);
  EXPECT_TRUE(into == source_);
  EXPECT_EQ(server_.Events().bytes_sent[kSampler], kBytes);
}

TEST_F(BulkTest, FetchFollowsTheMarkAsItRises) {
  MakeArena(0);
  BulkReader reader = Reader(kKey);
  std::vector<uint8_t> into(kBytes);
  std::thread trainer([&] {
    for (uint64_t mark = 0; mark < kBytes;) {
      mark = std::min<uint64_t>(mark + 1'500'000, kBytes);
      // The control channel may be ahead of the serve mark: "not yet" is asked again.
      feed_.Advance(mark);
      std::this_thread::yield();
      server_.With([&](ArenaStore& store) { store.SetServeMark(kArena, mark); });
    }
  });
  uint64_t done = 0;
  const absl::Status status = reader.Fetch(kArena, absl::MakeSpan(into), feed_, done);
  trainer.join();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(into == source_);
}

TEST_F(BulkTest, NothingAboveTheServeMarkLeaves) {
  MakeArena(kBytes / 2);
  BulkReader reader = Reader(kKey);
  std::vector<uint8_t> into(kBytes);
  feed_.Advance(kBytes);
  std::thread canceller([&] {
    while (server_.Events().bytes_sent[kSampler] < kBytes / 2 - Quick().chunk_bytes) {
      std::this_thread::yield();
    }
    feed_.Cancel(absl::CancelledError("round aborted"));
  });
  uint64_t done = 0;
  EXPECT_EQ(reader.Fetch(kArena, absl::MakeSpan(into), feed_, done).code(),
            absl::StatusCode::kCancelled);
  canceller.join();
  EXPECT_LE(done, kBytes / 2);
  EXPECT_LE(server_.Events().bytes_sent[kSampler], kBytes / 2);
  EXPECT_EQ(into.back(), 0);
}

TEST_F(BulkTest, FetchWithoutAGrantIsRefused) {
  MakeArena(kBytes);
  server_.With([](ArenaStore& store) { store.Revoke(kSampler, kArena); });
  BulkReader reader = Reader(kKey);
  std::vector<uint8_t> into(kBytes);
  feed_.Advance(kBytes);
  uint64_t done = 0;
  EXPECT_EQ(reader.Fetch(kArena, absl::MakeSpan(into), feed_, done).code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(reader.Fetch(kArena + 1, absl::MakeSpan(into), feed_, done).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(server_.Events().bytes_sent[kSampler], 0u);
}

TEST_F(BulkTest, LayoutLongerThanTheArenaIsRefused) {
  MakeArena(kBytes);
  BulkReader reader = Reader(kKey);
  std::vector<uint8_t> into(kBytes + 1);
  feed_.Advance(kBytes + 1);
  uint64_t done = 0;
  EXPECT_EQ(reader.Fetch(kArena, absl::MakeSpan(into), feed_, done).code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(BulkTest, WrongKeyIsNotEvenLetIn) {
  MakeArena(kBytes);
  Digest256 wrong = kKey;
  wrong[31] ^= 1;
  BulkOptions options = Quick();
  options.stall_timeout = absl::Milliseconds(100);
  options.retries = 1;
  BulkReader reader = Reader(wrong, options);
  std::vector<uint8_t> into(kBytes);
  feed_.Advance(kBytes);
  uint64_t done = 0;
  EXPECT_EQ(reader.Fetch(kArena, absl::MakeSpan(into), feed_, done).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_GE(server_.Events().unauthorised, 1u);
  EXPECT_EQ(server_.Events().bytes_sent[kSampler], 0u);
}

// Knows the password, as an eavesdropper could, but not the key.
TEST_F(BulkTest, RequestWithAWrongMacIsDroppedAndCounted) {
  MakeArena(kBytes);
  auto context = wire::ZmqContext::Create();
  auto socket = wire::ZmqSocket::Create(*context, ZMQ_DEALER);
  ASSERT_TRUE(socket->SetText(ZMQ_PLAIN_USERNAME, kBulkUser).ok());
  ASSERT_TRUE(socket->SetText(ZMQ_PLAIN_PASSWORD, BulkPassword(kKey)).ok());
  ASSERT_TRUE(socket->Connect(server_.address()).ok());
  BulkHeader header;
  header.arena_id = kArena;
  header.length = 1'000;
  header.incarnation = kSampler;
  BulkHeaderBytes forged = EncodeBulkHeader(header, Digest256{9});
  ASSERT_TRUE(socket->Send(forged).ok());
  BulkHeaderBytes flipped = EncodeBulkHeader(header, kKey);
  flipped[24] ^= 1;
  ASSERT_TRUE(socket->Send(flipped).ok());
  const uint8_t junk[3] = {1, 2, 3};
  ASSERT_TRUE(socket->Send(junk).ok());
  ASSERT_TRUE(socket->Send(EncodeBulkHeader(header, kKey), ZMQ_SNDMORE).ok());
  ASSERT_TRUE(socket->Send(junk).ok());
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (server_.Events().malformed < 2 && absl::Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(server_.Events().unauthorised, 2u);
  EXPECT_EQ(server_.Events().malformed, 2u);
  EXPECT_EQ(server_.Events().bytes_sent[kSampler], 0u);
}

TEST_F(BulkTest, TrainerUploadsAndTheMarkRises) {
  const std::vector<uint8_t> bytes = RandomBytes(kBytes, 11);
  server_.With([](ArenaStore& store) {
    ASSERT_TRUE(store.Create(kArena, kBytes).ok());
    store.Grant(kTrainer, kArena, /*write=*/true);
  });
  auto writer = BulkWriter::Connect({server_.address(), kKey, kTrainer}, Quick());
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(writer->Begin(kArena, kBytes).ok());
  // Tensors of odd sizes with a gap after each, as alignment makes.
  std::vector<uint8_t> want(kBytes);
  for (uint64_t at = 0; at < kBytes;) {
    const uint64_t n = std::min<uint64_t>(999'983, kBytes - at);
    std::copy_n(bytes.begin() + at, n, want.begin() + at);
    ASSERT_TRUE(writer->Write(at, absl::MakeConstSpan(bytes).subspan(at, n), feed_).ok());
    at += n + 41;
  }
  EXPECT_FALSE(writer->Write(0, absl::MakeConstSpan(bytes).subspan(0, 1), feed_).ok());
  const absl::Status finished = writer->Finish(feed_);
  ASSERT_TRUE(finished.ok()) << finished;
  EXPECT_EQ(writer->mark(), kBytes);
  EXPECT_EQ(server_.Events().upload_marks[kArena], kBytes);
  server_.With([&](ArenaStore& store) {
    const auto arena = store.Find(kArena);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), arena->bytes().begin()));
  });
}

TEST_F(BulkTest, UploadWithoutAGrantIsRefused) {
  server_.With([](ArenaStore& store) { ASSERT_TRUE(store.Create(kArena, kBytes).ok()); });
  auto writer = BulkWriter::Connect({server_.address(), kKey, kTrainer}, Quick());
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Begin(kArena, kBytes).ok());
  EXPECT_EQ(writer->Finish(feed_).code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(BulkTest, SlowReaderDoesNotHoldUpAnother) {
  MakeArena(kBytes);
  const Incarnation slow{8};
  server_.With([&](ArenaStore& store) { store.Grant(slow, kArena, /*write=*/false); });
  auto connection = BulkConnection::Open({server_.address(), kKey, slow});
  ASSERT_TRUE(connection.ok());
  BulkHeader header;
  header.arena_id = kArena;
  header.length = 4 << 20;
  header.incarnation = slow;
  // Asks for more than fits anywhere and reads nothing.
  uint64_t asked = 0;
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (server_.Events().over_limit == 0 && absl::Now() < deadline) {
    header.request_id = ++asked;
    connection->Send(header).IgnoreError();
    std::this_thread::yield();
  }
  EXPECT_GT(server_.Events().over_limit, 0u);
  BulkReader reader = Reader(kKey);
  std::vector<uint8_t> into(kBytes);
  feed_.Advance(kBytes);
  uint64_t done = 0;
  const absl::Status status = reader.Fetch(kArena, absl::MakeSpan(into), feed_, done);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(into == source_);
}

}  // namespace
}  // namespace lockstep::transport
