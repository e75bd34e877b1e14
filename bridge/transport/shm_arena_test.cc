#include "bridge/transport/shm_arena.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "absl/strings/match.h"

namespace lockstep::transport {
namespace {

constexpr uint64_t kBytes = 3 * 4096 + 17;

UniqueFd PlainMemfd(uint64_t bytes, int seals) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

UniqueFd Duplicate(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

TEST(ShmArenaTest, ReaderSeesWhatTheWriterStores) {
  auto arena = WritableArena::Create(kBytes);
  ASSERT_TRUE(arena.ok()) << arena.status();
  auto view = ReadOnlyArena::Map(Duplicate(arena->fd()), kBytes);
  ASSERT_TRUE(view.ok()) << view.status();
  std::memset(arena->bytes().data(), 0x5A, kBytes);
  EXPECT_EQ(view->bytes().size(), kBytes);
  EXPECT_EQ(view->bytes()[0], 0x5A);
  EXPECT_EQ(view->bytes()[kBytes - 1], 0x5A);
}

TEST(ShmArenaTest, NoSecondWritableMappingNoWriteNoResize) {
  auto arena = WritableArena::Create(kBytes);
  ASSERT_TRUE(arena.ok()) << arena.status();
  void* again = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd(), 0);
  EXPECT_EQ(again, MAP_FAILED);
  const char byte = 1;
  EXPECT_EQ(::pwrite(arena->fd(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(arena->fd(), 2 * kBytes), -1);
  EXPECT_EQ(::ftruncate(arena->fd(), 1), -1);
  EXPECT_EQ(::fallocate(arena->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
  void* read_only = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, arena->fd(), 0);
  ASSERT_NE(read_only, MAP_FAILED);
  EXPECT_EQ(::mprotect(read_only, kBytes, PROT_READ | PROT_WRITE), -1);
  ::munmap(read_only, kBytes);
}

TEST(ShmArenaTest, PrefaultKeepsEveryByte) {
  auto arena = WritableArena::Create(kBytes);
  ASSERT_TRUE(arena.ok());
  std::memset(arena->bytes().data(), 7, kBytes);
  const std::atomic<bool> stop{false};
  ASSERT_TRUE(arena->Prefault(stop).ok());
  for (uint8_t byte : arena->bytes()) ASSERT_EQ(byte, 7);
}

TEST(ShmArenaTest, EmptyVersionHasAnArena) {
  auto arena = WritableArena::Create(0);
  ASSERT_TRUE(arena.ok()) << arena.status();
  auto view = ReadOnlyArena::Map(Duplicate(arena->fd()), 0);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_TRUE(view->bytes().empty());
}

TEST(ShmArenaTest, UnsealedFileIsRefused) {
  for (int seals : {0, F_SEAL_GROW | F_SEAL_SHRINK, F_SEAL_FUTURE_WRITE | F_SEAL_GROW}) {
    auto view = ReadOnlyArena::Map(PlainMemfd(kBytes, seals), kBytes);
    EXPECT_EQ(view.status().code(), absl::StatusCode::kInvalidArgument) << seals;
    EXPECT_TRUE(absl::StrContains(view.status().message(), "seals")) << view.status();
  }
}

TEST(ShmArenaTest, ShortOrLongFileIsRefused) {
  const int seals = F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK;
  for (uint64_t bytes : {kBytes - 1, kBytes + 1}) {
    auto view = ReadOnlyArena::Map(PlainMemfd(bytes, seals), kBytes);
    EXPECT_EQ(view.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(view.status().message(), "long")) << view.status();
  }
}

TEST(ShmArenaTest, DescriptorThatIsNoMemoryFileIsRefused) {
  std::string name = std::string(::getenv("TEST_TMPDIR")) + "/plain_XXXXXX";
  UniqueFd file(::mkstemp(name.data()));
  ASSERT_TRUE(file.valid());
  EXPECT_EQ(ReadOnlyArena::Map(std::move(file), 0).status().code(),
            absl::StatusCode::kInvalidArgument);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  UniqueFd other(ends[1]);
  EXPECT_EQ(ReadOnlyArena::Map(UniqueFd(ends[0]), 0).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ShmArenaTest, ArenaBeyondMemorySaysWhatWasAskedAndWhatIsLeft) {
  const uint64_t too_much = uint64_t{1} << 45;
  auto arena = WritableArena::Create(too_much);
  ASSERT_EQ(arena.status().code(), absl::StatusCode::kResourceExhausted) << arena.status();
  EXPECT_TRUE(absl::StrContains(arena.status().message(), std::to_string(too_much)));
  EXPECT_TRUE(absl::StrContains(arena.status().message(), "available"));
  EXPECT_EQ(Mapping::Anonymous(too_much).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace lockstep::transport
