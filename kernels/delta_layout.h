#ifndef LOCKSTEP_KERNELS_DELTA_LAYOUT_H_
#define LOCKSTEP_KERNELS_DELTA_LAYOUT_H_

// The layout of `delta/overwrite@v1` before zstd, and its reader.
//
// All integers are little-endian and unaligned. Pages are the 64 KiB pages of each tensor's
// logical stream (the last may be short), all tensors' pages numbered through in tensor order.
// A position counts elements within its page.
//
// Section 0, head:
//   8 bytes   "LSDELTA1"
//   32 bytes  base manifest root (public key, run "", version 0)
//   32 bytes  target manifest root
//   uint32    tensor count; then for each tensor, in the given order:
//     uint32 + bytes  name
//     uint32 + bytes  dtype, safetensors spelling
//     uint32          element bytes: 1, 2, 4 or 8
//     uint64          stream bytes, a multiple of the element bytes
//   then for each page:
//     uint32    changed elements, or 0xFFFFFFFF: the page is raw
//     uint32    bytes of its gap codes (0 when raw)
// Section 1, gaps: each coded page's gap codes, pages ascending. A gap is the number of unchanged
//   elements before a changed one, since the page's start or the changed one before: one byte
//   when below 255, else the byte 255 and a uint16 (at least 255).
// Sections 2 to 9, planes 0 to 7: byte b of every changed element's new value, in the order of
//   the gaps, over all coded pages of tensors with more than b bytes an element.
// Section 10, raw: the target bytes of the raw pages.
// The layout's bytes are the sections in order; their sizes follow from the head.
//
// A page is raw when its length is less than gap bytes + changed * element bytes.
// Each page's share of each section is independent, so that a device counts per page, takes an
// exclusive scan of the counts, and lets every page write its share.
//
// Example:
//   absl::StatusOr<DeltaIndex> index = IndexDeltaLayout(layout);

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/digest_keys.h"
#include "kernels/types.h"

namespace lockstep::kernels {

inline constexpr uint32_t kRawDeltaPage = 0xFFFFFFFF;
inline constexpr uint8_t kLongGap = 255;  // and every gap from here on is long
inline constexpr uint64_t kDeltaPlanes = 8;
inline constexpr uint64_t kDeltaSections = 3 + kDeltaPlanes;
inline constexpr uint64_t kDeltaHead = 0;
inline constexpr uint64_t kDeltaGaps = 1;
inline constexpr uint64_t kDeltaFirstPlane = 2;
inline constexpr uint64_t kDeltaRaw = kDeltaSections - 1;

struct DeltaRoots {
  Digest256 base{};
  Digest256 target{};

  bool operator==(const DeltaRoots&) const = default;
};

struct DeltaTensor {
  std::string name;
  std::string dtype;           // safetensors spelling
  uint32_t element_bytes = 0;  // 1, 2, 4 or 8
  uint64_t bytes = 0;          // of the logical stream

  bool operator==(const DeltaTensor&) const = default;
};

struct DeltaLayout {
  std::array<std::vector<uint8_t>, kDeltaSections> sections;

  bool operator==(const DeltaLayout&) const = default;
};

// One page's counts, and where its shares start in their sections.
struct DeltaPage {
  uint32_t changed = 0;    // elements; kRawDeltaPage for a raw page
  uint32_t gap_bytes = 0;  // of its gap codes
  uint64_t gap_offset = 0;
  uint64_t raw_offset = 0;
  // In each of planes 0..element_bytes-1; they differ when tensors have other element sizes.
  std::array<uint64_t, kDeltaPlanes> plane_offsets{};
};

// What the head says, with the scan over the pages.
struct DeltaIndex {
  DeltaRoots roots;
  std::vector<DeltaTensor> tensors;
  std::vector<DeltaPage> pages;
  std::vector<uint64_t> first_pages;  // of each tensor, and the end
  std::array<uint64_t, kDeltaSections> section_bytes{};
  uint64_t changed_elements = 0;  // in coded pages
  uint64_t raw_pages = 0;
};

// Fills first_pages, offsets, section sizes and totals from tensors and the pages' counts. The
// counts are sane (IndexDeltaHead, or made here), so nothing overflows.
void ScanDeltaPages(DeltaIndex& index);

// Reads the head. `installed` is the receiver's own list: the head must name exactly these, which
// bounds all memory. InvalidArgument when it names others, DataLoss when it is malformed.
absl::StatusOr<DeltaIndex> IndexDeltaHead(absl::Span<const uint8_t> head,
                                          absl::Span<const DeltaTensor> installed);

// Checks every section against the index: sizes, every gap code canonical, every position inside
// its page. DataLoss otherwise. After this, applying needs no check.
absl::Status CheckDeltaSections(const DeltaLayout& layout, const DeltaIndex& index, int threads);

// InvalidArgument when a tensor's element size or length is none the layout can hold, or there are
// too many.
absl::Status CheckDeltaTensors(absl::Span<const DeltaTensor> tensors);

// The head's bytes for an index.
std::vector<uint8_t> WriteDeltaHead(const DeltaIndex& index);

// The bytes a head of these tensors has.
uint64_t DeltaHeadBytes(absl::Span<const DeltaTensor> tensors);

inline uint64_t DeltaPageCount(const DeltaTensor& tensor) {
  return tensor.bytes / kPageBytes + (tensor.bytes % kPageBytes != 0 ? 1 : 0);
}

// Bytes of page `page` of the tensor, which has it.
inline uint64_t DeltaPageLength(const DeltaTensor& tensor, uint64_t page) {
  return std::min(kPageBytes, tensor.bytes - page * kPageBytes);
}

// Bytes of the code of `gap`.
inline uint32_t GapCodeBytes(uint64_t gap) { return gap < kLongGap ? 1 : 3; }

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_DELTA_LAYOUT_H_
