#ifndef LOCKSTEP_KERNELS_DIGEST_KEYS_H_
#define LOCKSTEP_KERNELS_DIGEST_KEYS_H_

// The expanded key of `digest/paged@v1`: k_0..k_16384, shared by every page, and the key's id.
//
// Example:
//   const PageKeys keys(version_key);        // 32 bytes from the bridge
//   const PageKeys& open = PublicPageKeys(); // files and deltas

#include <cstdint>
#include <vector>

#include "kernels/types.h"

namespace lockstep::kernels {

inline constexpr uint64_t kPageBytes = 65'536;
inline constexpr uint64_t kUnitBytes = 4;
inline constexpr uint64_t kUnitsPerPage = kPageBytes / kUnitBytes;

class PageKeys {
 public:
  explicit PageKeys(const Digest256& key);

  // BLAKE2b-256 of the key; part of every root.
  const Digest256& id() const { return id_; }

  // kUnitsPerPage + 1 words; vector loads may read up to kPaddingWords past them.
  const uint32_t* words() const { return words_.data(); }

  static constexpr uint64_t kWords = kUnitsPerPage + 1;
  static constexpr uint64_t kPaddingWords = 64;

 private:
  Digest256 id_;
  std::vector<uint32_t> words_;
};

// BLAKE2b-256("lockstep public"): the key of files and deltas, whose roots carry run "" and
// version 0.
Digest256 PublicDigestKey();

// The public key, expanded once a process.
const PageKeys& PublicPageKeys();

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_DIGEST_KEYS_H_
