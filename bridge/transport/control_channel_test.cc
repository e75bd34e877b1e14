#include "bridge/transport/control_channel.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bridge/transport/temporary_folder_testing.h"
#include "bridge/wire/wire.h"

namespace lockstep::transport {
namespace {

using wire::RoutedFrame;
using wire::ZmqContext;
using wire::ZmqSocket;

using Clock = std::chrono::steady_clock;
Clock::time_point Soon() { return Clock::now() + std::chrono::seconds(20); }

absl::Span<const uint8_t> Bytes(absl::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Envelope Numbered(uint64_t seq) {
  return {.incarnation = {1}, .seq = seq, .reply_to = 0, .body = Ping{}};
}

struct Curve {
  char public_key[41];
  char secret_key[41];
  Curve() { EXPECT_EQ(zmq_curve_keypair(public_key, secret_key), 0); }
};

// The bridge's end: a ROUTER.
class FakeBridge {
 public:
  explicit FakeBridge(const std::string& address, const Curve* keys = nullptr) {
    EXPECT_TRUE(router_.SetInt(ZMQ_ROUTER_MANDATORY, 1).ok());
    if (keys != nullptr) {
      EXPECT_TRUE(router_.SetInt(ZMQ_CURVE_SERVER, 1).ok());
      EXPECT_TRUE(router_.SetText(ZMQ_CURVE_SECRETKEY, {keys->secret_key, 41}).ok());
      EXPECT_TRUE(router_.SetText(ZMQ_ZAP_DOMAIN, "test").ok());
    }
    EXPECT_TRUE(router_.Bind(address).ok());
  }

  Address address() { return ParseAddress(router_.LastEndpoint().value()).value(); }
  ZmqSocket& router() { return router_; }
  ZmqContext& context() { return context_; }

  std::optional<RoutedFrame> Take() {
    const auto deadline = Soon();
    while (Clock::now() < deadline) {
      zmq_pollitem_t item = {router_.get(), 0, ZMQ_POLLIN, 0};
      zmq_poll(&item, 1, 100);
      auto frame = wire::TryReceiveRouted(router_).value();
      if (frame.has_value()) return frame;
    }
    ADD_FAILURE() << "nothing came";
    return std::nullopt;
  }

 private:
  ZmqContext context_ = ZmqContext::Create().value();
  ZmqSocket router_ = ZmqSocket::Create(context_, ZMQ_ROUTER).value();
};

class ControlChannelTest : public testing::Test {
 protected:
  std::string ipc() const { return absl::StrCat("ipc://", folder_.path(), "/b.sock"); }

  static std::unique_ptr<ControlChannel> Connect(const Address& address) {
    return ControlChannel::Connect(address, std::nullopt).value();
  }

  // The next message, over changes of the connection.
  static absl::StatusOr<Envelope> ReceiveOne(ControlChannel& channel) {
    const auto deadline = Soon();
    while (Clock::now() < deadline) {
      absl::StatusOr<std::optional<Envelope>> envelope = channel.Receive(deadline);
      if (!envelope.ok()) return envelope.status();
      if (envelope->has_value()) return **std::move(envelope);
    }
    return absl::DeadlineExceededError("no message");
  }

  // The first error of Receive.
  static absl::Status FirstError(ControlChannel& channel) { return ReceiveOne(channel).status(); }

  TemporaryFolder folder_;
};

TEST_F(ControlChannelTest, EnvelopesGoBothWays) {
  FakeBridge bridge(ipc());
  const auto channel = Connect(bridge.address());
  ASSERT_TRUE(channel->Send(Numbered(7)).ok());
  const std::optional<RoutedFrame> request = bridge.Take();
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(wire::Decode(request->frame.body.bytes())->seq, 7u);
  ASSERT_TRUE(
      wire::SendRouted(bridge.router(), request->routing_id, wire::Encode(Numbered(8))).ok());
  EXPECT_EQ(ReceiveOne(*channel)->seq, 8u);
  EXPECT_TRUE(channel->connected());
  EXPECT_EQ(channel->connections(), 1u);
}

TEST_F(ControlChannelTest, LastWordsArriveWithinTheLinger) {
  FakeBridge bridge(ipc());
  {
    const auto channel = Connect(bridge.address());
    ASSERT_TRUE(channel->SetLinger(std::chrono::seconds(20)).ok());
    ASSERT_TRUE(channel->Send(Numbered(9)).ok());
  }
  EXPECT_EQ(wire::Decode(bridge.Take()->frame.body.bytes())->seq, 9u);
}

TEST_F(ControlChannelTest, PastDeadlineReturnsNothing) {
  FakeBridge bridge(ipc());
  const auto channel = Connect(bridge.address());
  const auto received = channel->Receive(Clock::now());
  ASSERT_TRUE(received.ok());
  EXPECT_FALSE(received->has_value());
}

TEST_F(ControlChannelTest, WakeEndsAReceiveFromAnotherThread) {
  const auto channel = Connect(ParseAddress(ipc()).value());
  std::thread waker([&] { channel->Wake(); });
  const auto received = channel->Receive(Clock::now() + std::chrono::hours(1));
  waker.join();
  ASSERT_TRUE(received.ok());
  EXPECT_FALSE(received->has_value());
  // A wake before the wait is kept; several are one.
  channel->Wake();
  channel->Wake();
  EXPECT_FALSE(channel->Receive(Clock::now() + std::chrono::hours(1))->has_value());
}

TEST_F(ControlChannelTest, RequestsWaitForABridgeThatStartsLaterAndSurviveItsRestart) {
  const auto channel = Connect(ParseAddress(ipc()).value());
  ASSERT_TRUE(channel->Send(Numbered(1)).ok());
  {
    FakeBridge bridge(ipc());
    EXPECT_EQ(wire::Decode(bridge.Take()->frame.body.bytes())->seq, 1u);
  }
  FakeBridge restarted(ipc());
  while (channel->connections() < 2) {
    ASSERT_TRUE(channel->Receive(Soon()).ok());
  }
  ASSERT_TRUE(channel->Send(Numbered(2)).ok());
  EXPECT_EQ(wire::Decode(restarted.Take()->frame.body.bytes())->seq, 2u);
}

TEST_F(ControlChannelTest, BadFramesAreErrorsAndTheChannelGoesOn) {
  FakeBridge bridge(ipc());
  const auto channel = Connect(bridge.address());
  ASSERT_TRUE(channel->Send(Numbered(1)).ok());
  const std::string peer = bridge.Take()->routing_id;
  ASSERT_TRUE(wire::SendRouted(bridge.router(), peer, Bytes("nonsense")).ok());
  EXPECT_EQ(FirstError(*channel).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(wire::SendRouted(bridge.router(), peer, Bytes("LKST\xff\xff")).ok());
  EXPECT_TRUE(wire::IsProtocolVersionError(FirstError(*channel)));

  ASSERT_TRUE(bridge.router().Send(Bytes(peer), ZMQ_SNDMORE).ok());
  ASSERT_TRUE(bridge.router().Send(wire::Encode(Numbered(3)), ZMQ_SNDMORE).ok());
  ASSERT_TRUE(bridge.router().Send(Bytes("more")).ok());
  const absl::Status several = FirstError(*channel);
  EXPECT_EQ(several.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(several.message().find("1 frames more"), absl::string_view::npos) << several;

  ASSERT_TRUE(wire::SendRouted(bridge.router(), peer, wire::Encode(Numbered(4))).ok());
  EXPECT_EQ(ReceiveOne(*channel)->seq, 4u);
}

TEST_F(ControlChannelTest, FullQueueIsUnavailableNotAWait) {
  const auto channel = Connect(ParseAddress(ipc()).value());  // nobody takes anything
  absl::Status status;
  for (int i = 0; i <= kControlHighWaterMark && status.ok(); ++i) {
    status = channel->Send(Numbered(1));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(ControlChannelTest, PeerThatIsGoneIsNotFound) {
  FakeBridge bridge(ipc());
  EXPECT_EQ(wire::SendRouted(bridge.router(), "nobody", Bytes("x")).code(),
            absl::StatusCode::kNotFound);
}

TEST_F(ControlChannelTest, TcpTakesKeysOnly) {
  const Address address = ParseAddress("tcp://127.0.0.1:7").value();
  EXPECT_EQ(ControlChannel::Connect(address, std::nullopt).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ControlChannel::Connect(address, ClientKeys{"a", "b", "c"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ControlChannelTest, CurveOverTcp) {
  const Curve server, client;
  FakeBridge bridge("tcp://127.0.0.1:0", &server);
  const auto channel =
      ControlChannel::Connect(bridge.address(),
                              ClientKeys{server.public_key, client.public_key, client.secret_key})
          .value();
  ASSERT_TRUE(channel->Send(Numbered(5)).ok());
  EXPECT_EQ(wire::Decode(bridge.Take()->frame.body.bytes())->seq, 5u);
}

TEST_F(ControlChannelTest, WrongKeyOfTheBridgeIsSaid) {
  const Curve server, other, client;
  FakeBridge bridge("tcp://127.0.0.1:0", &server);
  const auto channel =
      ControlChannel::Connect(bridge.address(),
                              ClientKeys{other.public_key, client.public_key, client.secret_key})
          .value();
  const absl::Status status = FirstError(*channel);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
}

TEST_F(ControlChannelTest, RefusedKeyIsSaid) {
  const Curve server, client;
  FakeBridge bridge("tcp://127.0.0.1:0", &server);
  ZmqSocket zap = ZmqSocket::Create(bridge.context(), ZMQ_REP).value();
  ASSERT_TRUE(zap.Bind("inproc://zeromq.zap.01").ok());
  const auto channel =
      ControlChannel::Connect(bridge.address(),
                              ClientKeys{server.public_key, client.public_key, client.secret_key})
          .value();
  // Refuses whoever asks, until the channel has heard it.
  absl::Status status;
  const auto deadline = Soon();
  while (status.ok() && Clock::now() < deadline) {
    const auto received = channel->Receive(Clock::now() + std::chrono::milliseconds(20));
    if (!received.ok()) status = received.status();
    std::vector<std::string> request;
    for (auto frame = zap.TryReceive().value(); frame.has_value();
         frame = zap.TryReceive().value()) {
      request.emplace_back(frame->text());
      if (!frame->more()) break;
    }
    if (request.size() < 2) continue;
    const std::string reply[] = {"1.0", request[1], "400", "no", "", ""};
    for (size_t i = 0; i < 6; ++i) {
      ASSERT_TRUE(zap.Send(Bytes(reply[i]), i < 5 ? ZMQ_SNDMORE : 0).ok());
    }
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(status.message().find("refused our key"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace lockstep::transport
