#ifndef LOCKSTEP_BRIDGE_WIRE_WIRE_H_
#define LOCKSTEP_BRIDGE_WIRE_WIRE_H_

// The only reader and writer of Cap'n Proto: control messages (policy/protocol.h) and the
// blobs of the ledger, as checksummed frames. A frame that decodes holds only values of
// their types within bridge/wire/limits.h, UTF-8 in every text; whether they make sense is
// for the core to judge.
//
// Example:
//   std::vector<uint8_t> frame = wire::Encode(envelope);
//   absl::StatusOr<Envelope> again = wire::Decode(frame);
//   if (!again.ok() && wire::IsProtocolVersionError(again.status())) ...
//
// The frame's bytes are documented in bridge/wire/frame.h.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "policy/evidence.h"
#include "policy/manifest.h"
#include "policy/protocol.h"

namespace lockstep::wire {

// Lists are kept by the caller below 2^29 elements (Cap'n Proto's own limit; far above
// limits.h). A refusal's text is made UTF-8 and cut at kMaxRefusalMessageBytes, a list of
// refusals at kMaxRefusals, whose last then says how many are missing.
std::vector<uint8_t> Encode(const Envelope& envelope);

// InvalidArgument for a damaged, foreign or oversized frame; FailedPrecondition for another
// protocol version, naming both numbers.
absl::StatusOr<Envelope> Decode(absl::Span<const uint8_t> frame);

// True for the error that Decode gives to a frame of another protocol version, and to no
// other error.
bool IsProtocolVersionError(const absl::Status& status);

// Who sent a frame and as what number, without its body.
struct EnvelopeHeader {
  Incarnation incarnation{};
  uint64_t seq = 0;
  uint64_t reply_to = 0;
};

// For answering a frame whose body Decode refuses: succeeds for any intact frame of this
// protocol version.
absl::StatusOr<EnvelopeHeader> DecodeHeader(absl::Span<const uint8_t> frame);

// What the ledger stores. Same framing under another magic, so that a message is never
// taken for a blob; a blob of one kind does not decode as another. Errors: InvalidArgument;
// FailedPrecondition for a blob of another format version.
std::vector<uint8_t> EncodeDecision(const Decision& decision);
absl::StatusOr<Decision> DecodeDecision(absl::Span<const uint8_t> blob);
std::vector<uint8_t> EncodeRollout(const Rollout& rollout);
absl::StatusOr<Rollout> DecodeRollout(absl::Span<const uint8_t> blob);
std::vector<uint8_t> EncodeManifest(const Manifest& manifest);
absl::StatusOr<Manifest> DecodeManifest(absl::Span<const uint8_t> blob);
std::vector<uint8_t> EncodeVersionDigest(const VersionDigest& digest);
absl::StatusOr<VersionDigest> DecodeVersionDigest(absl::Span<const uint8_t> blob);
std::vector<uint8_t> EncodeComponents(const std::vector<ComponentDigest>& components);
absl::StatusOr<std::vector<ComponentDigest>> DecodeComponents(absl::Span<const uint8_t> blob);
std::vector<uint8_t> EncodeEvidence(const Evidence& evidence);
absl::StatusOr<Evidence> DecodeEvidence(absl::Span<const uint8_t> blob);
std::vector<uint8_t> EncodeRefusals(const std::vector<Refusal>& refusals);
absl::StatusOr<std::vector<Refusal>> DecodeRefusals(absl::Span<const uint8_t> blob);

}  // namespace lockstep::wire

#endif  // LOCKSTEP_BRIDGE_WIRE_WIRE_H_
