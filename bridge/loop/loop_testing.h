#ifndef LOCKSTEP_BRIDGE_LOOP_LOOP_TESTING_H_
#define LOCKSTEP_BRIDGE_LOOP_LOOP_TESTING_H_

// For tests: a loop that runs on a thread of its own over real sockets and a real ledger, and a
// peer that speaks to it.
//
// Example:
//   Place place;
//   RunningLoop bridge(place);
//   TestPeer peer(bridge.address(), PeerRole::kOperator, "op");
//   StatusReply status = peer.Ask<StatusReply>(StatusRequest{});
//   EXPECT_TRUE(bridge.Stop().ok());

#include <fcntl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bridge/core/core_testing.h"
#include "bridge/ledger/ledger.h"
#include "bridge/loop/loop.h"
#include "bridge/transport/control_channel.h"
#include "bridge/transport/temporary_folder_testing.h"
#include "gtest/gtest.h"

namespace lockstep::loop {

// Where a bridge keeps its things across restarts.
struct Place {
  transport::TemporaryFolder folder;
  core::Config config;
  transport::Address listen{transport::Address::Kind::kIpc, folder.path() + "/b.sock", "", 0};
  std::optional<ServerKeys> keys;
  std::string state_dir = folder.path() + "/state";
};

class RunningLoop {
 public:
  using Wrap = std::unique_ptr<ledger::Ledger> (*)(std::unique_ptr<ledger::Ledger>);

  explicit RunningLoop(const Place& place, Wrap wrap = nullptr) {
    int pipe_fds[2];
    EXPECT_EQ(::pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK), 0);
    stop_reader_ = transport::UniqueFd(pipe_fds[0]);
    stop_writer_ = transport::UniqueFd(pipe_fds[1]);
    auto ledger = ledger::OpenLedger({.state_dir = place.state_dir, .run = place.config.run});
    EXPECT_TRUE(ledger.ok()) << ledger.status();
    LoopOptions options;
    options.config = place.config;
    options.listen = place.listen;
    options.keys = place.keys;
    options.state_dir = place.state_dir;
    options.stop_fd = stop_reader_.get();
    options.log_level = LogLevel::kError;
    auto loop = Loop::Create(std::move(options),
                             wrap == nullptr ? *std::move(ledger) : wrap(*std::move(ledger)));
    EXPECT_TRUE(loop.ok()) << loop.status();
    loop_ = *std::move(loop);
    thread_ = std::thread([this] { ended_ = loop_->Run(); });
  }
  ~RunningLoop() {
    if (thread_.joinable()) Stop().IgnoreError();
  }

  // As if this signal had come to the process.
  void Signal(int signal) {
    signalfd_siginfo info{};
    info.ssi_signo = static_cast<uint32_t>(signal);
    EXPECT_EQ(::write(stop_writer_.get(), &info, sizeof(info)), ssize_t{sizeof(info)});
  }
  // How Run ended by itself; its sockets and files are closed.
  absl::Status Wait() {
    thread_.join();
    loop_.reset();
    return ended_;
  }
  absl::Status Stop() {
    Signal(SIGTERM);
    return Wait();
  }

  std::string address() const { return loop_->config().listen; }
  const core::Config& config() const { return loop_->config(); }

 private:
  transport::UniqueFd stop_reader_;
  transport::UniqueFd stop_writer_;
  std::unique_ptr<Loop> loop_;
  absl::Status ended_ = absl::InternalError("still running");
  std::thread thread_;
};

inline std::chrono::steady_clock::time_point TestDeadline() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(30);
}

class TestPeer {
 public:
  TestPeer(const std::string& address, PeerRole role, const std::string& name,
           std::optional<transport::ClientKeys> keys = std::nullopt)
      : channel_(*transport::ControlChannel::Connect(*transport::ParseAddress(address), keys)) {
    static uint8_t started = 0;
    incarnation_.fill(++started);
    hello_seq_ = Request(Hello{role, name, "", "test"});
  }

  // Waits for the Welcome that the first message asked for.
  Welcome Meet() { return Answer<Welcome>(hello_seq_); }

  uint64_t Request(Message body) {
    const Envelope envelope{incarnation_, ++seq_, 0, std::move(body)};
    absl::Status sent = channel_->Send(envelope);
    EXPECT_TRUE(sent.ok()) << sent;
    return seq_;
  }
  void Tell(Message body) {
    EXPECT_TRUE(channel_->Send(Envelope{incarnation_, 0, 0, std::move(body)}).ok());
  }

  // The next message; nullopt when none came within `wait`.
  std::optional<Envelope> Hear(std::chrono::steady_clock::time_point deadline = TestDeadline()) {
    while (std::chrono::steady_clock::now() < deadline) {
      absl::StatusOr<std::optional<Envelope>> envelope = channel_->Receive(deadline);
      EXPECT_TRUE(envelope.ok()) << envelope.status();
      if (!envelope.ok()) return std::nullopt;
      if (envelope->has_value()) return **std::move(envelope);
    }
    return std::nullopt;
  }

  // The answer to request `seq`, of that kind; others are kept in `heard`.
  template <typename T>
  T Answer(uint64_t seq) {
    for (;;) {
      std::optional<Envelope> envelope = Hear();
      if (!envelope.has_value()) {
        ADD_FAILURE() << "no answer to request " << seq;
        return T{};
      }
      T* body = std::get_if<T>(&envelope->body);
      if (envelope->reply_to == seq && body != nullptr) return std::move(*body);
      heard.push_back(*std::move(envelope));
    }
  }
  template <typename T>
  T Ask(Message body) {
    return Answer<T>(Request(std::move(body)));
  }

  const Incarnation& incarnation() const { return incarnation_; }
  transport::ControlChannel& channel() { return *channel_; }

  std::vector<Envelope> heard;

 private:
  std::unique_ptr<transport::ControlChannel> channel_;
  Incarnation incarnation_{};
  uint64_t seq_ = 0;
  uint64_t hello_seq_ = 0;
};

// Asks for the status until `wanted` holds of it.
template <typename Wanted>
::testing::AssertionResult StatusBecomes(TestPeer& peer, Wanted wanted) {
  const auto deadline = TestDeadline();
  while (std::chrono::steady_clock::now() < deadline) {
    if (wanted(peer.Ask<StatusReply>(StatusRequest{}))) return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "the status never became as wanted";
}

// Of a sampler of the model run (bridge/core/core_testing.h).
inline RegisterSampler SamplerRegistration(std::vector<TransportKind> transports = {
                                               TransportKind::kShm, TransportKind::kTcp}) {
  return {
      ContractToJson(core::ModelContract()), {}, core::ModelManifest(), std::move(transports), {}};
}

inline uint64_t CountOf(const std::vector<ReasonCount>& counts, const std::string& reason) {
  for (const ReasonCount& count : counts) {
    if (count.reason == reason) return count.count;
  }
  return 0;
}

}  // namespace lockstep::loop

#endif  // LOCKSTEP_BRIDGE_LOOP_LOOP_TESTING_H_
