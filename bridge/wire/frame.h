#ifndef LOCKSTEP_BRIDGE_WIRE_FRAME_H_
#define LOCKSTEP_BRIDGE_WIRE_FRAME_H_

// A frame: 16 bytes of header, then a Cap'n Proto message (segment table and segments, not
// packed; schema::Envelope or schema::Blob). All numbers little-endian.
//
//   offset  bytes
//        0      4  magic: "LKST" a control message, "LKSB" a blob of the ledger
//        4      2  version: kProtocolVersion, or kBlobVersion
//        6      2  zero
//        8      8  XXH3-64 (seed 0) of the payload
//       16      *  payload, a positive multiple of 8 bytes, nothing after it
//
// The first 6 bytes mean the same in every version, so that peers of two versions can tell.
// The checksum is there because a fifth of bit-flipped Cap'n Proto messages decode without
// an error; it is no proof against a forger, who must have passed authentication.

#include <capnp/message.h>
#include <kj/array.h>

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "policy/protocol.h"

namespace lockstep::wire {

struct FrameFormat {
  std::array<uint8_t, 4> magic;
  uint16_t version;
};

inline constexpr uint16_t kBlobVersion = 1;
inline constexpr FrameFormat kMessageFormat = {{'L', 'K', 'S', 'T'}, kProtocolVersion};
inline constexpr FrameFormat kBlobFormat = {{'L', 'K', 'S', 'B'}, kBlobVersion};
inline constexpr uint64_t kFrameHeaderBytes = 16;

// Marks the Status of a frame whose magic is right and whose version is not.
inline constexpr char kVersionErrorPayload[] = "lockstep/frame_version";

std::vector<uint8_t> BuildFrame(const FrameFormat& format, capnp::MessageBuilder& message);

// `payload` behind a right header, whatever it holds.
std::vector<uint8_t> FrameAround(const FrameFormat& format, absl::Span<const uint8_t> payload);

// The payload, copied to an aligned place (a ZeroMQ frame often is not, and Cap'n Proto
// throws on that), after every check of the header. Errors as Decode's.
absl::StatusOr<kj::Array<capnp::word>> OpenFrame(const FrameFormat& format,
                                                 absl::Span<const uint8_t> frame);

// Limits against messages whose pointers make a reader work more than their size.
capnp::ReaderOptions FrameReaderOptions(uint64_t payload_words);

}  // namespace lockstep::wire

#endif  // LOCKSTEP_BRIDGE_WIRE_FRAME_H_
