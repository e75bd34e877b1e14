// One frame of the control port: whose it is, whether it can be read, what the ledger knows.

#include <utility>

#include "absl/strings/str_cat.h"
#include "bridge/auth/zap.h"
#include "bridge/loop/loop.h"
#include "bridge/wire/wire.h"
#include "policy/status_macros.h"

namespace lockstep::loop {
namespace {

// The id under which the ledger would hold a decision that this message speaks of.
std::optional<std::string> RolloutOf(const Message& body) {
  const auto named = [](const Rollout& rollout) {
    return rollout.id.empty() ? ToHex(rollout.content) : rollout.id;
  };
  if (const auto* submit = std::get_if<SubmitRollout>(&body)) return named(submit->rollout);
  if (const auto* submit = std::get_if<SubmitRolloutFor>(&body)) return named(submit->rollout);
  if (const auto* rescore = std::get_if<SubmitRescore>(&body)) return rescore->rollout_id;
  const auto* explain = std::get_if<ExplainRequest>(&body);
  if (explain != nullptr && explain->kind == ExplainKind::kRollout) return explain->id;
  return std::nullopt;
}

Refusal WhyUnreadable(const absl::Status& status) {
  const RefusalCode code = wire::IsProtocolVersionError(status) ? RefusalCode::kProtocolVersion
                                                                : RefusalCode::kBadMessage;
  return {code, "frame", std::string(status.message())};
}

}  // namespace

absl::Status Loop::HandleFrame(const wire::RoutedFrame& routed) {
  const bool tcp = options_.listen.kind == transport::Address::Kind::kTcp;
  std::string name;
  absl::Status readable;
  RefusalCode code = RefusalCode::kBadMessage;
  if (tcp) {
    absl::StatusOr<std::string> authenticated = auth::AuthenticatedName(routed.frame.body);
    if (authenticated.ok()) {
      name = *std::move(authenticated);
    } else {
      readable = authenticated.status();
      code = RefusalCode::kUnauthorised;
    }
  }
  const PeerTable::Seen seen = peers_.Of(routed.routing_id, name);
  if (seen.replaced.has_value()) {
    Step(core::PeerGone{*seen.replaced, "its connection's id was taken by another peer"});
  }
  const absl::Span<const uint8_t> body = routed.frame.body.bytes();
  if (readable.ok() && routed.frame.dropped_frames > 0) {
    readable = absl::InvalidArgumentError(
        absl::StrCat("a message is one frame, this has ", routed.frame.dropped_frames, " more"));
  }
  if (!readable.ok()) {
    Step(core::MalformedMessage{seen.peer, 0, {code, "frame", std::string(readable.message())}});
    return absl::OkStatus();
  }
  absl::StatusOr<Envelope> envelope = wire::Decode(body);
  if (!envelope.ok()) {
    const absl::StatusOr<wire::EnvelopeHeader> header = wire::DecodeHeader(body);
    const uint64_t seq = header.ok() ? header->seq : 0;
    Step(core::MalformedMessage{seen.peer, seq, WhyUnreadable(envelope.status())});
    return absl::OkStatus();
  }
  return HandleEnvelope(seen.peer, name, *std::move(envelope));
}

absl::Status Loop::HandleEnvelope(core::PeerId peer, const std::string& name, Envelope envelope) {
  core::PeerMessage message;
  message.peer = peer;
  message.authenticated_name = name;
  message.same_host = descriptors_.has_value();
  if (const std::optional<std::string> id = RolloutOf(envelope.body);
      id.has_value() && id->size() <= kMaxRolloutIdBytes) {
    LOCKSTEP_ASSIGN_OR_RETURN(message.prior, ledger_->FindDecision(*id));
  }
  if (std::holds_alternative<Hello>(envelope.body)) peers_.SaidHello(peer, envelope.incarnation);
  if (std::holds_alternative<Goodbye>(envelope.body)) batch_.leaving.push_back(peer);
  std::optional<EventsWanted> events;
  if (const auto* request = std::get_if<EventsRequest>(&envelope.body)) {
    events = EventsWanted{peer, envelope.seq, *request};
  }
  message.envelope = std::move(envelope);
  const size_t sends_before = batch_.outputs.sends.size();
  Step(std::move(message));
  // The core says something only to a peer that it does not admit.
  if (events.has_value() && batch_.outputs.sends.size() == sends_before) {
    batch_.events.push_back(*events);
  }
  return absl::OkStatus();
}

}  // namespace lockstep::loop
