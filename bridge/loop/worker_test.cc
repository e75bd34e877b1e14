#include "bridge/loop/worker.h"

#include <poll.h>

#include <cstring>

#include "bridge/transport/shm_arena.h"
#include "bridge/transport/temporary_folder_testing.h"
#include "bridge/transport/version_digest.h"
#include "gtest/gtest.h"

namespace lockstep::loop {
namespace {

std::shared_ptr<const Manifest> TwoTensors() {
  Manifest manifest;
  manifest.tensors = {{"a", Dtype::kU8, {300}, TensorOrigin::kSynced},
                      {"b", Dtype::kU8, {10}, TensorOrigin::kFrozen},
                      {"c", Dtype::kU8, {10}, TensorOrigin::kSynced}};
  return std::make_shared<const Manifest>(std::move(manifest));
}

SharedArena Arena(const Manifest& manifest, uint8_t fill) {
  auto arena = transport::WritableArena::Create(ComputeArenaLayout(manifest).total_bytes).value();
  std::memset(arena.bytes().data(), fill, arena.bytes().size());
  return std::make_shared<const transport::StoredArena>(std::move(arena));
}

// Waits until the mailbox says that it has something.
std::vector<core::InputBody> TakeSome(Mailbox& mailbox) {
  pollfd item{mailbox.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&item, 1, 30'000), 1);
  return mailbox.Take();
}

TEST(WorkerTest, ResultsComeInOrderAndWakeTheLoop) {
  const std::unique_ptr<Mailbox> mailbox = Mailbox::Create().value();
  Worker worker(*mailbox);
  std::vector<uint64_t> seen;
  for (uint64_t i = 1; i <= 20; ++i) {
    worker.Do([i]() -> std::optional<core::InputBody> {
      if (i % 2 == 0) return std::nullopt;
      return core::CompareDone{i, true};
    });
  }
  while (seen.size() < 10) {
    for (const core::InputBody& body : TakeSome(*mailbox)) {
      seen.push_back(std::get<core::CompareDone>(body).work_id);
    }
  }
  EXPECT_EQ(seen, (std::vector<uint64_t>{1, 3, 5, 7, 9, 11, 13, 15, 17, 19}));
  pollfd item{mailbox->fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&item, 1, 0), 0);
}

TEST(WorkerTest, TheEndDropsWhatWaitsAndLetsGoOfItsArenas) {
  const std::unique_ptr<Mailbox> mailbox = Mailbox::Create().value();
  auto held = std::make_shared<int>(1);
  {
    Worker worker(*mailbox);
    for (int i = 0; i < 100; ++i) {
      worker.Do([held]() -> std::optional<core::InputBody> { return std::nullopt; });
    }
  }
  EXPECT_EQ(held.use_count(), 1);
}

TEST(WorkerTest, DigestIsThatOfTheKeptBytes) {
  const auto manifest = TwoTensors();
  const SharedArena arena = Arena(*manifest, 7);
  const core::DigestWork work{5, 1, 3, Blake2b256("key"), manifest};
  const core::DigestDone done = Digest("run", work, arena, 2);
  EXPECT_EQ(done.work_id, 5u);
  EXPECT_EQ(done.digest,
            transport::DigestArena("run", 3, work.key, *manifest, arena->bytes(), 1).value());
  EXPECT_NE(done.digest, Digest("run", work, Arena(*manifest, 8), 2).digest);
}

TEST(WorkerTest, BytesThatAreGoneEqualNothing) {
  const auto manifest = TwoTensors();
  const SharedArena arena = Arena(*manifest, 7);
  EXPECT_EQ(Digest("run", {5, 1, 3, {}, manifest}, nullptr, 1).digest, VersionDigest{});
  EXPECT_FALSE(Compare({6, 1, 2, manifest}, arena, nullptr).equal);
}

TEST(WorkerTest, CompareLooksAtSyncedTensorsAndNotAtPadding) {
  const auto manifest = TwoTensors();
  const SharedArena a = Arena(*manifest, 7);
  const SharedArena b = Arena(*manifest, 7);
  b->writable_bytes()[301] = 0;  // behind tensor a
  EXPECT_TRUE(Compare({6, 1, 2, manifest}, a, b).equal);
  b->writable_bytes()[ComputeArenaLayout(*manifest).offsets[2] + 9] = 0;
  EXPECT_FALSE(Compare({6, 1, 2, manifest}, a, b).equal);
}

TEST(WorkerTest, SpoolGoesOutAndComesBack) {
  const transport::TemporaryFolder folder;
  const Spool spool(folder.path());
  const auto manifest = TwoTensors();
  EXPECT_EQ(WriteSpool(spool, {1, 4, 3}, Arena(*manifest, 9)).error, "");
  const SharedArena back = Arena(*manifest, 0);
  const core::SpoolLoaded loaded = LoadSpool(spool, {3, 8, back->bytes().size()}, back);
  EXPECT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.arena_id, 8u);
  EXPECT_EQ(back->bytes()[300], 9);
  EXPECT_NE(LoadSpool(spool, {2, 8, back->bytes().size()}, back).error, "");
}

}  // namespace
}  // namespace lockstep::loop
