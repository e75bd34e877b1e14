// The zstd stage of a patch, for the wire:
//   8 bytes    "LSPATCH1"
//   11 times   uint64 stored bytes of the section (delta_layout.h), little-endian
//   then       the sections as stored: section 0 one zstd frame; each other one zstd frame, or
//              verbatim when its stored size is its plain size, which the head tells
//   32 bytes   BLAKE2b-256 of all that came before
// The checksum finds accidents; who may send a patch is the channel's matter.

#include <sodium.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/delta.h"
#include "kernels/parallel.h"

namespace lockstep::kernels {
namespace {

constexpr absl::string_view kMagic = "LSPATCH1";
constexpr uint64_t kTableBytes = kMagic.size() + kDeltaSections * sizeof(uint64_t);

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("delta: the patch is damaged: ", what,
                                          "; ask for it again or for the full tensors"));
}

Digest256 Checksum(absl::Span<const uint8_t> bytes) {
  Digest256 digest;
  crypto_generichash_blake2b(digest.data(), digest.size(), bytes.data(), bytes.size(), nullptr, 0);
  return digest;
}

// One zstd frame, or the bytes themselves when they may stay so and the frame is not shorter.
absl::StatusOr<std::vector<uint8_t>> Compress(const std::vector<uint8_t>& plain, int level,
                                              bool may_stay_plain) {
  if (plain.empty()) return std::vector<uint8_t>();
  std::vector<uint8_t> stored(ZSTD_compressBound(plain.size()));
  const size_t size =
      ZSTD_compress(stored.data(), stored.size(), plain.data(), plain.size(), level);
  if (ZSTD_isError(size)) {
    return absl::InternalError(
        absl::StrCat("delta: zstd could not compress: ", ZSTD_getErrorName(size)));
  }
  if (may_stay_plain && size >= plain.size()) return plain;
  stored.resize(size);
  return stored;
}

// Exactly `plain_bytes` bytes out of `stored`.
absl::StatusOr<std::vector<uint8_t>> Decompress(absl::Span<const uint8_t> stored,
                                                uint64_t plain_bytes, bool may_be_plain) {
  if (may_be_plain && stored.size() == plain_bytes) {
    return std::vector<uint8_t>(stored.begin(), stored.end());
  }
  // Checked before the allocation, so that a lying table costs nothing.
  if (ZSTD_getFrameContentSize(stored.data(), stored.size()) != plain_bytes) {
    return Damaged(absl::StrCat("a section does not unpack to ", plain_bytes, " bytes"));
  }
  std::vector<uint8_t> plain(plain_bytes);
  const size_t size = ZSTD_decompress(plain.data(), plain.size(), stored.data(), stored.size());
  if (ZSTD_isError(size) || size != plain_bytes) return Damaged("a section does not unpack");
  return plain;
}

}  // namespace

absl::StatusOr<std::vector<uint8_t>> PackDelta(const DeltaLayout& layout, int level, int threads) {
  std::array<absl::StatusOr<std::vector<uint8_t>>, kDeltaSections> stored;
  ParallelFor(kDeltaSections, threads, [&](size_t begin, size_t end) {
    for (size_t s = begin; s < end; ++s) {
      stored[s] = Compress(layout.sections[s], level, s != kDeltaHead);
    }
  });
  std::vector<uint8_t> patch(kMagic.begin(), kMagic.end());
  for (const auto& section : stored) {
    if (!section.ok()) return section.status();
    const uint64_t size = section->size();
    const auto* bytes = reinterpret_cast<const uint8_t*>(&size);
    patch.insert(patch.end(), bytes, bytes + sizeof(size));
  }
  for (const auto& section : stored) patch.insert(patch.end(), section->begin(), section->end());
  const Digest256 checksum = Checksum(patch);
  patch.insert(patch.end(), checksum.begin(), checksum.end());
  return patch;
}

absl::StatusOr<std::vector<uint8_t>> MakeDelta(const DeltaRoots& roots,
                                               absl::Span<const DeltaSource> sources, int level,
                                               int threads) {
  absl::StatusOr<DeltaLayout> layout = MakeDeltaLayout(roots, sources, threads);
  if (!layout.ok()) return layout.status();
  return PackDelta(*layout, level, threads);
}

absl::StatusOr<DeltaLayout> UnpackDelta(absl::Span<const uint8_t> patch,
                                        absl::Span<const DeltaTensor> installed) {
  if (patch.size() < kTableBytes + sizeof(Digest256) ||
      memcmp(patch.data(), kMagic.data(), kMagic.size()) != 0) {
    return Damaged("it does not begin as a patch of delta/overwrite@v1");
  }
  const absl::Span<const uint8_t> body = patch.first(patch.size() - sizeof(Digest256));
  if (memcmp(Checksum(body).data(), patch.data() + body.size(), sizeof(Digest256)) != 0) {
    return Damaged("its checksum differs");
  }
  std::array<absl::Span<const uint8_t>, kDeltaSections> stored;
  absl::Span<const uint8_t> rest = body.subspan(kTableBytes);
  for (uint64_t s = 0; s < kDeltaSections; ++s) {
    uint64_t size;
    memcpy(&size, patch.data() + kMagic.size() + s * sizeof(size), sizeof(size));
    if (size > rest.size()) return Damaged("its sections are longer than it is");
    stored[s] = rest.first(size);
    rest.remove_prefix(size);
  }
  if (!rest.empty()) return Damaged("bytes are left over");
  DeltaLayout layout;
  absl::StatusOr<std::vector<uint8_t>> head =
      Decompress(stored[kDeltaHead], DeltaHeadBytes(installed), false);
  if (!head.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "delta: the patch's head is not that of the installed tensors: ", head.status().message()));
  }
  absl::StatusOr<DeltaIndex> index = IndexDeltaHead(*head, installed);
  if (!index.ok()) return index.status();
  layout.sections[kDeltaHead] = *std::move(head);
  for (uint64_t s = 1; s < kDeltaSections; ++s) {
    absl::StatusOr<std::vector<uint8_t>> plain =
        Decompress(stored[s], index->section_bytes[s], true);
    if (!plain.ok()) return plain.status();
    layout.sections[s] = *std::move(plain);
  }
  return layout;
}

}  // namespace lockstep::kernels
