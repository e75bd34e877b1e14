#include "bridge/wire/frame.h"

#include <capnp/serialize.h>
#include <kj/io.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "bridge/wire/limits.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lockstep::wire {
namespace {

constexpr uint64_t kVersionOffset = 4;
constexpr uint64_t kReservedOffset = 6;
constexpr uint64_t kChecksumOffset = 8;

void StoreLittleEndian(uint64_t value, uint64_t bytes, uint8_t* out) {
  for (uint64_t i = 0; i < bytes; ++i) out[i] = static_cast<uint8_t>(value >> (8 * i));
}

uint64_t LoadLittleEndian(const uint8_t* in, uint64_t bytes) {
  uint64_t value = 0;
  for (uint64_t i = 0; i < bytes; ++i) value |= uint64_t{in[i]} << (8 * i);
  return value;
}

// `frame` has its payload in place.
void WriteHeader(const FrameFormat& format, std::vector<uint8_t>& frame) {
  const uint64_t checksum =
      XXH3_64bits(frame.data() + kFrameHeaderBytes, frame.size() - kFrameHeaderBytes);
  std::copy(format.magic.begin(), format.magic.end(), frame.begin());
  StoreLittleEndian(format.version, 2, &frame[kVersionOffset]);
  StoreLittleEndian(checksum, 8, &frame[kChecksumOffset]);
}

}  // namespace

std::vector<uint8_t> BuildFrame(const FrameFormat& format, capnp::MessageBuilder& message) {
  const uint64_t payload_bytes = capnp::computeSerializedSizeInWords(message) * sizeof(capnp::word);
  std::vector<uint8_t> frame(kFrameHeaderBytes + payload_bytes);
  kj::ArrayOutputStream stream(kj::arrayPtr(frame.data() + kFrameHeaderBytes, payload_bytes));
  capnp::writeMessage(stream, message);
  WriteHeader(format, frame);
  return frame;
}

std::vector<uint8_t> FrameAround(const FrameFormat& format, absl::Span<const uint8_t> payload) {
  std::vector<uint8_t> frame(kFrameHeaderBytes + payload.size());
  std::copy(payload.begin(), payload.end(), frame.data() + kFrameHeaderBytes);
  WriteHeader(format, frame);
  return frame;
}

absl::StatusOr<kj::Array<capnp::word>> OpenFrame(const FrameFormat& format,
                                                 absl::Span<const uint8_t> frame) {
  if (frame.size() < kReservedOffset ||
      !std::equal(format.magic.begin(), format.magic.end(), frame.begin())) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a Lockstep frame: ", frame.size(), " bytes without the magic '",
                     absl::string_view(reinterpret_cast<const char*>(format.magic.data()), 4),
                     "'; is the peer a Lockstep process?"));
  }
  const uint64_t version = LoadLittleEndian(&frame[kVersionOffset], 2);
  if (version != format.version) {
    absl::Status error = absl::FailedPreconditionError(
        absl::StrCat(absl::string_view(reinterpret_cast<const char*>(format.magic.data()), 4),
                     " version ", version, " is not version ", format.version,
                     " of this build; use the same Lockstep release on both sides"));
    error.SetPayload(kVersionErrorPayload, absl::Cord());
    return error;
  }
  if (frame.size() > kMaxControlFrameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("frame of ", frame.size(), " bytes; at most ",
                                                   kMaxControlFrameBytes, " are allowed"));
  }
  const uint64_t payload_bytes =
      frame.size() < kFrameHeaderBytes ? 0 : frame.size() - kFrameHeaderBytes;
  if (payload_bytes == 0 || payload_bytes % sizeof(capnp::word) != 0 ||
      LoadLittleEndian(&frame[kReservedOffset], 2) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("damaged frame: a header that no sender writes, or a length of ", frame.size(),
                     " bytes that is not 16 plus a positive multiple of 8"));
  }
  const uint8_t* payload = frame.data() + kFrameHeaderBytes;
  const uint64_t stated = LoadLittleEndian(&frame[kChecksumOffset], 8);
  if (XXH3_64bits(payload, payload_bytes) != stated) {
    return absl::InvalidArgumentError(absl::StrCat("damaged frame: the checksum of its ",
                                                   payload_bytes,
                                                   " payload bytes is not the one in its header"));
  }
  auto words = kj::heapArray<capnp::word>(payload_bytes / sizeof(capnp::word));
  std::memcpy(words.begin(), payload, payload_bytes);
  return words;
}

capnp::ReaderOptions FrameReaderOptions(uint64_t payload_words) {
  // Each object is read once or, where an optional is looked at first, twice.
  constexpr uint64_t kReadsOfAnObject = 2;
  constexpr uint64_t kSlackWords = 64;
  capnp::ReaderOptions options;
  options.traversalLimitInWords = kReadsOfAnObject * payload_words + kSlackWords;
  options.nestingLimit = kMaxNesting;
  return options;
}

}  // namespace lockstep::wire
