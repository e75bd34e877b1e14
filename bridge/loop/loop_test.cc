#include "bridge/loop/loop.h"

#include <algorithm>
#include <filesystem>

#include "bridge/loop/loop_testing.h"
#include "bridge/transport/fd_client.h"
#include "bridge/wire/wire.h"

namespace lockstep::loop {
namespace {

Rollout UnknownVersionRollout(const std::string& id) {
  Rollout rollout;
  rollout.id = id;
  rollout.content = Blake2b256(id);
  rollout.sampler = "nobody";
  rollout.spans = {{7, 0, 1}};
  rollout.tokens = {1};
  rollout.sampler_logprobs = {-0.5f};
  return rollout;
}

absl::Span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// A connection that says what no client of ours says.
class RawPeer {
 public:
  explicit RawPeer(const std::string& address)
      : context_(wire::ZmqContext::Create().value()),
        socket_(wire::ZmqSocket::Create(context_, ZMQ_DEALER).value()) {
    EXPECT_TRUE(socket_.Connect(address).ok());
  }
  void Send(absl::Span<const uint8_t> frame, int flags = 0) {
    EXPECT_TRUE(socket_.Send(frame, flags).ok());
  }
  Envelope Hear() {
    zmq_pollitem_t item{socket_.get(), 0, ZMQ_POLLIN, 0};
    EXPECT_EQ(zmq_poll(&item, 1, 30'000), 1);
    absl::StatusOr<std::optional<wire::BodyFrame>> frame = wire::TryReceiveBody(socket_);
    if (!frame.ok() || !frame->has_value()) {
      ADD_FAILURE() << "no answer";
      return {};
    }
    return wire::Decode((*frame)->body.bytes()).value();
  }

 private:
  wire::ZmqContext context_;
  wire::ZmqSocket socket_;
};

RefusalCode CodeOf(const Envelope& envelope) {
  const Refused* refused = std::get_if<Refused>(&envelope.body);
  EXPECT_NE(refused, nullptr);
  return refused == nullptr ? RefusalCode::kDuplicate : refused->refusals.front().code;
}

TEST(LoopTest, HelloIsWelcomedWithTheDescriptorSocketAndTheBulkPort) {
  Place place;
  RunningLoop bridge(place);
  TestPeer peer(bridge.address(), PeerRole::kOperator, "op");
  const Welcome welcome = peer.Meet();
  EXPECT_EQ(welcome.run, "default");
  EXPECT_EQ(welcome.fd_socket_path, place.listen.path + ".fd");
  EXPECT_EQ(welcome.bulk_address.rfind("tcp://127.0.0.1:", 0), 0u) << welcome.bulk_address;
  EXPECT_NE(welcome.bulk_key, Digest256{});
  EXPECT_EQ(peer.Ask<StatusReply>(StatusRequest{}).listen, bridge.address());
}

TEST(LoopTest, MalformedFrameIsAnsweredAndCounted) {
  Place place;
  RunningLoop bridge(place);
  TestPeer peer(bridge.address(), PeerRole::kOperator, "op");
  peer.Meet();
  RawPeer raw(bridge.address());
  raw.Send(AsBytes("not a frame of ours"));
  EXPECT_EQ(CodeOf(raw.Hear()), RefusalCode::kBadMessage);
  std::vector<uint8_t> frame =
      wire::Encode(Envelope{Incarnation{9}, 1, 0, Hello{PeerRole::kOperator, "raw", "", ""}});
  raw.Send(frame, ZMQ_SNDMORE);
  raw.Send(frame);
  const Envelope two_frames = raw.Hear();
  EXPECT_EQ(CodeOf(two_frames), RefusalCode::kBadMessage);
  frame.back() ^= 1;
  raw.Send(frame);
  EXPECT_EQ(CodeOf(raw.Hear()), RefusalCode::kBadMessage);
  EXPECT_EQ(CountOf(peer.Ask<StatusReply>(StatusRequest{}).refusals, "bad_message"), 3u);
}

TEST(LoopTest, MalformedFrameEndsTheSessionThatSentIt) {
  Place place;
  RunningLoop bridge(place);
  RawPeer raw(bridge.address());
  const Incarnation self{9};
  raw.Send(wire::Encode(Envelope{self, 1, 0, Hello{PeerRole::kOperator, "raw", "", ""}}));
  EXPECT_TRUE(std::holds_alternative<Welcome>(raw.Hear().body));
  raw.Send(AsBytes("x"));
  EXPECT_EQ(CodeOf(raw.Hear()), RefusalCode::kBadMessage);
  raw.Send(wire::Encode(Envelope{self, 2, 0, StatusRequest{}}));
  EXPECT_EQ(CodeOf(raw.Hear()), RefusalCode::kUnknownPeer);
}

TEST(LoopTest, OtherProtocolVersionIsRefusedWithBothNumbers) {
  Place place;
  RunningLoop bridge(place);
  RawPeer raw(bridge.address());
  std::vector<uint8_t> frame = wire::Encode(Envelope{Incarnation{9}, 1, 0, Ping{}});
  frame[4] = 7;  // the frame's version, bridge/wire/frame.h
  raw.Send(frame);
  const Envelope answer = raw.Hear();
  EXPECT_EQ(CodeOf(answer), RefusalCode::kProtocolVersion);
  const std::string& message = std::get<Refused>(answer.body).refusals.front().message;
  EXPECT_NE(message.find("7"), std::string::npos) << message;
  EXPECT_NE(message.find(std::to_string(kProtocolVersion)), std::string::npos) << message;
}

// Fails from the first decision on; what came before is kept.
class FullDisk : public ledger::Ledger {
 public:
  explicit FullDisk(std::unique_ptr<ledger::Ledger> real) : real_(std::move(real)) {}
  absl::Status Append(absl::Span<const core::LedgerRecord> records) override {
    for (const core::LedgerRecord& record : records) {
      full_ |= std::holds_alternative<core::DecisionRecord>(record);
    }
    if (full_) {
      EXPECT_EQ(refused_++, 0) << "a ledger that failed was tried again";
      return absl::ResourceExhaustedError("no space left on device");
    }
    return real_->Append(records);
  }
  absl::StatusOr<std::optional<Decision>> FindDecision(absl::string_view id) override {
    return real_->FindDecision(id);
  }
  absl::StatusOr<EventsReply> Events(uint64_t after, uint32_t limit) override {
    return real_->Events(after, limit);
  }
  absl::StatusOr<core::RecoveredState> Recover() override { return real_->Recover(); }
  const Digest256& ticket_key() const override { return real_->ticket_key(); }
  uint64_t boot() const override { return real_->boot(); }

 private:
  std::unique_ptr<ledger::Ledger> real_;
  bool full_ = false;
  int refused_ = 0;
};

TEST(LoopTest, ADecisionThatIsNotDurableIsNotAnsweredAndEndsTheBridge) {
  Place place;
  RunningLoop bridge(place, [](std::unique_ptr<ledger::Ledger> real) {
    return std::unique_ptr<ledger::Ledger>(new FullDisk(std::move(real)));
  });
  TestPeer peer(bridge.address(), PeerRole::kOperator, "op");
  peer.Meet();
  peer.Request(SubmitRolloutFor{UnknownVersionRollout("r1"), std::nullopt});
  peer.Request(Ping{});
  const absl::Status ended = bridge.Wait();
  EXPECT_EQ(ended.code(), absl::StatusCode::kResourceExhausted);
  // The loop and its queues are gone: what it had sent is here.
  for (;;) {
    const std::optional<Envelope> heard =
        peer.Hear(std::chrono::steady_clock::now() + std::chrono::milliseconds(200));
    if (!heard.has_value()) break;
    EXPECT_FALSE(std::holds_alternative<DecisionReply>(heard->body));
  }
}

TEST(LoopTest, DecisionsAndEventsOutliveARestart) {
  Place place;
  Decision first;
  uint64_t last_seq = 0;
  {
    RunningLoop bridge(place);
    TestPeer peer(bridge.address(), PeerRole::kOperator, "op");
    peer.Meet();
    first = peer.Ask<DecisionReply>(SubmitRolloutFor{UnknownVersionRollout("r1"), {}}).decision;
    EXPECT_EQ(first.kind, DecisionKind::kRefuse);
    last_seq = peer.Ask<EventsReply>(EventsRequest{}).last_seq;
    EXPECT_TRUE(bridge.Stop().ok());
  }
  RunningLoop bridge(place);
  EXPECT_EQ(bridge.config().boot, 2u);
  TestPeer peer(bridge.address(), PeerRole::kOperator, "op");
  peer.Meet();
  EXPECT_EQ(peer.Ask<DecisionReply>(SubmitRolloutFor{UnknownVersionRollout("r1"), {}}).decision,
            first);
  Rollout other = UnknownVersionRollout("r1");
  other.content = Blake2b256("other");
  const Decision duplicate = peer.Ask<DecisionReply>(SubmitRolloutFor{other, {}}).decision;
  EXPECT_TRUE(
      std::any_of(duplicate.reasons.begin(), duplicate.reasons.end(),
                  [](const Refusal& reason) { return reason.code == RefusalCode::kDuplicate; }));
  EXPECT_TRUE(peer.Ask<ExplainReply>(ExplainRequest{ExplainKind::kRollout, "r1"}).found);
  const EventsReply events = peer.Ask<EventsReply>(EventsRequest{last_seq, 2});
  ASSERT_EQ(events.events.size(), 2u);
  EXPECT_EQ(events.events[0].seq, last_seq + 1);
}

TEST(LoopTest, EventsAreForPeersThatSaidHello) {
  Place place;
  RunningLoop bridge(place);
  RawPeer raw(bridge.address());
  raw.Send(wire::Encode(Envelope{Incarnation{9}, 1, 0, EventsRequest{}}));
  EXPECT_EQ(CodeOf(raw.Hear()), RefusalCode::kUnknownPeer);
}

TEST(LoopTest, SigtermEndsTheLoopAndRemovesTheSockets) {
  Place place;
  RunningLoop bridge(place);
  TestPeer peer(bridge.address(), PeerRole::kOperator, "op");
  peer.Meet();
  EXPECT_TRUE(std::filesystem::exists(place.listen.path));
  EXPECT_TRUE(bridge.Stop().ok());
  EXPECT_FALSE(std::filesystem::exists(place.listen.path));
  EXPECT_FALSE(std::filesystem::exists(place.listen.path + ".fd"));
}

TEST(LoopTest, SecondSignalEndsAtOnce) {
  Place place;
  RunningLoop bridge(place);
  bridge.Signal(SIGINT);
  bridge.Signal(SIGTERM);
  EXPECT_EQ(bridge.Wait().code(), absl::StatusCode::kCancelled);
}

TEST(LoopTest, SilentPeerIsGoneWhenItsLeaseLapses) {
  Place place;
  place.config.lease_ms = 100;
  RunningLoop bridge(place);
  TestPeer silent(bridge.address(), PeerRole::kSampler, "s1");
  silent.Meet();
  silent.Ask<Registered>(SamplerRegistration());
  TestPeer peer(bridge.address(), PeerRole::kOperator, "op");
  peer.Meet();
  EXPECT_TRUE(StatusBecomes(peer, [](const StatusReply& status) {
    return status.samplers.size() == 1 && !status.samplers[0].connected;
  }));
  silent.Request(Ping{});
  const std::optional<Envelope> heard = silent.Hear();
  ASSERT_TRUE(heard.has_value());
  EXPECT_EQ(CodeOf(*heard), RefusalCode::kUnknownPeer);
}

TEST(LoopTest, TheEndOfTheDescriptorConnectionEndsThePeer) {
  Place place;
  RunningLoop bridge(place);
  TestPeer peer(bridge.address(), PeerRole::kOperator, "op");
  peer.Meet();
  TestPeer sampler(bridge.address(), PeerRole::kSampler, "s1");
  const Welcome welcome = sampler.Meet();
  {
    auto line = transport::FdClient::Connect(welcome.fd_socket_path, sampler.incarnation(),
                                             absl::Seconds(10));
    ASSERT_TRUE(line.ok()) << line.status();
    sampler.Ask<Registered>(SamplerRegistration());
    ASSERT_TRUE(peer.Ask<StatusReply>(StatusRequest{}).samplers[0].connected);
  }
  EXPECT_TRUE(
      StatusBecomes(peer, [](const StatusReply& status) { return !status.samplers[0].connected; }));
}

}  // namespace
}  // namespace lockstep::loop
