#ifndef LOCKSTEP_BRIDGE_WIRE_WIRE_TESTING_H_
#define LOCKSTEP_BRIDGE_WIRE_WIRE_TESTING_H_

// For tests: random content for every struct of the protocol, and equality by bits.
// A struct that grows a field stops compiling here until the field is listed.
//
// Example:
//   RandomFiller filler(seed);
//   Envelope envelope = filler.RandomEnvelope(kind);
//   EXPECT_TRUE(SameBits(envelope, other));

#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "policy/protocol.h"

namespace lockstep::wire {

#define LOCKSTEP_FIELDS(Type, ...)          \
  template <typename F>                     \
  auto WithFields(const Type& value, F f) { \
    const auto& [__VA_ARGS__] = value;      \
    return f(__VA_ARGS__);                  \
  }                                         \
  template <typename F>                     \
  auto WithFields(Type& value, F f) {       \
    auto& [__VA_ARGS__] = value;            \
    return f(__VA_ARGS__);                  \
  }
#define LOCKSTEP_NO_FIELDS(Type)      \
  template <typename F>               \
  auto WithFields(const Type&, F f) { \
    return f();                       \
  }

LOCKSTEP_FIELDS(Refusal, a, b, c)
LOCKSTEP_FIELDS(Evidence, a, b)
LOCKSTEP_FIELDS(TensorSpec, a, b, c, d)
LOCKSTEP_FIELDS(Manifest, a, b)
LOCKSTEP_FIELDS(Hello, a, b, c, d)
LOCKSTEP_FIELDS(Welcome, a, b, c, d, e, f_)
LOCKSTEP_NO_FIELDS(Ping)
LOCKSTEP_NO_FIELDS(Pong)
LOCKSTEP_NO_FIELDS(Goodbye)
LOCKSTEP_FIELDS(Refused, a, b)
LOCKSTEP_FIELDS(RegisterTrainer, a, b, c, d)
LOCKSTEP_FIELDS(LiveClaim, a, b, c)
LOCKSTEP_FIELDS(RegisterSampler, a, b, c, d, e)
LOCKSTEP_FIELDS(Registered, a, b, c, d)
LOCKSTEP_FIELDS(ComponentDigest, a, b)
LOCKSTEP_FIELDS(VersionDigest, a, b)
LOCKSTEP_FIELDS(Offer, a, b, c, d, e)
LOCKSTEP_FIELDS(OfferAccepted, a, b, c, d, e, f_)
LOCKSTEP_FIELDS(TransferProgress, a, b)
LOCKSTEP_FIELDS(SealVersion, a, b, c, d, e)
LOCKSTEP_FIELDS(SamplerOutcome, a, b, c, d, e, f_)
LOCKSTEP_FIELDS(PublishOutcome, a, b, c, d)
LOCKSTEP_FIELDS(DropArena, a)
LOCKSTEP_FIELDS(RoundStart, a, b, c, d, e, f_, g)
LOCKSTEP_FIELDS(RoundProgress, a, b)
LOCKSTEP_FIELDS(Sealed, a)
LOCKSTEP_FIELDS(RoundKey, a, b, c)
LOCKSTEP_FIELDS(Verified, a, b, c)
LOCKSTEP_FIELDS(Activate, a)
LOCKSTEP_FIELDS(Activated, a, b, c)
LOCKSTEP_FIELDS(Live, a, b, c, d)
LOCKSTEP_FIELDS(RoundFailed, a, b)
LOCKSTEP_FIELDS(RoundAbort, a, b)
LOCKSTEP_FIELDS(ReleaseArena, a)
LOCKSTEP_FIELDS(Fence, a)
LOCKSTEP_NO_FIELDS(Unfence)
LOCKSTEP_FIELDS(TokenSpan, a, b, c)
LOCKSTEP_FIELDS(Rollout, a, b, c, d, e, f_, g, h, i, j, k)
LOCKSTEP_FIELDS(SubmitRollout, a)
LOCKSTEP_FIELDS(SubmitRolloutFor, a, b)
LOCKSTEP_FIELDS(SubmitRescore, a, b)
LOCKSTEP_FIELDS(TokenMismatch, a, b, c)
LOCKSTEP_FIELDS(Decision, a, b, c, d, e, f_, g, h, i, j, k, l, m, n, o, p, q, r)
LOCKSTEP_FIELDS(DecisionReply, a)
LOCKSTEP_NO_FIELDS(StatusRequest)
LOCKSTEP_FIELDS(VersionStatus, a, b, c, d, e, f_, g, h, i, j, k, l, m, n)
LOCKSTEP_FIELDS(SamplerStatus, a, b, c, d, e, f_, g, h, i, j, k)
LOCKSTEP_FIELDS(TrainerStatus, a, b, c, d, e)
LOCKSTEP_FIELDS(ReasonCount, a, b)
LOCKSTEP_FIELDS(StatusReply, a, b, c, d, e, f_, g, h, i, j, k, l, m, n, o)
LOCKSTEP_FIELDS(EventsRequest, a, b)
LOCKSTEP_FIELDS(Event, a, b, c, d, e)
LOCKSTEP_FIELDS(EventsReply, a, b)
LOCKSTEP_FIELDS(ExplainRequest, a, b)
LOCKSTEP_FIELDS(ExplainFact, a, b)
LOCKSTEP_FIELDS(ExplainReply, a, b, c, d)
LOCKSTEP_FIELDS(OperatorAct, a, b)
LOCKSTEP_FIELDS(ActReply, a, b)
LOCKSTEP_FIELDS(Envelope, a, b, c, d)
#undef LOCKSTEP_FIELDS
#undef LOCKSTEP_NO_FIELDS

inline constexpr size_t kMessageKinds = std::variant_size_v<Message>;

// ---------------------------------------------------------------- equality by bits

template <typename T>
bool SameBits(const T& x, const T& y);
inline bool SameBits(float x, float y) {
  return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
}
inline bool SameBits(double x, double y) {
  return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
}
template <typename T>
bool SameBits(const std::vector<T>& x, const std::vector<T>& y) {
  if (x.size() != y.size()) return false;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!SameBits(x[i], y[i])) return false;
  }
  return true;
}
template <typename T>
bool SameBits(const std::optional<T>& x, const std::optional<T>& y) {
  return x.has_value() == y.has_value() && (!x.has_value() || SameBits(*x, *y));
}
inline bool SameBits(const Message& x, const Message& y) {
  return x.index() == y.index() &&
         std::visit(
             [&](const auto& value) {
               return SameBits(value, std::get<std::decay_t<decltype(value)>>(y));
             },
             x);
}
template <typename T>
bool SameBits(const T& x, const T& y) {
  if constexpr (requires { WithFields(x, [](const auto&...) { return true; }); }) {
    return WithFields(x, [&](const auto&... xs) {
      return WithFields(y, [&](const auto&... ys) { return (SameBits(xs, ys) && ... && true); });
    });
  } else {
    return x == y;
  }
}

// ---------------------------------------------------------------- random content

class RandomFiller {
 public:
  explicit RandomFiller(uint64_t seed) : random_(seed) {}

  // Of the message with that index in Message.
  Envelope RandomEnvelope(size_t kind) {
    Envelope envelope;
    Fill(envelope.incarnation);
    Fill(envelope.seq);
    Fill(envelope.reply_to);
    envelope.body = MessageOf(kind, std::make_index_sequence<kMessageKinds>());
    return envelope;
  }

  template <typename T>
  T Random() {
    T value{};
    Fill(value);
    return value;
  }

 private:
  static constexpr size_t kMaxElements = 4;

  template <size_t... kKinds>
  Message MessageOf(size_t kind, std::index_sequence<kKinds...>) {
    Message message;
    ((kKinds == kind ? void(message = Random<std::variant_alternative_t<kKinds, Message>>())
                     : void()),
     ...);
    return message;
  }

  size_t Below(size_t bound) { return static_cast<size_t>(random_() % bound); }

  template <typename E>
  void FillEnum(E& value, E last) {
    value = static_cast<E>(Below(static_cast<size_t>(last) + 1));
  }
  void Fill(PeerRole& value) { FillEnum(value, PeerRole::kOperator); }
  void Fill(SourceRole& value) { FillEnum(value, SourceRole::kDraft); }
  void Fill(TransportKind& value) { FillEnum(value, TransportKind::kTcp); }
  void Fill(AdmissionLevel& value) { FillEnum(value, AdmissionLevel::kTokens); }
  void Fill(DecisionKind& value) { FillEnum(value, DecisionKind::kPending); }
  void Fill(ExplainKind& value) { FillEnum(value, ExplainKind::kRollout); }
  void Fill(OperatorAction& value) { FillEnum(value, OperatorAction::kShutdown); }
  void Fill(Dtype& value) { FillEnum(value, Dtype::kU64); }
  void Fill(TensorOrigin& value) { FillEnum(value, TensorOrigin::kDerived); }
  void Fill(RefusalCode& value) { FillEnum(value, RefusalCode::kShuttingDown); }

  void Fill(bool& value) { value = Below(2) == 1; }
  void Fill(uint32_t& value) { value = static_cast<uint32_t>(random_()); }
  // Any bits: infinities and NaNs too.
  void Fill(float& value) { value = std::bit_cast<float>(static_cast<uint32_t>(random_())); }
  void Fill(double& value) { value = std::bit_cast<double>(random_()); }
  void Fill(uint64_t& value) { value = random_() >> Below(64); }
  void Fill(int64_t& value) { value = static_cast<int64_t>(random_()); }
  void Fill(std::string& value) {
    static constexpr const char* kCharacters[] = {"a",  "Z", "0",  ".",   "\n",
                                                  "\"", "é", "層", "🙂"};
    value.clear();
    for (size_t left = Below(12); left > 0; --left) value += kCharacters[Below(9)];
    if (Below(8) == 0) value.push_back('\0');
  }
  template <size_t kBytes>
  void Fill(std::array<uint8_t, kBytes>& value) {
    for (uint8_t& byte : value) byte = static_cast<uint8_t>(random_());
  }
  template <typename T>
  void Fill(std::vector<T>& value) {
    value.resize(Below(kMaxElements + 1));
    for (T& element : value) Fill(element);
  }
  template <typename T>
  void Fill(std::optional<T>& value) {
    value.reset();
    if (Below(2) == 1) Fill(value.emplace());
  }
  template <typename T>
  void Fill(std::map<std::string, T>& value) {
    for (size_t left = Below(kMaxElements + 1); left > 0; --left) {
      Fill(value[Random<std::string>()]);
    }
  }
  template <typename T>
  requires requires(T& value) {
    WithFields(value, [](auto&...) {});
  }
  void Fill(T& value) {
    WithFields(value, [this](auto&... fields) { (Fill(fields), ...); });
  }

  std::mt19937_64 random_;
};

}  // namespace lockstep::wire

#endif  // LOCKSTEP_BRIDGE_WIRE_WIRE_TESTING_H_
