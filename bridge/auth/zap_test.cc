#include "bridge/auth/zap.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lockstep::auth {
namespace {

using wire::ZmqContext;
using wire::ZmqSocket;

std::chrono::steady_clock::time_point Soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(20);
}

absl::Span<const uint8_t> Bytes(absl::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

struct Heard {
  std::vector<ZapVerdict> verdicts;
  std::vector<wire::RoutedFrame> frames;
};

// A bridge's socket on loopback behind a handler.
class ZapTest : public testing::Test {
 protected:
  void SetUp() override {
    list_ =
        absl::StrCat(trainer_.public_key, " t0 trainer\n", sampler_.public_key, " s1 sampler\n");
    handler_ = ZapHandler::Start(context_, AllowList::Parse(list_).value()).value();
    ASSERT_TRUE(handler_->Secure(server_, server_keys_).ok());
    ASSERT_TRUE(server_.Bind("tcp://127.0.0.1:0").ok());
  }

  // A client that has sent `frames` as one message.
  ZmqSocket Client(const KeyPair& keys, std::vector<std::string> frames) {
    ZmqSocket client = ZmqSocket::Create(context_, ZMQ_DEALER).value();
    EXPECT_TRUE(client.SetText(ZMQ_CURVE_SERVERKEY, WithNul(server_keys_.public_key)).ok());
    EXPECT_TRUE(client.SetText(ZMQ_CURVE_PUBLICKEY, WithNul(keys.public_key)).ok());
    EXPECT_TRUE(client.SetText(ZMQ_CURVE_SECRETKEY, WithNul(keys.secret_key)).ok());
    EXPECT_TRUE(client.Connect(server_.LastEndpoint().value()).ok());
    for (size_t i = 0; i < frames.size(); ++i) {
      EXPECT_TRUE(client.Send(Bytes(frames[i]), i + 1 < frames.size() ? ZMQ_SNDMORE : 0).ok());
    }
    return client;
  }

  // Serves until `verdicts` and `frames` of them were heard, or too long.
  Heard Listen(size_t verdicts, size_t frames) {
    Heard heard;
    const auto deadline = Soon();
    while (heard.verdicts.size() < verdicts || heard.frames.size() < frames) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "heard " << heard.verdicts.size() << " and " << heard.frames.size();
        return heard;
      }
      zmq_pollitem_t items[] = {{handler_->socket().get(), 0, ZMQ_POLLIN, 0},
                                {server_.get(), 0, ZMQ_POLLIN, 0}};
      zmq_poll(items, 2, 100);
      if (auto verdict = handler_->HandleOne().value()) heard.verdicts.push_back(*verdict);
      auto frame = wire::TryReceiveRouted(server_).value();
      if (frame.has_value()) heard.frames.push_back(*std::move(frame));
    }
    return heard;
  }

  static absl::string_view WithNul(const std::string& key) { return {key.c_str(), key.size() + 1}; }

  const KeyPair server_keys_ = GenerateKeyPair().value();
  const KeyPair trainer_ = GenerateKeyPair().value();
  const KeyPair sampler_ = GenerateKeyPair().value();
  std::string list_;
  ZmqContext context_ = ZmqContext::Create().value();
  std::unique_ptr<ZapHandler> handler_;
  ZmqSocket server_ = ZmqSocket::Create(context_, ZMQ_ROUTER).value();
};

TEST_F(ZapTest, ListedKeysComeInUnderTheirNameAndRole) {
  const ZmqSocket one = Client(trainer_, {"from t0"});
  const ZmqSocket two = Client(sampler_, {"from s1"});
  const Heard heard = Listen(2, 2);
  ASSERT_EQ(heard.frames.size(), 2u);
  for (const wire::RoutedFrame& routed : heard.frames) {
    const bool trainer = routed.frame.body.text() == "from t0";
    EXPECT_EQ(AuthenticatedName(routed.frame.body).value(), trainer ? "t0:trainer" : "s1:sampler");
  }
}

TEST_F(ZapTest, UnlistedKeyIsRefusedWithAReason) {
  const KeyPair stranger_keys = GenerateKeyPair().value();
  const ZmqSocket stranger = Client(stranger_keys, {"let me in"});
  const Heard refused = Listen(1, 0);
  ASSERT_EQ(refused.verdicts.size(), 1u);
  EXPECT_FALSE(refused.verdicts[0].admitted);
  EXPECT_EQ(refused.verdicts[0].public_key, stranger_keys.public_key);
  EXPECT_EQ(refused.verdicts[0].address, "127.0.0.1");
  EXPECT_NE(refused.verdicts[0].reason.find("not on the allow-list"), std::string::npos);
  // What comes after it is only from those who are listed.
  const ZmqSocket listed = Client(trainer_, {"hello"});
  const Heard heard = Listen(0, 1);
  ASSERT_EQ(heard.frames.size(), 1u);
  EXPECT_EQ(heard.frames[0].frame.body.text(), "hello");
}

TEST_F(ZapTest, ReplacedListJudgesConnectionsToCome) {
  handler_->Replace(AllowList());
  const ZmqSocket client = Client(trainer_, {"hello"});
  EXPECT_FALSE(Listen(1, 0).verdicts.at(0).admitted);
}

TEST_F(ZapTest, MessageOfSeveralFramesIsDrainedAndCounted) {
  ZmqSocket client = Client(trainer_, {"one", "two", "three"});
  ASSERT_TRUE(client.Send(Bytes("next")).ok());
  const Heard heard = Listen(1, 2);
  ASSERT_EQ(heard.frames.size(), 2u);
  EXPECT_EQ(heard.frames[0].frame.dropped_frames, 2u);
  EXPECT_EQ(AuthenticatedName(heard.frames[0].frame.body).value(), "t0:trainer");
  EXPECT_EQ(heard.frames[1].frame.dropped_frames, 0u);
  EXPECT_EQ(heard.frames[1].frame.body.text(), "next");
}

TEST_F(ZapTest, PeerWithoutCurveIsNotHeard) {
  ZmqSocket plain = ZmqSocket::Create(context_, ZMQ_DEALER).value();
  ASSERT_TRUE(plain.Connect(server_.LastEndpoint().value()).ok());
  ASSERT_TRUE(plain.Send(Bytes("plain")).ok());
  const ZmqSocket listed = Client(trainer_, {"hello"});
  const Heard heard = Listen(1, 1);
  ASSERT_EQ(heard.frames.size(), 1u);
  EXPECT_EQ(heard.frames[0].frame.body.text(), "hello");
}

TEST_F(ZapTest, SecondHandlerOfAContextIsRefused) {
  EXPECT_EQ(ZapHandler::Start(context_, AllowList()).status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(ZapTest, SelfTestPassesAndLeavesNobodyAdmitted) {
  EXPECT_TRUE(SelfTest(context_, *handler_, Soon()).ok());
  handler_->Replace(AllowList());
  EXPECT_TRUE(SelfTest(context_, *handler_, Soon()).ok());
  const ZmqSocket stranger = Client(GenerateKeyPair().value(), {"?"});
  EXPECT_FALSE(Listen(1, 0).verdicts.at(0).admitted);
}

// What libzmq does when no handler runs in the context of the server.
TEST_F(ZapTest, SelfTestFailsWhereNoHandlerRuns) {
  const ZmqContext without_handler = ZmqContext::Create().value();
  const absl::Status status = SelfTest(without_handler, *handler_, Soon());
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
}

TEST_F(ZapTest, SelfTestOfPastDeadlineDecidesNothing) {
  EXPECT_EQ(SelfTest(context_, *handler_, std::chrono::steady_clock::now()).code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ZapTest, SecureRefusesWhatIsNoKey) {
  ZmqSocket server = ZmqSocket::Create(context_, ZMQ_ROUTER).value();
  EXPECT_EQ(handler_->Secure(server, {"a", "b"}).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::auth
