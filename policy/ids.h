#ifndef LOCKSTEP_POLICY_IDS_H_
#define LOCKSTEP_POLICY_IDS_H_

// Identity in Lockstep is BLAKE2b-256 of stated bytes. This header holds the digest
// type, its hex form, the hasher, and the little-endian framing that every hashed
// structure uses (kernels/SPECIFICATION.md, "digest/paged@v1").
//
// Example:
//   Blake2b256Hasher hasher;
//   hasher.Update("lockstep manifest@v1\n");
//   hasher.UpdateString(name);   // uint32 length, then bytes
//   Digest256 root = hasher.Finish();

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lockstep {

// 32 bytes; the same type as kernels::Digest256 by construction (kernels may not depend on policy).
using Digest256 = std::array<uint8_t, 32>;

// A process start of a peer, random, never reused.
using Incarnation = std::array<uint8_t, 16>;

std::string ToHex(absl::Span<const uint8_t> bytes);

// Accepts exactly 64 lower- or upper-case hex digits; InvalidArgument otherwise.
absl::StatusOr<Digest256> DigestFromHex(absl::string_view hex);

// Accepts exactly 32 hex digits; InvalidArgument otherwise.
absl::StatusOr<Incarnation> IncarnationFromHex(absl::string_view hex);

Digest256 Blake2b256(absl::string_view bytes);

// Keyed BLAKE2b-256 (a MAC); `key` is 32 bytes.
Digest256 Blake2b256Keyed(const Digest256& key, absl::string_view bytes);

// Compares in time that does not depend on where the digests differ.
bool ConstantTimeEqual(const Digest256& a, const Digest256& b);

class Blake2b256Hasher {
 public:
  Blake2b256Hasher();

  void Update(absl::string_view bytes);
  void Update(absl::Span<const uint8_t> bytes);
  void UpdateU32(uint32_t value);             // little-endian
  void UpdateU64(uint64_t value);             // little-endian
  void UpdateString(absl::string_view text);  // uint32 byte length, then the bytes

  // Call once.
  Digest256 Finish();

 private:
  // crypto_generichash_blake2b_state, kept opaque: 384 bytes, 64-byte aligned (checked in ids.cc).
  alignas(64) std::array<std::byte, 384> state_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_IDS_H_
