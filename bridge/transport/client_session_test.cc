#include "bridge/transport/client_session.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bridge/transport/temporary_folder_testing.h"
#include "bridge/wire/wire.h"

namespace lockstep::transport {
namespace {

using Clock = std::chrono::steady_clock;
using Opened = absl::StatusOr<std::unique_ptr<ClientSession>>;

Clock::time_point Soon() { return Clock::now() + std::chrono::seconds(20); }

Refused RefusedWith(RefusalCode code) { return {{{code, "key", "because"}}, true}; }

// The bridge's end, played by the test's thread: a ROUTER with one peer.
class FakeBridge {
 public:
  FakeBridge(const std::string& address, uint8_t incarnation) : incarnation_{incarnation} {
    EXPECT_TRUE(router_.SetInt(ZMQ_ROUTER_MANDATORY, 1).ok());
    const absl::Status bound = router_.Bind(address);
    EXPECT_TRUE(bound.ok()) << bound;
  }

  // The next message that is no Ping.
  Envelope Take() {
    while (Clock::now() < Soon()) {
      std::optional<Envelope> envelope = TakeAny();
      if (!envelope.has_value()) break;
      if (!std::holds_alternative<Ping>(envelope->body)) return *std::move(envelope);
    }
    ADD_FAILURE() << "nothing came";
    return {};
  }

  std::optional<Envelope> TakeAny() {
    const auto deadline = Soon();
    while (Clock::now() < deadline) {
      zmq_pollitem_t item = {router_.get(), 0, ZMQ_POLLIN, 0};
      zmq_poll(&item, 1, 100);
      std::optional<wire::RoutedFrame> frame = wire::TryReceiveRouted(router_).value();
      if (!frame.has_value()) continue;
      peer_ = frame->routing_id;
      return wire::Decode(frame->frame.body.bytes()).value();
    }
    return std::nullopt;
  }

  template <typename T>
  Envelope Expect() {
    Envelope envelope = Take();
    EXPECT_TRUE(std::holds_alternative<T>(envelope.body)) << "kind " << envelope.body.index();
    return envelope;
  }

  void Send(uint64_t reply_to, Message body) {
    SendFrame(wire::Encode({incarnation_, 0, reply_to, std::move(body)}));
  }
  void SendFrame(const std::vector<uint8_t>& frame) {
    EXPECT_TRUE(wire::SendRouted(router_, peer_, frame).ok());
  }

  // Hello and Welcome.
  Hello Greet(uint64_t lease_ms = 60'000) {
    const Envelope hello = Expect<Hello>();
    Welcome welcome;
    welcome.run = "default";
    welcome.lease_ms = lease_ms;
    Send(hello.seq, welcome);
    return std::get<Hello>(hello.body);
  }

  // A registration and its answer.
  void Register(Message answer) { Send(Expect<RegisterTrainer>().seq, std::move(answer)); }

  wire::ZmqSocket& router() { return router_; }

 private:
  Incarnation incarnation_;
  std::string peer_;
  wire::ZmqContext context_ = wire::ZmqContext::Create().value();
  wire::ZmqSocket router_ = wire::ZmqSocket::Create(context_, ZMQ_ROUTER).value();
};

// What hooks and answers said, in order.
class Heard {
 public:
  void Say(std::string word) {
    const std::lock_guard<std::mutex> lock(mutex_);
    words_.push_back(std::move(word));
    changed_.notify_all();
  }
  // The first `count` words, once there are as many.
  std::vector<std::string> Wait(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    EXPECT_TRUE(changed_.wait_until(lock, Soon(), [&] { return words_.size() >= count; }))
        << words_.size() << " of " << count;
    return words_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> words_;
};

class ClientSessionTest : public testing::Test {
 protected:
  std::string address() const { return absl::StrCat("ipc://", folder_.path(), "/b.sock"); }

  SessionOptions Options(PeerRole role = PeerRole::kOperator) const {
    SessionOptions options;
    options.bridge.address = address();
    options.role = role;
    options.name = "tester";
    options.connect_timeout = absl::Seconds(20);
    return options;
  }

  SessionHooks TrainerHooks() {
    SessionHooks hooks;
    hooks.registration = [](const Welcome&) {
      return std::optional<Message>(RegisterTrainer{.contract_json = "{}"});
    };
    hooks.on_registered = [this](const Message& answer) {
      heard_.Say(std::holds_alternative<Registered>(answer) ? "registered" : "refused");
    };
    hooks.on_message = [this](const Message& message) {
      heard_.Say(std::holds_alternative<DropArena>(message) ? "drop" : "other");
    };
    hooks.on_bridge = [this](const absl::Status& status, bool new_bridge) {
      heard_.Say(!status.ok() ? absl::StrCat("lost ", absl::StatusCodeToString(status.code()))
                 : new_bridge ? "new bridge"
                              : "same bridge");
    };
    return hooks;
  }

  static std::future<Opened> Open(SessionOptions options, SessionHooks hooks = {}) {
    return std::async(std::launch::async,
                      [options = std::move(options), hooks = std::move(hooks)]() mutable {
                        return ClientSession::Open(std::move(options), std::move(hooks));
                      });
  }

  // A session that has been welcomed and, as a trainer, registered.
  std::unique_ptr<ClientSession> OpenTrainer(FakeBridge& bridge) {
    std::future<Opened> opening = Open(Options(PeerRole::kTrainer), TrainerHooks());
    bridge.Greet();
    bridge.Register(Registered{.epoch = 1});
    Opened session = opening.get();
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }

  ClientSession::Answer Says(std::string name) {
    return [this, name](absl::StatusOr<Message> answer) {
      heard_.Say(absl::StrCat(
          name, " ",
          answer.ok() ? std::to_string(answer->index()) : std::string(answer.status().message())));
    };
  }

  TemporaryFolder folder_;
  Heard heard_;
};

TEST_F(ClientSessionTest, NoBridgeIsUnavailableAndSaysWhatToDo) {
  const absl::Status status = ClientSession::Open(Options(), {}).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "start one with lockstepd")) << status;
}

TEST_F(ClientSessionTest, ListenerThatSaysNothingIsUnavailableAfterTheTimeout) {
  FakeBridge bridge(address(), 1);
  SessionOptions options = Options();
  options.connect_timeout = absl::Milliseconds(50);
  const absl::Status status = ClientSession::Open(options, {}).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST_F(ClientSessionTest, HelloCarriesNameRoleAndRun) {
  FakeBridge bridge(address(), 1);
  SessionOptions options = Options(PeerRole::kSampler);
  options.bridge.run = "wanted";
  std::future<Opened> opening = Open(options);
  const Hello hello = bridge.Greet();
  ASSERT_TRUE(opening.get().ok());
  EXPECT_EQ(hello.name, "tester");
  EXPECT_EQ(hello.role, PeerRole::kSampler);
  EXPECT_EQ(hello.run, "wanted");
}

TEST_F(ClientSessionTest, RefusedHelloIsFailedPreconditionWithTheReasons) {
  FakeBridge bridge(address(), 1);
  std::future<Opened> opening = Open(Options());
  bridge.Send(bridge.Expect<Hello>().seq, RefusedWith(RefusalCode::kBadMessage));
  const absl::Status status = opening.get().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "bad_message (key): because")) << status;
}

TEST_F(ClientSessionTest, AnotherProtocolVersionIsFailedPrecondition) {
  FakeBridge bridge(address(), 1);
  std::future<Opened> opening = Open(Options());
  const uint64_t hello = bridge.Expect<Hello>().seq;
  std::vector<uint8_t> frame = wire::Encode({{1}, 0, hello, Welcome{}});
  frame[4] = static_cast<uint8_t>(frame[4] + 1);  // the version, bridge/wire/frame.h
  bridge.SendFrame(frame);
  const absl::Status status = opening.get().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
}

TEST_F(ClientSessionTest, KeysOfAnotherBridgeArePermissionDenied) {
  char server_public[41], server_secret[41], client_public[41], client_secret[41];
  ASSERT_EQ(zmq_curve_keypair(server_public, server_secret), 0);
  ASSERT_EQ(zmq_curve_keypair(client_public, client_secret), 0);
  wire::ZmqContext context = wire::ZmqContext::Create().value();
  wire::ZmqSocket router = wire::ZmqSocket::Create(context, ZMQ_ROUTER).value();
  ASSERT_TRUE(router.SetInt(ZMQ_CURVE_SERVER, 1).ok());
  ASSERT_TRUE(router.SetText(ZMQ_CURVE_SECRETKEY, {server_secret, 41}).ok());
  ASSERT_TRUE(router.Bind("tcp://127.0.0.1:0").ok());
  SessionOptions options = Options();
  options.bridge.address = router.LastEndpoint().value();
  options.bridge.keys = ClientKeys{client_public, client_public, client_secret};
  const absl::Status status = ClientSession::Open(options, {}).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
}

TEST_F(ClientSessionTest, AnswersFindTheirRequestsInAnyOrderAndRepeatsAreDropped) {
  FakeBridge bridge(address(), 1);
  const auto session = OpenTrainer(bridge);
  session->Request(StatusRequest{}, Says("first"));
  session->Request(EventsRequest{}, Says("second"));
  const uint64_t first = bridge.Expect<StatusRequest>().seq;
  const uint64_t second = bridge.Expect<EventsRequest>().seq;
  EXPECT_GT(second, first);
  bridge.Send(second, EventsReply{});
  bridge.Send(second, EventsReply{});
  bridge.Send(first, RefusedWith(RefusalCode::kBadMessage));
  bridge.Send(0, DropArena{7});
  const std::string events = absl::StrCat("second ", Message(EventsReply{}).index());
  const std::string refused = absl::StrCat("first ", Message(Refused{}).index());
  EXPECT_EQ(heard_.Wait(4), (std::vector<std::string>{"registered", events, refused, "drop"}));
}

TEST_F(ClientSessionTest, RequestWithSeveralAnswersEndsWithItsLast) {
  FakeBridge bridge(address(), 1);
  const auto session = OpenTrainer(bridge);
  RequestOptions options;
  options.is_last = [](const Message& message) {
    const auto* reply = std::get_if<DecisionReply>(&message);
    return reply != nullptr && reply->decision.kind != DecisionKind::kPending;
  };
  std::promise<DecisionKind> decided;
  session->Request(
      SubmitRollout{},
      [&](absl::StatusOr<Message> answer) {
        decided.set_value(std::get<DecisionReply>(*answer).decision.kind);
      },
      options);
  const uint64_t seq = bridge.Expect<SubmitRollout>().seq;
  bridge.Send(seq, DecisionReply{{.kind = DecisionKind::kPending}});
  bridge.Send(seq, DecisionReply{{.kind = DecisionKind::kAdmit}});
  EXPECT_EQ(decided.get_future().get(), DecisionKind::kAdmit);
}

TEST_F(ClientSessionTest, CallGivesTheReplyOrTheRefusalsTextOrADeadline) {
  FakeBridge bridge(address(), 1);
  const auto session = OpenTrainer(bridge);
  const auto call = [&](absl::Duration timeout) {
    return std::async(std::launch::async, [&session, timeout] {
      return session->Call<StatusReply>(StatusRequest{}, timeout);
    });
  };
  auto answered = call(absl::Seconds(20));
  bridge.Send(bridge.Expect<StatusRequest>().seq, StatusReply{.run = "r"});
  EXPECT_EQ(answered.get()->run, "r");
  auto refused = call(absl::Seconds(20));
  bridge.Send(bridge.Expect<StatusRequest>().seq, RefusedWith(RefusalCode::kUnauthorised));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.get().status()));
  auto other = call(absl::Seconds(20));
  bridge.Send(bridge.Expect<StatusRequest>().seq, EventsReply{});
  EXPECT_TRUE(absl::IsInternal(other.get().status()));
  EXPECT_TRUE(absl::IsDeadlineExceeded(call(absl::Milliseconds(1)).get().status()));
}

TEST_F(ClientSessionTest, RefusedRegistrationIsToldAndNoErrorOfOpen) {
  FakeBridge bridge(address(), 1);
  std::future<Opened> opening = Open(Options(PeerRole::kTrainer), TrainerHooks());
  bridge.Greet();
  bridge.Register(RefusedWith(RefusalCode::kContractMismatch));
  const Opened session = opening.get();
  ASSERT_TRUE(session.ok()) << session.status();
  (*session)->RegisterAgain();
  bridge.Register(Registered{.epoch = 1});
  EXPECT_EQ(heard_.Wait(2), (std::vector<std::string>{"refused", "registered"}));
}

TEST_F(ClientSessionTest, RequestsWaitForTheRegistration) {
  FakeBridge bridge(address(), 1);
  const auto session = OpenTrainer(bridge);
  bridge.Send(0, RefusedWith(RefusalCode::kUnknownPeer));
  bridge.Greet();
  const uint64_t registration = bridge.Expect<RegisterTrainer>().seq;
  session->Request(StatusRequest{}, Says("status"));
  bridge.Send(registration, Registered{.epoch = 1});
  EXPECT_GT(bridge.Expect<StatusRequest>().seq, registration);
}

TEST_F(ClientSessionTest, RestartedBridgeGetsHelloRegistrationAndOpenRequestsUnderNewNumbers) {
  auto bridge = std::make_unique<FakeBridge>(address(), 1);
  const auto session = OpenTrainer(*bridge);
  session->Request(StatusRequest{}, Says("resent"));
  session->Request(OperatorAct{}, Says("once"), {.resend = false, .is_last = {}});
  const uint64_t old = bridge->Expect<StatusRequest>().seq;
  const uint64_t act = bridge->Expect<OperatorAct>().seq;
  bridge.reset();
  bridge = std::make_unique<FakeBridge>(address(), 2);
  bridge->Greet();
  bridge->Register(Registered{.epoch = 1});
  const Envelope again = bridge->Expect<StatusRequest>();
  EXPECT_GT(again.seq, act);
  bridge->Send(old, StatusReply{});  // the old number means nothing any more
  bridge->Send(again.seq, EventsReply{});
  const std::vector<std::string> words = heard_.Wait(6);
  EXPECT_EQ(words[1], "lost UNAVAILABLE");
  EXPECT_TRUE(absl::StartsWith(words[2], "once outcome unknown")) << words[2];
  EXPECT_EQ(words[3], "new bridge");
  EXPECT_EQ(words[4], "registered");
  EXPECT_EQ(words[5], absl::StrCat("resent ", Message(EventsReply{}).index()));
}

TEST_F(ClientSessionTest, RequestMadeWhileNoBridgeIsThereWaitsForOne) {
  auto bridge = std::make_unique<FakeBridge>(address(), 1);
  const auto session = OpenTrainer(*bridge);
  bridge.reset();
  heard_.Wait(2);  // registered, lost
  session->Post(Sealed{});
  session->Request(OperatorAct{}, Says("act"), {.resend = false, .is_last = {}});
  bridge = std::make_unique<FakeBridge>(address(), 2);
  bridge->Greet();
  bridge->Register(Registered{.epoch = 1});
  bridge->Send(bridge->Expect<OperatorAct>().seq, ActReply{});
  EXPECT_EQ(heard_.Wait(5).back(), absl::StrCat("act ", Message(ActReply{}).index()));
}

TEST_F(ClientSessionTest, AnotherIncarnationOnTheSameConnectionIsANewBridge) {
  FakeBridge bridge(address(), 1);
  const auto session = OpenTrainer(bridge);
  bridge.SendFrame(wire::Encode({{9}, 0, 0, DropArena{1}}));
  bridge.Greet();
  EXPECT_EQ(heard_.Wait(3),
            (std::vector<std::string>{"registered", "lost UNAVAILABLE", "same bridge"}));
}

TEST_F(ClientSessionTest, UnknownPeerIsHelloOnceHoweverOftenItIsSaid) {
  FakeBridge bridge(address(), 1);
  const auto session = OpenTrainer(bridge);
  session->Request(StatusRequest{}, Says("status"));
  const uint64_t seq = bridge.Expect<StatusRequest>().seq;
  bridge.Send(seq, RefusedWith(RefusalCode::kUnknownPeer));
  bridge.Send(0, RefusedWith(RefusalCode::kUnknownPeer));
  bridge.Greet();
  bridge.Register(Registered{.epoch = 1});
  bridge.Send(bridge.Expect<StatusRequest>().seq, StatusReply{});
  EXPECT_EQ(heard_.Wait(5),
            (std::vector<std::string>{"registered", "lost UNAVAILABLE", "same bridge", "registered",
                                      absl::StrCat("status ", Message(StatusReply{}).index())}));
}

TEST_F(ClientSessionTest, BridgeThatTurnsTheClientAwayEndsItsRequests) {
  auto bridge = std::make_unique<FakeBridge>(address(), 1);
  const auto session = OpenTrainer(*bridge);
  bridge.reset();
  heard_.Wait(2);
  session->Request(StatusRequest{}, Says("waiting"));
  bridge = std::make_unique<FakeBridge>(address(), 2);
  bridge->Send(bridge->Expect<Hello>().seq, RefusedWith(RefusalCode::kStaleIncarnation));
  const std::vector<std::string> words = heard_.Wait(4);
  EXPECT_EQ(words[2], "lost FAILED_PRECONDITION");
  EXPECT_TRUE(absl::StartsWith(words[3], "waiting stale_incarnation")) << words[3];
  EXPECT_TRUE(
      absl::IsFailedPrecondition(session->Call(StatusRequest{}, absl::Seconds(20)).status()));
}

TEST_F(ClientSessionTest, PingsKeepTheLease) {
  FakeBridge bridge(address(), 1);
  std::future<Opened> opening = Open(Options());
  bridge.Greet(/*lease_ms=*/30);
  const Opened session = opening.get();
  for (int i = 0; i < 3; ++i) {
    const std::optional<Envelope> ping = bridge.TakeAny();
    ASSERT_TRUE(ping.has_value());
    EXPECT_TRUE(std::holds_alternative<Ping>(ping->body));
    bridge.Send(ping->seq, Pong{});
  }
}

TEST_F(ClientSessionTest, LeavingSaysGoodbyeAndCancelsWhatIsOpen) {
  FakeBridge bridge(address(), 1);
  auto session = OpenTrainer(bridge);
  session->Request(StatusRequest{}, Says("open"));
  bridge.Expect<StatusRequest>();
  session.reset();
  bridge.Expect<Goodbye>();
  EXPECT_TRUE(absl::StartsWith(heard_.Wait(2)[1], "open the session was closed"));
}

TEST_F(ClientSessionTest, DamagedFrameIsPassedOver) {
  FakeBridge bridge(address(), 1);
  const auto session = OpenTrainer(bridge);
  std::vector<uint8_t> frame = wire::Encode({{1}, 0, 0, DropArena{1}});
  frame.back() ^= 1;
  bridge.SendFrame(frame);
  bridge.Send(0, DropArena{2});
  EXPECT_EQ(heard_.Wait(2), (std::vector<std::string>{"registered", "drop"}));
}

}  // namespace
}  // namespace lockstep::transport
