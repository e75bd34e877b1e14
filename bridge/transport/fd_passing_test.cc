#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "bridge/transport/fd_client.h"
#include "bridge/transport/fd_server.h"
#include "bridge/transport/temporary_folder_testing.h"

namespace lockstep::transport {
namespace {

constexpr uint64_t kArena = 9;
constexpr uint64_t kBytes = 10'000;
const Incarnation kTrainer{1};
const Incarnation kSampler{2};
const absl::Duration kTimeout = absl::Seconds(10);

size_t OpenDescriptors() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    (void)entry;
    ++count;
  }
  return count;
}

// A server with the loop that drives it.
class FdPassingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = folder_.path() + "/bridge.sock.fd";
    auto server = FdServer::Listen(path_, store_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::make_unique<FdServer>(*std::move(server));
  }

  // One pass of the loop; waits for at most `wait_ms`.
  void Turn(int wait_ms) {
    std::vector<pollfd> polls;
    for (int fd : server_->Fds()) polls.push_back({fd, POLLIN, 0});
    ::poll(polls.data(), polls.size(), wait_ms);
    for (const pollfd& p : polls) {
      if (p.revents == 0) continue;
      for (FdEvent& event : server_->OnReadable(p.fd)) events_.push_back(std::move(event));
    }
  }

  // Runs `client` on a thread of its own while the server turns.
  template <typename Client>
  void While(Client client) {
    std::atomic<bool> done{false};
    std::thread thread([&] {
      client();
      done = true;
    });
    while (!done) Turn(5);
    thread.join();
  }

  // Turns until `condition` holds; false after the deadline.
  template <typename Condition>
  bool TurnUntil(Condition condition) {
    const absl::Time deadline = absl::Now() + kTimeout;
    while (!condition()) {
      if (absl::Now() > deadline) return false;
      Turn(5);
    }
    return true;
  }

  UniqueFd RawConnection() {
    sockaddr_storage address{};
    socklen_t length = 0;
    EXPECT_TRUE(FillUnixAddress(path_, address, length).ok());
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    return socket;
  }

  template <typename T>
  const T* Last() const {
    for (auto it = events_.rbegin(); it != events_.rend(); ++it) {
      if (const T* event = std::get_if<T>(&*it)) return event;
    }
    return nullptr;
  }

  ArenaStore store_;
  const TemporaryFolder folder_;
  std::string path_;
  std::unique_ptr<FdServer> server_;
  std::vector<FdEvent> events_;
};

TEST_F(FdPassingTest, ArenaGoesFromTrainerToBridgeToSampler) {
  auto arena = WritableArena::Create(kBytes);
  ASSERT_TRUE(arena.ok());
  store_.Grant(kTrainer, kArena, /*write=*/true);
  store_.Grant(kSampler, kArena, /*write=*/false);
  While([&] {
    auto trainer = FdClient::Connect(path_, kTrainer, kTimeout);
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    const absl::Status put = trainer->Put(kArena, arena->fd(), kBytes, kTimeout);
    ASSERT_TRUE(put.ok()) << put;
    auto sampler = FdClient::Connect(path_, kSampler, kTimeout);
    ASSERT_TRUE(sampler.ok()) << sampler.status();
    auto fd = sampler->Get(kArena, kBytes, kTimeout);
    ASSERT_TRUE(fd.ok()) << fd.status();
    auto view = ReadOnlyArena::Map(*std::move(fd), kBytes);
    ASSERT_TRUE(view.ok()) << view.status();
    arena->bytes()[77] = 123;
    EXPECT_EQ(view->bytes()[77], 123);
  });
  ASSERT_NE(Last<ArenaPut>(), nullptr);
  EXPECT_EQ(Last<ArenaPut>()->arena_id, kArena);
  EXPECT_EQ(Last<ArenaPut>()->incarnation, kTrainer);
  EXPECT_EQ(Last<ArenaPut>()->bytes, kBytes);
}

TEST_F(FdPassingTest, RefusalCarriesCodeAndText) {
  auto arena = WritableArena::Create(kBytes);
  ASSERT_TRUE(arena.ok());
  While([&] {
    auto client = FdClient::Connect(path_, kSampler, kTimeout);
    ASSERT_TRUE(client.ok());
    auto missing = client->Get(kArena, kBytes, kTimeout);
    EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
    EXPECT_TRUE(absl::StrContains(missing.status().message(), "arena 9")) << missing.status();
    EXPECT_EQ(client->Put(kArena, arena->fd(), kBytes, kTimeout).code(),
              absl::StatusCode::kPermissionDenied);
  });
  EXPECT_EQ(Last<ArenaPut>(), nullptr);
}

TEST_F(FdPassingTest, UnsealedArenaIsRefusedAndTheConnectionLives) {
  store_.Grant(kTrainer, kArena, /*write=*/true);
  UniqueFd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), kBytes), 0);
  auto sealed = WritableArena::Create(kBytes);
  ASSERT_TRUE(sealed.ok());
  While([&] {
    auto client = FdClient::Connect(path_, kTrainer, kTimeout);
    ASSERT_TRUE(client.ok());
    const absl::Status refused = client->Put(kArena, unsealed.get(), kBytes, kTimeout);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_TRUE(client->Put(kArena, sealed->fd(), kBytes, kTimeout).ok());
  });
}

TEST_F(FdPassingTest, KilledPeerIsNoticedByItsLifeline) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const FdRequestBytes join = EncodeFdRequest({FdRequestKind::kJoin, kSampler, 0, 0});
    UniqueFd socket = RawConnection();
    if (::write(socket.get(), join.data(), join.size()) < 0) ::_exit(1);
    for (;;) ::pause();
  }
  ASSERT_TRUE(TurnUntil([&] { return server_->connections() == 1; }));
  Turn(100);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(TurnUntil([&] { return Last<FdPeerLeft>() != nullptr; }));
  EXPECT_EQ(Last<FdPeerLeft>()->incarnation, kSampler);
  EXPECT_EQ(server_->connections(), 0u);
}

TEST_F(FdPassingTest, GarbageClosesTheConnectionAndLeaksNothing) {
  const size_t before = OpenDescriptors();
  std::mt19937 random(20261130);
  for (int i = 0; i < 50; ++i) {
    UniqueFd socket = RawConnection();
    uint8_t junk[200];
    for (uint8_t& byte : junk) byte = static_cast<uint8_t>(random());
    ASSERT_EQ(::send(socket.get(), junk, sizeof(junk), MSG_NOSIGNAL), 200);
    ASSERT_TRUE(TurnUntil([&] { return server_->connections() == 1; }));
    ASSERT_TRUE(TurnUntil([&] { return server_->connections() == 0; }));
  }
  EXPECT_NE(Last<FdGarbage>(), nullptr);
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(FdPassingTest, TooManyDescriptorsCloseTheConnectionAndLeakNothing) {
  const size_t before = OpenDescriptors();
  {
    UniqueFd socket = RawConnection();
    const FdRequestBytes join = EncodeFdRequest({FdRequestKind::kJoin, kTrainer, 0, 0});
    int fds[40];
    std::vector<UniqueFd> owned;
    for (int& fd : fds) {
      owned.emplace_back(::memfd_create("many", MFD_CLOEXEC));
      fd = owned.back().get();
    }
    iovec part{const_cast<uint8_t*>(join.data()), join.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(c), fds, sizeof(fds));
    ASSERT_EQ(::sendmsg(socket.get(), &message, 0), static_cast<ssize_t>(join.size()));
    ASSERT_TRUE(TurnUntil([&] { return Last<FdGarbage>() != nullptr; }));
  }
  EXPECT_EQ(server_->connections(), 0u);
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(FdPassingTest, NobodyAsksInAnothersName) {
  store_.Grant(kTrainer, kArena, /*write=*/false);
  UniqueFd socket = RawConnection();
  const FdRequestBytes join = EncodeFdRequest({FdRequestKind::kJoin, kSampler, 0, 0});
  const FdRequestBytes get = EncodeFdRequest({FdRequestKind::kGet, kTrainer, kArena, 0});
  ASSERT_GT(::write(socket.get(), join.data(), join.size()), 0);
  ASSERT_GT(::write(socket.get(), get.data(), get.size()), 0);
  ASSERT_TRUE(TurnUntil([&] { return Last<FdPeerLeft>() != nullptr; }));
  EXPECT_TRUE(absl::StrContains(Last<FdPeerLeft>()->reason, "did not join as"));
}

TEST_F(FdPassingTest, PutAndGetLeakNoDescriptor) {
  store_.Grant(kTrainer, kArena, /*write=*/true);
  store_.Grant(kTrainer, kArena, /*write=*/false);
  size_t before = 0;
  auto round = [&] {
    While([&] {
      auto arena = WritableArena::Create(kBytes);
      auto client = FdClient::Connect(path_, kTrainer, kTimeout);
      ASSERT_TRUE(client.ok());
      ASSERT_TRUE(client->Put(kArena, arena->fd(), kBytes, kTimeout).ok());
      ASSERT_TRUE(client->Get(kArena, kBytes, kTimeout).ok());
    });
    ASSERT_TRUE(TurnUntil([&] { return server_->connections() == 0; }));
    store_.Close(kArena);
    store_.Grant(kTrainer, kArena, /*write=*/true);
    store_.Grant(kTrainer, kArena, /*write=*/false);
  };
  round();
  before = OpenDescriptors();
  for (int i = 0; i < 20; ++i) round();
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(FdPassingTest, ServerThatDoesNotAnswerIsADeadlineNotAHang) {
  auto client = FdClient::Connect(path_, kSampler, absl::Milliseconds(50));  // nobody turns
  EXPECT_EQ(client.status().code(), absl::StatusCode::kDeadlineExceeded) << client.status();
}

TEST_F(FdPassingTest, FolderOpenToOthersIsRefused) {
  const TemporaryFolder shared;
  ASSERT_EQ(::chmod(shared.path().c_str(), 0755), 0);
  EXPECT_FALSE(FdServer::Listen(shared.path() + "/bridge.sock.fd", store_).ok());
}

TEST_F(FdPassingTest, SecondServerIsRefusedAndADeadOnesSocketIsReplaced) {
  EXPECT_EQ(FdServer::Listen(path_, store_).status().code(), absl::StatusCode::kAlreadyExists);
  const std::string stale = path_ + "2";
  sockaddr_storage address{};
  socklen_t length = 0;
  ASSERT_TRUE(FillUnixAddress(stale, address, length).ok());
  {
    UniqueFd dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  }
  auto server = FdServer::Listen(stale, store_);
  EXPECT_TRUE(server.ok()) << server.status();
}

}  // namespace
}  // namespace lockstep::transport
