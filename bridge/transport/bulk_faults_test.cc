// Damage, cuts and restarts between a client and the bulk port.

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "bridge/transport/bulk_reader.h"
#include "bridge/transport/bulk_testing.h"
#include "bridge/transport/bulk_writer.h"

namespace lockstep::transport {
namespace {

constexpr uint64_t kArena = 3;
constexpr uint64_t kBytes = 4'000'037;
const Digest256 kKey{4, 5, 6};
const Incarnation kPeer{2};

BulkOptions Quick() {
  BulkOptions options;
  options.chunk_bytes = 256 << 10;
  options.stall_timeout = absl::Milliseconds(300);
  return options;
}

std::vector<uint8_t> FillArena(ArenaStore& store) {
  EXPECT_TRUE(store.Create(kArena, kBytes).ok());
  store.Grant(kPeer, kArena, /*write=*/false);
  const absl::Span<uint8_t> bytes = store.Find(kArena)->writable_bytes();
  std::mt19937 random(99);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  store.SetServeMark(kArena, kBytes);
  return {bytes.begin(), bytes.end()};
}

class BulkFaultsTest : public ::testing::Test {
 protected:
  BulkFaultsTest() : feed_(kBytes) {
    server_->With([this](ArenaStore& store) { source_ = FillArena(store); });
  }

  absl::Status Fetch(const std::string& address, uint64_t& done) {
    auto reader = BulkReader::Connect({address, kKey, kPeer}, Quick());
    EXPECT_TRUE(reader.ok()) << reader.status();
    return reader->Fetch(kArena, absl::MakeSpan(into_), feed_, done);
  }

  std::unique_ptr<BulkServerThread> server_ = std::make_unique<BulkServerThread>(kKey);
  std::vector<uint8_t> source_;
  std::vector<uint8_t> into_ = std::vector<uint8_t>(kBytes);
  RoundFeed feed_;
};

// Flips one byte of the stream from the server at each of `positions`, once.
TcpProxy::Touch FlipAt(std::vector<uint64_t> positions) {
  return [positions](uint8_t* bytes, size_t n, bool from_server, uint64_t at) mutable {
    if (!from_server) return true;
    for (uint64_t& position : positions) {
      if (position < at || position >= at + n) continue;
      bytes[position - at] ^= 0x10;
      position = ~uint64_t{0};
    }
    return true;
  };
}

// Flips one byte inside each of the first `count` payloads that pass one way: well behind the
// header of a chunk, so that neither header nor framing is hit.
TcpProxy::Touch DamagePayloads(bool from_server, int count) {
  constexpr size_t kIntoPayload = 2 * kBulkHeaderBytes;
  return [=, flips = std::set<uint64_t>()](uint8_t* bytes, size_t n, bool server_side,
                                           uint64_t at) mutable {
    if (server_side != from_server) return true;
    const absl::string_view text(reinterpret_cast<const char*>(bytes), n);
    for (size_t i = text.find("LSBK"); i != text.npos; i = text.find("LSBK", i + 1)) {
      if (count-- > 0) flips.insert(at + i + kIntoPayload);
    }
    while (!flips.empty() && *flips.begin() < at + n) {
      if (*flips.begin() >= at) bytes[*flips.begin() - at] ^= 1;
      flips.erase(flips.begin());
    }
    return true;
  };
}

TEST_F(BulkFaultsTest, DamagedPayloadIsAskedForAgain) {
  TcpProxy proxy(server_->address(), FlipAt({200'000, 1'700'000, 3'000'000}));
  uint64_t done = 0;
  const absl::Status status = Fetch(proxy.address(), done);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(into_ == source_);
  EXPECT_GT(server_->Events().bytes_sent[kPeer], kBytes);  // something went out twice
}

TEST_F(BulkFaultsTest, ChunkThatStaysDamagedIsDataLoss) {
  TcpProxy proxy(server_->address(), DamagePayloads(/*from_server=*/true, /*count=*/1'000));
  uint64_t done = 0;
  EXPECT_EQ(Fetch(proxy.address(), done).code(), absl::StatusCode::kDataLoss);
}

TEST_F(BulkFaultsTest, CutConnectionIsResumedWhereItStood) {
  uint64_t cuts = 0;
  TcpProxy proxy(server_->address(), [&cuts](uint8_t*, size_t n, bool from_server, uint64_t at) {
    if (!from_server || cuts >= 2 || at + n < 1'500'000) return true;
    ++cuts;
    return false;
  });
  uint64_t done = 0;
  const absl::Status status = Fetch(proxy.address(), done);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(into_ == source_);
  EXPECT_EQ(proxy.connections(), 3);
}

TEST_F(BulkFaultsTest, ServerThatDiesIsUnavailableAndAnotherConnectionResumes) {
  uint64_t done = 0;
  {
    bool dead = false;
    TcpProxy proxy(server_->address(), [&dead](uint8_t*, size_t n, bool from_server, uint64_t at) {
      dead = dead || (from_server && at + n > 2'000'000);
      return !dead;
    });
    EXPECT_EQ(Fetch(proxy.address(), done).code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_GT(done, 0u);
  EXPECT_LT(done, kBytes);
  const uint64_t kept = done;
  std::fill(into_.begin(), into_.begin() + static_cast<ptrdiff_t>(kept), uint8_t{0});
  ASSERT_TRUE(Fetch(server_->address(), done).ok());
  EXPECT_EQ(done, kBytes);
  // Only what was missing came again.
  EXPECT_TRUE(std::equal(into_.begin() + static_cast<ptrdiff_t>(kept), into_.end(),
                         source_.begin() + static_cast<ptrdiff_t>(kept)));
  EXPECT_EQ(std::count(into_.begin(), into_.begin() + static_cast<ptrdiff_t>(kept), uint8_t{0}),
            static_cast<ptrdiff_t>(kept));
}

TEST_F(BulkFaultsTest, DamagedUploadIsSentAgain) {
  server_->With([](ArenaStore& store) { store.Grant(kPeer, kArena, /*write=*/true); });
  TcpProxy proxy(server_->address(), DamagePayloads(/*from_server=*/false, /*count=*/2));
  auto writer = BulkWriter::Connect({proxy.address(), kKey, kPeer}, Quick());
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Begin(kArena, kBytes).ok());
  std::vector<uint8_t> fresh = source_;
  for (uint8_t& byte : fresh) byte ^= 0xFF;
  ASSERT_TRUE(writer->Write(0, fresh, feed_).ok());
  const absl::Status status = writer->Finish(feed_);
  ASSERT_TRUE(status.ok()) << status;
  server_->With([&](ArenaStore& store) {
    EXPECT_TRUE(std::equal(fresh.begin(), fresh.end(), store.Find(kArena)->bytes().begin()));
  });
}

TEST_F(BulkFaultsTest, UploadToNobodyIsUnavailable) {
  BulkOptions options = Quick();
  options.retries = 0;
  options.stall_timeout = absl::Milliseconds(50);
  auto writer = BulkWriter::Connect({"tcp://127.0.0.1:1", kKey, kPeer}, options);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Begin(kArena, kBytes).ok());
  EXPECT_EQ(writer->Finish(feed_).code(), absl::StatusCode::kUnavailable);
}

TEST_F(BulkFaultsTest, CancelledTransferReturnsItsReason) {
  feed_.Cancel(absl::AbortedError("the round was aborted"));
  uint64_t done = 0;
  EXPECT_EQ(Fetch(server_->address(), done), absl::AbortedError("the round was aborted"));
}

}  // namespace
}  // namespace lockstep::transport
