#include "bridge/transport/arena_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace lockstep::transport {
namespace {

constexpr uint64_t kArena = 5;
constexpr uint64_t kBytes = 1'000;
const Incarnation kTrainer{1};
const Incarnation kSampler{2};

std::vector<uint8_t> Pattern(size_t n) {
  std::vector<uint8_t> bytes(n);
  std::iota(bytes.begin(), bytes.end(), uint8_t{1});
  return bytes;
}

ReadOnlyArena ViewOf(const WritableArena& arena) {
  auto view = ReadOnlyArena::Map(UniqueFd(::fcntl(arena.fd(), F_DUPFD_CLOEXEC, 0)), kBytes);
  EXPECT_TRUE(view.ok()) << view.status();
  return *std::move(view);
}

TEST(ArenaStoreTest, OnlyAGrantOpensAnArena) {
  ArenaStore store;
  ASSERT_TRUE(store.Create(kArena, kBytes).ok());
  EXPECT_EQ(store.OpenForRead(kSampler, kArena).status().code(),
            absl::StatusCode::kPermissionDenied);
  store.Grant(kSampler, kArena, /*write=*/false);
  EXPECT_TRUE(store.OpenForRead(kSampler, kArena).ok());
  EXPECT_FALSE(store.CheckMayWrite(kSampler, kArena).ok());
  store.Revoke(kSampler, kArena);
  EXPECT_FALSE(store.OpenForRead(kSampler, kArena).ok());
}

TEST(ArenaStoreTest, WriteGrantDoesNotLetRead) {
  ArenaStore store;
  ASSERT_TRUE(store.Create(kArena, kBytes).ok());
  store.Grant(kTrainer, kArena, /*write=*/true);
  EXPECT_EQ(store.OpenForRead(kTrainer, kArena).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST(ArenaStoreTest, ClosedArenaLivesUntilItsLastHolderLetsGo) {
  ArenaStore store;
  ASSERT_TRUE(store.Create(kArena, kBytes).ok());
  store.Grant(kSampler, kArena, /*write=*/false);
  store.Grant(kTrainer, kArena, /*write=*/true);
  ASSERT_TRUE(store.WriteChunk(kTrainer, kArena, 0, Pattern(kBytes)).ok());
  auto held = store.OpenForRead(kSampler, kArena);
  ASSERT_TRUE(held.ok());
  store.Close(kArena);
  EXPECT_EQ(store.Find(kArena), nullptr);
  EXPECT_EQ(store.OpenForRead(kSampler, kArena).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(held->arena->bytes()[9], 10);
}

TEST(ArenaStoreTest, SameFileIsAdoptedOnceAndAnotherIsRefused) {
  ArenaStore store;
  auto first = WritableArena::Create(kBytes);
  auto second = WritableArena::Create(kBytes);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(store.Adopt(kArena, ViewOf(*first)).value(), true);
  EXPECT_EQ(store.Adopt(kArena, ViewOf(*first)).value(), false);
  EXPECT_EQ(store.Adopt(kArena, ViewOf(*second)).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST(ArenaStoreTest, UploadMarkIsTheContiguousPrefix) {
  ArenaStore store;
  ASSERT_TRUE(store.Create(kArena, kBytes).ok());
  store.Grant(kTrainer, kArena, /*write=*/true);
  const auto bytes = Pattern(100);
  EXPECT_EQ(store.WriteChunk(kTrainer, kArena, 100, bytes).value(), 0u);
  EXPECT_EQ(store.WriteChunk(kTrainer, kArena, 0, bytes).value(), 200u);
  EXPECT_EQ(store.WriteChunk(kTrainer, kArena, 150, bytes).value(), 250u);
  EXPECT_EQ(store.WriteChunk(kTrainer, kArena, 50, bytes).value(), 250u);  // a repeat
  EXPECT_EQ(store.Find(kArena)->bytes()[60], 61);                          // which changed nothing
}

TEST(ArenaStoreTest, AMarkThatGoesDownStartsTheUploadAnew) {
  ArenaStore store;
  ASSERT_TRUE(store.Create(kArena, kBytes).ok());
  store.Grant(kTrainer, kArena, /*write=*/true);
  ASSERT_EQ(store.WriteChunk(kTrainer, kArena, 0, Pattern(kBytes)).value(), kBytes);
  store.SetServeMark(kArena, kBytes);
  store.Grant(kTrainer, kArena, /*write=*/true);  // held already: changes nothing
  EXPECT_EQ(store.WriteChunk(kTrainer, kArena, 0, Pattern(10)).value(), kBytes);
  store.SetServeMark(kArena, 0);
  EXPECT_EQ(store.WriteChunk(kTrainer, kArena, 0, Pattern(10)).value(), 10u);
}

TEST(ArenaStoreTest, ChunkOutsideTheArenaIsRefused) {
  ArenaStore store;
  ASSERT_TRUE(store.Create(kArena, kBytes).ok());
  store.Grant(kTrainer, kArena, /*write=*/true);
  for (uint64_t offset : {kBytes - 9, kBytes + 1, ~uint64_t{0}, ~uint64_t{0} - 5}) {
    EXPECT_EQ(store.WriteChunk(kTrainer, kArena, offset, Pattern(10)).status().code(),
              absl::StatusCode::kOutOfRange)
        << offset;
  }
}

TEST(ArenaStoreTest, UploadFullOfGapsIsRefused) {
  ArenaStore store;
  ASSERT_TRUE(store.Create(kArena, 4 * ArenaStore::kMaxUploadGaps).ok());
  store.Grant(kTrainer, kArena, /*write=*/true);
  const std::vector<uint8_t> one(1);
  for (size_t i = 0; i < ArenaStore::kMaxUploadGaps; ++i) {
    ASSERT_TRUE(store.WriteChunk(kTrainer, kArena, 2 * i + 1, one).ok());
  }
  EXPECT_EQ(store.WriteChunk(kTrainer, kArena, 3 * ArenaStore::kMaxUploadGaps, one).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store.WriteChunk(kTrainer, kArena, 0, one).value(), 2u);
}

TEST(ArenaStoreTest, TrainersOwnArenaTakesNoChunks) {
  ArenaStore store;
  auto arena = WritableArena::Create(kBytes);
  ASSERT_TRUE(arena.ok());
  store.Grant(kTrainer, kArena, /*write=*/true);
  EXPECT_EQ(store.WriteChunk(kTrainer, kArena, 0, Pattern(10)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(store.Adopt(kArena, ViewOf(*arena)).ok());
  EXPECT_EQ(store.WriteChunk(kTrainer, kArena, 0, Pattern(10)).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace lockstep::transport
