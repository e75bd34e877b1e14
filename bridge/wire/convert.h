#ifndef LOCKSTEP_BRIDGE_WIRE_CONVERT_H_
#define LOCKSTEP_BRIDGE_WIRE_CONVERT_H_

// Inside bridge/wire only: each plain struct to its Cap'n Proto builder (Write) and back
// (Read). Read may throw kj::Exception, which wire.cc catches; what Cap'n Proto accepts and
// we do not becomes InvalidArgument that names the field.

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "bridge/schema/control.capnp.h"
#include "bridge/schema/status.capnp.h"
#include "bridge/wire/limits.h"
#include "policy/protocol.h"

namespace lockstep::wire {

// X(struct of policy/protocol.h, discriminant in schema::Envelope::Body).
#define LOCKSTEP_WIRE_MESSAGES(X)         \
  X(Hello, HELLO)                         \
  X(Welcome, WELCOME)                     \
  X(Ping, PING)                           \
  X(Pong, PONG)                           \
  X(Goodbye, GOODBYE)                     \
  X(Refused, REFUSED)                     \
  X(RegisterTrainer, REGISTER_TRAINER)    \
  X(RegisterSampler, REGISTER_SAMPLER)    \
  X(Registered, REGISTERED)               \
  X(Offer, OFFER)                         \
  X(OfferAccepted, OFFER_ACCEPTED)        \
  X(TransferProgress, TRANSFER_PROGRESS)  \
  X(SealVersion, SEAL_VERSION)            \
  X(PublishOutcome, PUBLISH_OUTCOME)      \
  X(DropArena, DROP_ARENA)                \
  X(RoundStart, ROUND_START)              \
  X(RoundProgress, ROUND_PROGRESS)        \
  X(Sealed, SEALED)                       \
  X(RoundKey, ROUND_KEY)                  \
  X(Verified, VERIFIED)                   \
  X(Activate, ACTIVATE)                   \
  X(Activated, ACTIVATED)                 \
  X(Live, LIVE)                           \
  X(RoundFailed, ROUND_FAILED)            \
  X(RoundAbort, ROUND_ABORT)              \
  X(ReleaseArena, RELEASE_ARENA)          \
  X(Fence, FENCE)                         \
  X(Unfence, UNFENCE)                     \
  X(SubmitRollout, SUBMIT_ROLLOUT)        \
  X(SubmitRolloutFor, SUBMIT_ROLLOUT_FOR) \
  X(SubmitRescore, SUBMIT_RESCORE)        \
  X(DecisionReply, DECISION_REPLY)        \
  X(StatusRequest, STATUS_REQUEST)        \
  X(StatusReply, STATUS_REPLY)            \
  X(EventsRequest, EVENTS_REQUEST)        \
  X(EventsReply, EVENTS_REPLY)            \
  X(ExplainRequest, EXPLAIN_REQUEST)      \
  X(ExplainReply, EXPLAIN_REPLY)          \
  X(OperatorAct, OPERATOR_ACT)            \
  X(ActReply, ACT_REPLY)

// Structs that are parts of messages.
#define LOCKSTEP_WIRE_PARTS(X) \
  X(Refusal)                   \
  X(Evidence)                  \
  X(TensorSpec)                \
  X(Manifest)                  \
  X(VersionDigest)             \
  X(LiveClaim)                 \
  X(SamplerOutcome)            \
  X(TokenSpan)                 \
  X(Rollout)                   \
  X(TokenMismatch)             \
  X(Decision)                  \
  X(VersionStatus)             \
  X(SamplerStatus)             \
  X(TrainerStatus)             \
  X(ReasonCount)               \
  X(Event)                     \
  X(ExplainFact)

#define LOCKSTEP_WIRE_DECLARE(Type, ...)                  \
  void Write(const Type& from, schema::Type::Builder to); \
  absl::Status Read(schema::Type::Reader from, Type& to);
LOCKSTEP_WIRE_MESSAGES(LOCKSTEP_WIRE_DECLARE)
LOCKSTEP_WIRE_PARTS(LOCKSTEP_WIRE_DECLARE)
#undef LOCKSTEP_WIRE_DECLARE

void Write(const ComponentDigest& from, schema::NamedDigest::Builder to);
absl::Status Read(schema::NamedDigest::Reader from, ComponentDigest& to);
void Write(const std::optional<uint64_t>& from, schema::OptionalUInt64::Builder to);
absl::Status Read(schema::OptionalUInt64::Reader from, std::optional<uint64_t>& to);

// ---------------------------------------------------------------- writing

// Aborts beyond 2^29 - 1 (see Encode).
unsigned ListSize(uint64_t count);

inline capnp::Text::Reader AsText(const std::string& text) { return {text.c_str(), text.size()}; }
inline capnp::Data::Reader AsData(absl::Span<const uint8_t> bytes) {
  return {bytes.data(), bytes.size()};
}

// `to` has as many elements as `from`.
template <typename T, typename ListBuilder>
void WriteList(const std::vector<T>& from, ListBuilder to) {
  for (unsigned i = 0; i < to.size(); ++i) {
    if constexpr (std::is_arithmetic_v<T>) {
      to.set(i, from[i]);
    } else if constexpr (std::is_same_v<T, std::string>) {
      to.set(i, AsText(from[i]));
    } else {
      Write(from[i], to[i]);
    }
  }
}

// How many of `refusals` WriteRefusals writes: `to` of that size.
unsigned RefusalListSize(const std::vector<Refusal>& refusals);
void WriteRefusals(const std::vector<Refusal>& from, capnp::List<schema::Refusal>::Builder to);

// ---------------------------------------------------------------- reading

// Reads the fields of one struct one after the other and keeps the first error. `what` names
// a field in errors ("hello.name").
class FieldReader {
 public:
  FieldReader& Text(capnp::Text::Reader from, uint64_t max_bytes, absl::string_view what,
                    std::string& to);
  // Exactly `to.size()` bytes: a digest or an incarnation.
  FieldReader& Bytes(capnp::Data::Reader from, absl::string_view what, absl::Span<uint8_t> to);

  template <typename From, typename To>
  FieldReader& Enum(From from, To last, absl::string_view what, To& to) {
    const auto value = static_cast<uint16_t>(from);
    if (!CheckAtMost(value, static_cast<uint64_t>(last), "value", what)) return *this;
    to = static_cast<To>(value);
    return *this;
  }

  template <typename From, typename To>
  FieldReader& Struct(From from, To& to) {
    if (status_.ok()) status_ = Read(from, to);
    return *this;
  }

  template <typename ListReader, typename T>
  FieldReader& List(ListReader from, uint64_t max_count, absl::string_view what,
                    std::vector<T>& to) {
    if (!CheckAtMost(from.size(), max_count, "list of", what)) return *this;
    to.resize(from.size());
    for (unsigned i = 0; i < from.size() && status_.ok(); ++i) {
      if constexpr (std::is_arithmetic_v<T>) {
        to[i] = from[i];
      } else {
        status_ = Read(from[i], to[i]);
      }
    }
    return *this;
  }

  FieldReader& Texts(capnp::List<capnp::Text>::Reader from, uint64_t max_count, uint64_t max_bytes,
                     absl::string_view what, std::vector<std::string>& to);

  absl::Status Done() { return std::move(status_); }

 private:
  bool CheckAtMost(uint64_t value, uint64_t limit, absl::string_view kind, absl::string_view what);

  absl::Status status_;
};

// `text` with '?' for each byte outside a well-formed sequence, cut at a character within
// `max_bytes`.
std::string CleanText(absl::string_view text, uint64_t max_bytes);

}  // namespace lockstep::wire

#endif  // LOCKSTEP_BRIDGE_WIRE_CONVERT_H_
