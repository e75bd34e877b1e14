#include "policy/ids.h"

#include <sodium.h>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

crypto_generichash_blake2b_state* State(std::array<std::byte, 384>& storage) {
  static_assert(sizeof(crypto_generichash_blake2b_state) <= 384);
  static_assert(alignof(crypto_generichash_blake2b_state) <= 64);
  return reinterpret_cast<crypto_generichash_blake2b_state*>(storage.data());
}

const uint8_t* Bytes(absl::string_view text) {
  return reinterpret_cast<const uint8_t*>(text.data());
}

bool IsHex(absl::string_view text) {
  for (char c : text) {
    const bool digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    if (!digit) return false;
  }
  return true;
}

template <size_t kBytes>
absl::StatusOr<std::array<uint8_t, kBytes>> FromHex(absl::string_view hex, absl::string_view what) {
  if (hex.size() != 2 * kBytes || !IsHex(hex)) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", what, " as ", 2 * kBytes,
                                                   " hex digits, got ", hex.size(), " characters '",
                                                   hex.substr(0, 80), "'"));
  }
  const std::string raw = absl::HexStringToBytes(hex);
  std::array<uint8_t, kBytes> out;
  std::copy(raw.begin(), raw.end(), out.begin());
  return out;
}

}  // namespace

std::string ToHex(absl::Span<const uint8_t> bytes) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

absl::StatusOr<Digest256> DigestFromHex(absl::string_view hex) {
  return FromHex<32>(hex, "a 32-byte digest");
}

absl::StatusOr<Incarnation> IncarnationFromHex(absl::string_view hex) {
  return FromHex<16>(hex, "a 16-byte incarnation");
}

Digest256 Blake2b256(absl::string_view bytes) {
  Digest256 out;
  crypto_generichash_blake2b(out.data(), out.size(), Bytes(bytes), bytes.size(), nullptr, 0);
  return out;
}

Digest256 Blake2b256Keyed(const Digest256& key, absl::string_view bytes) {
  Digest256 out;
  crypto_generichash_blake2b(out.data(), out.size(), Bytes(bytes), bytes.size(), key.data(),
                             key.size());
  return out;
}

bool ConstantTimeEqual(const Digest256& a, const Digest256& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

Blake2b256Hasher::Blake2b256Hasher() {
  crypto_generichash_blake2b_init(State(state_), nullptr, 0, sizeof(Digest256));
}

void Blake2b256Hasher::Update(absl::string_view bytes) {
  crypto_generichash_blake2b_update(State(state_), Bytes(bytes), bytes.size());
}

void Blake2b256Hasher::Update(absl::Span<const uint8_t> bytes) {
  crypto_generichash_blake2b_update(State(state_), bytes.data(), bytes.size());
}

void Blake2b256Hasher::UpdateU32(uint32_t value) {
  uint8_t le[4];
  for (int i = 0; i < 4; ++i) le[i] = static_cast<uint8_t>(value >> (8 * i));
  Update(absl::MakeConstSpan(le));
}

void Blake2b256Hasher::UpdateU64(uint64_t value) {
  uint8_t le[8];
  for (int i = 0; i < 8; ++i) le[i] = static_cast<uint8_t>(value >> (8 * i));
  Update(absl::MakeConstSpan(le));
}

void Blake2b256Hasher::UpdateString(absl::string_view text) {
  UpdateU32(static_cast<uint32_t>(text.size()));
  Update(text);
}

Digest256 Blake2b256Hasher::Finish() {
  Digest256 out;
  crypto_generichash_blake2b_final(State(state_), out.data(), out.size());
  return out;
}

}  // namespace lockstep
