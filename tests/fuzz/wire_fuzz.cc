// Control frames from any bytes. Each input is decoded as it is and, so that the checksum
// does not end every run, once more as a payload (its first 16 bytes aside) under a right
// header, as a message and as each blob. What decodes must encode to something that decodes
// to the same bits.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "absl/types/span.h"
#include "bridge/wire/frame.h"
#include "bridge/wire/wire.h"
#include "bridge/wire/wire_testing.h"

namespace lockstep::wire {
namespace {

using Bytes = std::vector<uint8_t>;

void Require(bool holds) {
  if (!holds) std::abort();
}

void RunMessage(absl::Span<const uint8_t> frame) {
  const absl::StatusOr<Envelope> first = Decode(frame);
  if (!first.ok()) return;
  const absl::StatusOr<EnvelopeHeader> header = DecodeHeader(frame);
  Require(header.ok() && header->seq == first->seq);
  const absl::StatusOr<Envelope> second = Decode(Encode(*first));
  Require(second.ok() && SameBits(*first, *second));
}

template <typename T>
void RunBlob(const Bytes& frame, absl::StatusOr<T> (*decode)(absl::Span<const uint8_t>),
             Bytes (*encode)(const T&)) {
  const absl::StatusOr<T> first = decode(frame);
  if (!first.ok()) return;
  const absl::StatusOr<T> second = decode(encode(*first));
  Require(second.ok() && SameBits(*first, *second));
}

void Run(absl::Span<const uint8_t> input) {
  RunMessage(input);
  if (input.size() < kFrameHeaderBytes) return;
  const absl::Span<const uint8_t> payload = input.subspan(kFrameHeaderBytes);
  RunMessage(FrameAround(kMessageFormat, payload));
  const Bytes blob = FrameAround(kBlobFormat, payload);
  RunBlob(blob, DecodeDecision, EncodeDecision);
  RunBlob(blob, DecodeRollout, EncodeRollout);
  RunBlob(blob, DecodeManifest, EncodeManifest);
  RunBlob(blob, DecodeVersionDigest, EncodeVersionDigest);
  RunBlob(blob, DecodeComponents, EncodeComponents);
  RunBlob(blob, DecodeEvidence, EncodeEvidence);
  RunBlob(blob, DecodeRefusals, EncodeRefusals);
}

}  // namespace
}  // namespace lockstep::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::wire::Run(absl::MakeConstSpan(data, size));
  return 0;
}
