#include "kernels/digest_keys.h"

#include <sodium.h>

#include <bit>

#include "absl/strings/string_view.h"

namespace lockstep::kernels {

// Units and keys are read as native words.
static_assert(std::endian::native == std::endian::little);

PageKeys::PageKeys(const Digest256& key) : words_(kWords + kPaddingWords, 0) {
  crypto_generichash_blake2b(id_.data(), id_.size(), key.data(), key.size(), nullptr, 0);
  constexpr uint8_t kZeroNonce[crypto_stream_chacha20_ietf_NONCEBYTES] = {};
  crypto_stream_chacha20_ietf(reinterpret_cast<uint8_t*>(words_.data()), kWords * sizeof(uint32_t),
                              kZeroNonce, key.data());
}

Digest256 PublicDigestKey() {
  constexpr absl::string_view kText = "lockstep public";
  Digest256 key;
  crypto_generichash_blake2b(key.data(), key.size(), reinterpret_cast<const uint8_t*>(kText.data()),
                             kText.size(), nullptr, 0);
  return key;
}

const PageKeys& PublicPageKeys() {
  static const PageKeys& keys = *new PageKeys(PublicDigestKey());
  return keys;
}

}  // namespace lockstep::kernels
