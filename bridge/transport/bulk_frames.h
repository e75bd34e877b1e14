#ifndef LOCKSTEP_BRIDGE_TRANSPORT_BULK_FRAMES_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_BULK_FRAMES_H_

// The frames on the bridge's bulk port (ZeroMQ ROUTER there, DEALER at the clients). A client
// sends single frames: a header, in PutChunk followed by the payload. The bridge answers with
// a header; a Chunk has its payload in a second frame, so that it leaves the arena uncopied.
//
//   header, 96 bytes, all integers little-endian
//    0  u32 magic 0x4B42534C ("LSBK")
//    4  u16 version 1
//    6  u16 kind
//    8  u64 request_id    the client's; the answer repeats it
//   16  u64 arena_id
//   24  u64 offset        of the chunk in the arena
//   32  u64 length        of the chunk
//   40  16 bytes incarnation of the client
//   56  u64 value         by kind:
//         1 GetChunk  0
//         2 Chunk     XXH3-64 of the payload
//         3 NotYet    the mark below which chunks may be had now; ask again
//         4 PutChunk  XXH3-64 of the payload
//         5 PutAck    the mark below which every byte has come
//         6 Refused   absl::StatusCode; DataLoss: the payload was damaged, send it again
//   64  32 bytes: BLAKE2b-256 of bytes 0..63 under the run's bulk key
//
// The MAC keeps strangers out and the hash finds damage; that the bytes are the trainer's is
// shown by the paged digest, which travels on the control channel. A connection opens with
// ZeroMQ's PLAIN mechanism and a password derived from the bulk key, so that a stranger's
// frames are not even received.
//
// Example:
//   BulkHeaderBytes bytes = EncodeBulkHeader(header, key);
//   absl::StatusOr<BulkHeader> header = DecodeBulkHeader(received, key);

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "policy/ids.h"

namespace lockstep::transport {

inline constexpr uint32_t kBulkMagic = 0x4B42534C;
inline constexpr uint16_t kBulkVersion = 1;
inline constexpr size_t kBulkHeaderBytes = 96;
inline constexpr uint64_t kMaxChunkBytes = uint64_t{4} << 20;
inline constexpr char kBulkUser[] = "lockstep";

enum class BulkKind : uint16_t {
  kGetChunk = 1,
  kChunk = 2,
  kNotYet = 3,
  kPutChunk = 4,
  kPutAck = 5,
  kRefused = 6,
};

struct BulkHeader {
  BulkKind kind = BulkKind::kGetChunk;
  uint64_t request_id = 0;
  uint64_t arena_id = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  Incarnation incarnation{};
  uint64_t value = 0;
};

using BulkHeaderBytes = std::array<uint8_t, kBulkHeaderBytes>;

BulkHeaderBytes EncodeBulkHeader(const BulkHeader& header, const Digest256& key);

// `bytes` begins with a header. InvalidArgument when it is none; PermissionDenied when its MAC
// is not made with `key`. Lengths over kMaxChunkBytes are InvalidArgument.
absl::StatusOr<BulkHeader> DecodeBulkHeader(absl::Span<const uint8_t> bytes, const Digest256& key);

uint64_t PayloadHash(absl::Span<const uint8_t> payload);

// What a connection shows with kBulkUser: hex of BLAKE2b-256 of "lockstep bulk@v1" under `key`.
std::string BulkPassword(const Digest256& key);

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_BULK_FRAMES_H_
