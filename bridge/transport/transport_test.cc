#include "bridge/transport/transport.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>

#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "bridge/transport/bulk_testing.h"
#include "bridge/transport/fd_server.h"
#include "bridge/transport/shm.h"
#include "bridge/transport/tcp.h"
#include "bridge/transport/temporary_folder_testing.h"

namespace lockstep::transport {
namespace {

constexpr uint64_t kBytes = 3'000'001;
const Digest256 kKey{1};
const Incarnation kTrainer{1};
const Incarnation kSampler{2};
const absl::Duration kTimeout = absl::Seconds(10);

std::vector<uint8_t> RandomBytes(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(kBytes);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// Both servers over one store, with the thread that drives the descriptor server.
class TransportTest : public ::testing::Test {
 protected:
  TransportTest() {
    path_ = folder_.path() + "/b.fd";
    bulk_.With([this](ArenaStore& store) {
      auto server = FdServer::Listen(path_, store);
      EXPECT_TRUE(server.ok()) << server.status();
      fd_server_ = std::make_unique<FdServer>(*std::move(server));
    });
    thread_ = std::thread([this] {
      while (!stop_) Turn();
    });
  }
  ~TransportTest() override {
    stop_ = true;
    thread_.join();
  }

  void Turn() {
    std::vector<pollfd> polls;
    for (int fd : fd_server_->Fds()) polls.push_back({fd, POLLIN, 0});
    ::poll(polls.data(), polls.size(), 10);
    // Under the lock, since both servers share the store.
    bulk_.With([&](ArenaStore&) {
      for (const pollfd& p : polls) {
        if (p.revents != 0) fd_server_->OnReadable(p.fd);
      }
    });
  }

  void Grant(const Incarnation& incarnation, uint64_t arena, bool write) {
    bulk_.With([&](ArenaStore& store) { store.Grant(incarnation, arena, write); });
  }
  void Serve(uint64_t arena, uint64_t mark) {
    bulk_.With([&](ArenaStore& store) { store.SetServeMark(arena, mark); });
  }
  BulkEndpoint Endpoint(const Incarnation& incarnation) {
    return {bulk_.address(), kKey, incarnation};
  }

  BulkServerThread bulk_{kKey};
  const TemporaryFolder folder_;
  std::string path_;
  std::unique_ptr<FdServer> fd_server_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void Fill(ArenaWriter& writer, const WriteRequest& request, const std::vector<uint8_t>& bytes) {
  RoundFeed feed;
  const absl::Status begun = writer.Begin(request);
  ASSERT_TRUE(begun.ok()) << begun;
  const uint64_t half = bytes.size() / 2;
  ASSERT_TRUE(writer.Write(0, absl::MakeConstSpan(bytes).first(half), feed).ok());
  ASSERT_TRUE(writer.Write(half, absl::MakeConstSpan(bytes).subspan(half), feed).ok());
  const absl::Status finished = writer.Finish(feed);
  ASSERT_TRUE(finished.ok()) << finished;
  EXPECT_EQ(writer.mark(), bytes.size());
}

void ExpectInstalls(Installer& installer, uint64_t arena, const std::vector<uint8_t>& want) {
  RoundFeed feed(want.size());
  auto installed = installer.Install({arena, want.size()}, feed);
  ASSERT_TRUE(installed.ok()) << installed.status();
  EXPECT_TRUE((*installed)->bytes() == absl::MakeConstSpan(want));
}

TEST_F(TransportTest, EveryPairOfTransportsCarriesTheSameBytes) {
  const std::vector<uint8_t> bytes = RandomBytes(1);
  Grant(kTrainer, 1, /*write=*/true);
  ShmWriter shm_writer(path_, kTrainer, kTimeout);
  Fill(shm_writer, {1, kBytes, false}, bytes);
  bulk_.With([](ArenaStore& store) { ASSERT_TRUE(store.Create(2, kBytes).ok()); });
  Grant(kTrainer, 2, /*write=*/true);
  TcpWriter tcp_writer(Endpoint(kTrainer), BulkOptions());
  Fill(tcp_writer, {2, kBytes, false}, bytes);

  ShmInstaller shm_installer(path_, kSampler, kTimeout);
  TcpInstaller tcp_installer(Endpoint(kSampler), BulkOptions());
  for (uint64_t arena : {1, 2}) {
    Grant(kSampler, arena, /*write=*/false);
    Serve(arena, kBytes);
    ExpectInstalls(shm_installer, arena, bytes);
    ExpectInstalls(tcp_installer, arena, bytes);
  }
}

TEST_F(TransportTest, ReusedArenaIsFilledInPlace) {
  Grant(kTrainer, 1, /*write=*/true);
  Grant(kSampler, 1, /*write=*/false);
  ShmWriter writer(path_, kTrainer, kTimeout);
  Fill(writer, {1, kBytes, false}, RandomBytes(1));
  const uint8_t* const place = writer.Mapped().data();
  ShmInstaller installer(path_, kSampler, kTimeout);
  ExpectInstalls(installer, 1, RandomBytes(1));
  Fill(writer, {1, kBytes, true}, RandomBytes(2));
  EXPECT_EQ(writer.Mapped().data(), place);
  ExpectInstalls(installer, 1, RandomBytes(2));
}

TEST_F(TransportTest, ArenaThatTheTrainerLostIsNotReused) {
  ShmWriter writer(path_, kTrainer, kTimeout);
  EXPECT_EQ(writer.Begin({1, kBytes, true}).code(), absl::StatusCode::kFailedPrecondition);
  Grant(kTrainer, 1, /*write=*/true);
  Fill(writer, {1, kBytes, false}, RandomBytes(1));
  writer.Drop(1);
  EXPECT_EQ(writer.Begin({1, kBytes, true}).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(TransportTest, ShmInstallEndsOnlyWhenTheBytesAreFinal) {
  Grant(kTrainer, 1, /*write=*/true);
  Grant(kSampler, 1, /*write=*/false);
  ShmWriter writer(path_, kTrainer, kTimeout);
  ASSERT_TRUE(writer.Begin({1, kBytes, false}).ok());
  RoundFeed feed;
  std::atomic<bool> installed{false};
  std::thread sampler([&] {
    ShmInstaller installer(path_, kSampler, kTimeout);
    auto version = installer.Install({1, kBytes}, feed);
    ASSERT_TRUE(version.ok()) << version.status();
    installed = true;
    EXPECT_EQ((*version)->bytes().back(), 77);
  });
  feed.Advance(kBytes - 1);
  EXPECT_FALSE(installed);
  writer.Mapped().back() = 77;
  writer.Advance(kBytes);
  feed.Advance(writer.mark());
  sampler.join();
  EXPECT_TRUE(installed);
}

TEST_F(TransportTest, CancelEndsAnInstallOfEitherKind) {
  bulk_.With([](ArenaStore& store) { ASSERT_TRUE(store.Create(1, kBytes).ok()); });
  Grant(kSampler, 1, /*write=*/false);
  ShmInstaller shm_installer(path_, kSampler, kTimeout);
  TcpInstaller tcp_installer(Endpoint(kSampler), BulkOptions());
  for (Installer* installer :
       {static_cast<Installer*>(&shm_installer), static_cast<Installer*>(&tcp_installer)}) {
    RoundFeed feed;
    std::thread sampler([&] {
      EXPECT_EQ(installer->Install({1, kBytes}, feed).status(), absl::AbortedError("over"));
    });
    feed.Cancel(absl::AbortedError("over"));
    sampler.join();
  }
}

TEST_F(TransportTest, TcpSlotMemoryIsReused) {
  bulk_.With([](ArenaStore& store) { ASSERT_TRUE(store.Create(1, kBytes).ok()); });
  Grant(kSampler, 1, /*write=*/false);
  Serve(1, kBytes);
  TcpInstaller installer(Endpoint(kSampler), BulkOptions());
  RoundFeed feed(kBytes);
  auto first = installer.Install({1, kBytes}, feed);
  auto second = installer.Install({1, kBytes}, feed);
  ASSERT_TRUE(first.ok() && second.ok());
  const uint8_t* const place = (*first)->bytes().data();
  EXPECT_NE((*second)->bytes().data(), place);
  first->reset();
  auto third = installer.Install({1, kBytes}, feed);
  ASSERT_TRUE(third.ok());
  EXPECT_EQ((*third)->bytes().data(), place);
}

TEST(ChooseTransportTest, TakesTheFirstThatWorksAndSaysWhyNone) {
  const TransportFacts local{.same_host = true, .fd_socket = true, .bulk_port = true};
  const TransportFacts remote{.same_host = false, .fd_socket = false, .bulk_port = true};
  EXPECT_EQ(ChooseTransport(DefaultTransports(), local).value(), TransportKind::kShm);
  EXPECT_EQ(ChooseTransport(DefaultTransports(), remote).value(), TransportKind::kTcp);
  EXPECT_EQ(ChooseTransport({TransportKind::kTcp}, local).value(), TransportKind::kTcp);
  const auto none = ChooseTransport({TransportKind::kShm}, remote);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(none.status().message(), "shm needs")) << none.status();
  EXPECT_FALSE(ChooseTransport({}, local).ok());
}

}  // namespace
}  // namespace lockstep::transport
