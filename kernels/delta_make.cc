#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/delta.h"
#include "kernels/parallel.h"

namespace lockstep::kernels {
namespace {

// Calls fn(gap, bits) for each element that differs, ascending. T is the element's unsigned twin.
template <class T, class Fn>
void ForEachChange(const uint8_t* base, const uint8_t* target, uint64_t bytes, Fn fn) {
  constexpr uint64_t kWord = sizeof(uint64_t);
  uint64_t next = 0;  // element after the last changed one
  const auto compare = [&](uint64_t at) {
    T old_bits;
    T new_bits;
    memcpy(&old_bits, base + at, sizeof(T));
    memcpy(&new_bits, target + at, sizeof(T));
    if (old_bits == new_bits) return;
    const uint64_t element = at / sizeof(T);
    fn(element - next, new_bits);
    next = element + 1;
  };
  uint64_t at = 0;
  for (; at + kWord <= bytes; at += kWord) {
    uint64_t old_word;
    uint64_t new_word;
    memcpy(&old_word, base + at, kWord);
    memcpy(&new_word, target + at, kWord);
    if (old_word == new_word) continue;
    for (uint64_t i = 0; i < kWord; i += sizeof(T)) compare(at + i);
  }
  for (; at < bytes; at += sizeof(T)) compare(at);
}

struct PageBytes {
  const uint8_t* base;
  const uint8_t* target;
  uint64_t bytes;
};

template <class T>
void CountPage(const PageBytes& from, DeltaPage& page) {
  ForEachChange<T>(from.base, from.target, from.bytes, [&](uint64_t gap, T) {
    page.changed += 1;
    page.gap_bytes += GapCodeBytes(gap);
  });
  if (from.bytes < page.gap_bytes + uint64_t{page.changed} * sizeof(T)) {
    page.changed = kRawDeltaPage;
    page.gap_bytes = 0;
  }
}

template <class T>
void WritePage(const PageBytes& from, const DeltaPage& page, DeltaLayout& layout) {
  if (page.changed == kRawDeltaPage) {
    memcpy(layout.sections[kDeltaRaw].data() + page.raw_offset, from.target, from.bytes);
    return;
  }
  if (page.changed == 0) return;
  uint8_t* gaps = layout.sections[kDeltaGaps].data() + page.gap_offset;
  uint8_t* planes[sizeof(T)];
  for (size_t b = 0; b < sizeof(T); ++b) {
    planes[b] = layout.sections[kDeltaFirstPlane + b].data() + page.plane_offsets[b];
  }
  ForEachChange<T>(from.base, from.target, from.bytes, [&](uint64_t gap, T bits) {
    if (gap < kLongGap) {
      *gaps++ = static_cast<uint8_t>(gap);
    } else {
      *gaps++ = kLongGap;
      *gaps++ = static_cast<uint8_t>(gap);
      *gaps++ = static_cast<uint8_t>(gap >> 8);
    }
    for (size_t b = 0; b < sizeof(T); ++b) {
      *planes[b]++ = static_cast<uint8_t>(uint64_t{bits} >> (8 * b));
    }
  });
}

// Calls fn(page bytes, page, element bytes) for all pages of all tensors, over the threads.
template <class Fn>
void ForEachPage(absl::Span<const DeltaSource> sources, DeltaIndex& index, int threads, Fn fn) {
  ParallelFor(index.pages.size(), threads, [&](size_t begin, size_t end) {
    size_t t = std::upper_bound(index.first_pages.begin(), index.first_pages.end(), begin) -
               index.first_pages.begin() - 1;
    for (size_t i = begin; i < end; ++i) {
      while (i >= index.first_pages[t + 1]) ++t;
      const uint64_t page = i - index.first_pages[t];
      const DeltaSource& source = sources[t];
      const uint64_t offset = page * kPageBytes;
      fn(PageBytes{source.base.data() + offset, source.target.data() + offset,
                   DeltaPageLength(source.tensor, page)},
         index.pages[i], source.tensor.element_bytes);
    }
  });
}

// Calls fn with a zero of the unsigned type of `element_bytes` bytes, which is 1, 2, 4 or 8.
template <class Fn>
void WithElementType(uint32_t element_bytes, Fn fn) {
  switch (element_bytes) {
    case 1:
      return fn(uint8_t{});
    case 2:
      return fn(uint16_t{});
    case 4:
      return fn(uint32_t{});
    default:
      return fn(uint64_t{});
  }
}

}  // namespace

absl::StatusOr<DeltaLayout> MakeDeltaLayout(const DeltaRoots& roots,
                                            absl::Span<const DeltaSource> sources, int threads) {
  DeltaIndex index;
  index.roots = roots;
  uint64_t page_count = 0;
  for (const DeltaSource& source : sources) {
    if (source.base.size() != source.tensor.bytes || source.target.size() != source.tensor.bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "delta: tensor '", source.tensor.name, "': expected two versions of ",
          source.tensor.bytes, " bytes, got ", source.base.size(), " and ", source.target.size()));
    }
    index.tensors.push_back(source.tensor);
    page_count += DeltaPageCount(source.tensor);
  }
  if (absl::Status status = CheckDeltaTensors(index.tensors); !status.ok()) return status;
  index.pages.resize(page_count);
  ScanDeltaPages(index);  // for first_pages
  ForEachPage(
      sources, index, threads, [](const PageBytes& from, DeltaPage& page, uint32_t element_bytes) {
        WithElementType(element_bytes, [&](auto zero) { CountPage<decltype(zero)>(from, page); });
      });
  ScanDeltaPages(index);
  DeltaLayout layout;
  layout.sections[kDeltaHead] = WriteDeltaHead(index);
  for (uint64_t s = 1; s < kDeltaSections; ++s) layout.sections[s].resize(index.section_bytes[s]);
  ForEachPage(sources, index, threads,
              [&](const PageBytes& from, const DeltaPage& page, uint32_t element_bytes) {
                WithElementType(element_bytes,
                                [&](auto zero) { WritePage<decltype(zero)>(from, page, layout); });
              });
  return layout;
}

}  // namespace lockstep::kernels
