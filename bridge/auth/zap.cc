#include "bridge/auth/zap.h"

#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"

namespace lockstep::auth {
namespace {

// Fixed by RFC 27.
constexpr char kZapAddress[] = "inproc://zeromq.zap.01";
constexpr char kZapVersion[] = "1.0";
constexpr size_t kMinRequestFrames = 6;  // version, id, domain, address, identity, mechanism
constexpr size_t kMaxRequestFrames = 8;  // then the mechanism's credentials

constexpr char kDomain[] = "lockstep";
constexpr char kUserIdProperty[] = "User-Id";

absl::Span<const uint8_t> AsBytes(absl::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// The frames of one request; empty when none waits. Frames beyond the most a request has
// are read and dropped.
absl::StatusOr<std::vector<std::string>> TakeRequest(wire::ZmqSocket& socket) {
  std::vector<std::string> frames;
  bool more = true;
  while (more) {
    LOCKSTEP_ASSIGN_OR_RETURN(std::optional<wire::ZmqMessage> frame, socket.TryReceive());
    if (!frame.has_value()) break;
    more = frame->more();
    if (frames.size() < kMaxRequestFrames) frames.emplace_back(frame->text());
  }
  return frames;
}

}  // namespace

ZapHandler::ZapHandler(wire::ZmqSocket socket, AllowList allowed)
    : socket_(std::move(socket)), allowed_(std::move(allowed)) {}

absl::StatusOr<std::unique_ptr<ZapHandler>> ZapHandler::Start(const wire::ZmqContext& context,
                                                              AllowList allowed) {
  LOCKSTEP_ASSIGN_OR_RETURN(wire::ZmqSocket socket, wire::ZmqSocket::Create(context, ZMQ_REP));
  LOCKSTEP_RETURN_IF_ERROR(socket.Bind(kZapAddress));
  return std::unique_ptr<ZapHandler>(new ZapHandler(std::move(socket), std::move(allowed)));
}

absl::Status ZapHandler::Secure(wire::ZmqSocket& server, const KeyPair& keys) const {
  if (!IsKey(keys.secret_key)) {
    return absl::InvalidArgumentError("the bridge's secret key is not 40 characters of Z85");
  }
  LOCKSTEP_RETURN_IF_ERROR(server.SetInt(ZMQ_CURVE_SERVER, 1));
  LOCKSTEP_RETURN_IF_ERROR(server.SetText(ZMQ_ZAP_DOMAIN, kDomain));
  // The terminating NUL belongs to the text form of a key.
  return server.SetText(ZMQ_CURVE_SECRETKEY, {keys.secret_key.c_str(), kKeyCharacters + 1});
}

absl::StatusOr<std::optional<ZapVerdict>> ZapHandler::HandleOne() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> request, TakeRequest(socket_));
  if (request.empty()) return std::optional<ZapVerdict>();
  ZapVerdict verdict;
  if (request.size() < kMinRequestFrames || request[0] != kZapVersion) {
    verdict.reason = "a request that is not of ZAP 1.0";
  } else {
    verdict = Judge(request[2], request[5], request.size() > 6 ? request[6] : "");
    verdict.address = request[3];
  }
  // Status text and metadata stay short: the peer is told no more than yes or no.
  const std::string reply[] = {kZapVersion,
                               request.size() > 1 ? request[1] : "",
                               verdict.admitted ? "200" : "400",
                               verdict.admitted ? "OK" : "refused",
                               verdict.user_id,
                               ""};
  constexpr size_t kReplyFrames = std::size(reply);
  for (size_t i = 0; i < kReplyFrames; ++i) {
    LOCKSTEP_RETURN_IF_ERROR(
        socket_.Send(AsBytes(reply[i]), i + 1 < kReplyFrames ? ZMQ_SNDMORE : 0));
  }
  return std::optional<ZapVerdict>(std::move(verdict));
}

ZapVerdict ZapHandler::Judge(const std::string& domain, const std::string& mechanism,
                             const std::string& credentials) const {
  ZapVerdict verdict;
  if (domain != kDomain || mechanism != "CURVE") {
    verdict.reason = absl::StrCat("mechanism ", mechanism, "; only CURVE with a key is admitted");
    return verdict;
  }
  verdict.public_key = KeyText(credentials);
  const std::string* user_id = allowed_.Find(verdict.public_key);
  if (user_id != nullptr) {
    verdict.admitted = true;
    verdict.user_id = *user_id;
  } else if (!verdict.public_key.empty() && verdict.public_key == self_test_key_) {
    verdict.admitted = true;
    verdict.user_id = kSelfTestUserId;
  } else {
    verdict.reason = absl::StrCat("key ", verdict.public_key,
                                  " is not on the allow-list; add it there with a name and a role");
  }
  return verdict;
}

absl::StatusOr<std::string> AuthenticatedName(const wire::ZmqMessage& message) {
  std::string user_id = message.Property(kUserIdProperty);
  if (user_id.empty()) {
    return absl::UnauthenticatedError("the connection was not judged by an allow-list");
  }
  return user_id;
}

}  // namespace lockstep::auth
