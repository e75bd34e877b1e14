#include "sampler_client/weight_slots.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

constexpr size_t kBytes = 4'096;

// Every byte says which version it is, and the memory is overwritten when it is given back.
class FakeVersion : public transport::InstalledVersion {
 public:
  FakeVersion(uint64_t version, std::atomic<int>* alive)
      : bytes_(kBytes, static_cast<uint8_t>(version)), alive_(alive) {
    ++*alive_;
  }
  ~FakeVersion() override {
    for (uint8_t& byte : bytes_) byte = 0xEE;
    --*alive_;
  }
  absl::Span<const uint8_t> bytes() const override { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
  std::atomic<int>* alive_;
};

class WeightSlotsTest : public ::testing::Test {
 protected:
  ServedVersion Version(uint64_t version) {
    ServedVersion served;
    served.version = version;
    served.arena_id = 100 + version;
    served.layout = {{0, kBytes / 2}, {kBytes / 2, kBytes / 2}, kBytes, kBytes};
    served.installed = std::make_unique<FakeVersion>(version, &alive_);
    return served;
  }

  std::vector<uint64_t> Released() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return released_;
  }

  std::atomic<int> alive_{0};
  std::mutex mutex_;
  std::vector<uint64_t> released_;
  WeightSlots slots_{[this](uint64_t version, uint64_t arena_id) {
    EXPECT_EQ(arena_id, 100 + version);
    const std::lock_guard<std::mutex> lock(mutex_);
    released_.push_back(version);
  }};
};

TEST_F(WeightSlotsTest, NothingIsServedBeforeTheFirstFlip) {
  EXPECT_FALSE(slots_.Acquire());
  EXPECT_FALSE(slots_.Flip().ok());
  ASSERT_TRUE(slots_.Stage(Version(1)).ok());
  EXPECT_FALSE(slots_.Acquire());
  EXPECT_EQ(slots_.staged()->version, 1u);
  ASSERT_TRUE(slots_.Flip().ok());
  EXPECT_EQ(slots_.Acquire()->version, 1u);
  EXPECT_EQ(slots_.Acquire()->Tensor(1).size(), kBytes / 2);
  EXPECT_EQ(slots_.staged(), nullptr);
}

TEST_F(WeightSlotsTest, ReaderKeepsItsVersionAndItsMemoryAcrossAFlip) {
  ASSERT_TRUE(slots_.Stage(Version(1)).ok());
  ASSERT_TRUE(slots_.Flip().ok());
  WeightsGuard old = slots_.Acquire();
  ASSERT_TRUE(slots_.Stage(Version(2)).ok());
  ASSERT_TRUE(slots_.Flip().ok());
  EXPECT_EQ(slots_.Acquire()->version, 2u);
  EXPECT_EQ(old->version, 1u);
  EXPECT_EQ(old->Tensor(0)[0], 1);
  EXPECT_EQ(alive_, 2);
  EXPECT_TRUE(Released().empty());
  old.Release();
  EXPECT_EQ(alive_, 1);
  EXPECT_EQ(Released(), std::vector<uint64_t>{1});
}

TEST_F(WeightSlotsTest, ThirdVersionWaitsForTheReadersOfTheFirst) {
  ASSERT_TRUE(slots_.Stage(Version(1)).ok());
  ASSERT_TRUE(slots_.Flip().ok());
  WeightsGuard old = slots_.Acquire();
  ASSERT_TRUE(slots_.Stage(Version(2)).ok());
  ASSERT_TRUE(slots_.Flip().ok());
  EXPECT_EQ(slots_.WaitUntilFree(absl::Now()).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(slots_.Stage(Version(3)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(alive_, 2);
  std::thread reader([guard = std::move(old)]() mutable { guard.Release(); });
  EXPECT_TRUE(slots_.WaitUntilFree(absl::Now() + absl::Seconds(10)).ok());
  reader.join();
  EXPECT_TRUE(slots_.Stage(Version(3)).ok());
}

TEST_F(WeightSlotsTest, DroppedVersionWasNeverSeenAndIsGivenBack) {
  ASSERT_TRUE(slots_.Stage(Version(1)).ok());
  EXPECT_FALSE(slots_.Stage(Version(2)).ok());
  slots_.DropStaged();
  EXPECT_EQ(alive_, 0);
  EXPECT_EQ(Released(), std::vector<uint64_t>{1});
  EXPECT_FALSE(slots_.Acquire());
}

TEST_F(WeightSlotsTest, DeactivatedSlotsServeNobody) {
  ASSERT_TRUE(slots_.Stage(Version(1)).ok());
  ASSERT_TRUE(slots_.Flip().ok());
  WeightsGuard guard = slots_.Acquire();
  slots_.Deactivate();
  EXPECT_FALSE(slots_.Acquire());
  EXPECT_EQ(guard->version, 1u);
  EXPECT_EQ(slots_.current_version(), std::nullopt);
  guard.Release();
  EXPECT_EQ(alive_, 0);
}

TEST_F(WeightSlotsTest, MovedGuardCountsOnce) {
  ASSERT_TRUE(slots_.Stage(Version(1)).ok());
  ASSERT_TRUE(slots_.Flip().ok());
  WeightsGuard a = slots_.Acquire();
  WeightsGuard b = std::move(a);
  EXPECT_FALSE(a);
  a = std::move(b);
  EXPECT_EQ(a->version, 1u);
  slots_.Deactivate();
  EXPECT_EQ(alive_, 1);
  a = WeightsGuard();
  EXPECT_EQ(alive_, 0);
}

// Readers that read all of what they hold, while versions change as fast as they can.
TEST_F(WeightSlotsTest, NoReaderSeesTwoVersionsUnderStress) {
  constexpr uint64_t kVersions = 400;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> reads{0};
  std::atomic<uint64_t> torn{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      uint64_t last = 0;
      while (!stop) {
        const WeightsGuard guard = slots_.Acquire();
        if (!guard) continue;
        const uint64_t version = guard->version;
        if (version < last) ++torn;
        last = version;
        for (uint8_t byte : guard->installed->bytes()) {
          if (byte != static_cast<uint8_t>(version)) ++torn;
        }
        ++reads;
      }
    });
  }
  for (uint64_t version = 1; version <= kVersions; ++version) {
    EXPECT_TRUE(slots_.WaitUntilFree(absl::Now() + absl::Seconds(60)).ok());
    EXPECT_TRUE(slots_.Stage(Version(version)).ok());
    EXPECT_TRUE(slots_.Flip().ok());
    // Some reader gets in now and then.
    const uint64_t seen = reads;
    while (version % 20 == 0 && reads == seen) std::this_thread::yield();
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(torn, 0u);
  EXPECT_GT(reads, 0u);
  EXPECT_EQ(alive_, 1);
  EXPECT_EQ(Released().size(), kVersions - 1);
}

}  // namespace
}  // namespace lockstep
