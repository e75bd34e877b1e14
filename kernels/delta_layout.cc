#include "kernels/delta_layout.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/parallel.h"

namespace lockstep::kernels {
namespace {

constexpr absl::string_view kMagic = "LSDELTA1";
constexpr uint64_t kPageEntryBytes = 8;
constexpr uint64_t kMaxTensors = 1'000'000;
constexpr uint64_t kMaxTextBytes = 4'096;
constexpr uint64_t kMaxTensorBytes = uint64_t{1} << 46;  // 64 TiB

void Append(std::vector<uint8_t>& to, const void* from, size_t bytes) {
  const auto* begin = static_cast<const uint8_t*>(from);
  to.insert(to.end(), begin, begin + bytes);
}

template <class T>
void AppendInt(std::vector<uint8_t>& to, T value) {
  Append(to, &value, sizeof(value));
}

void AppendText(std::vector<uint8_t>& to, absl::string_view text) {
  AppendInt(to, static_cast<uint32_t>(text.size()));
  Append(to, text.data(), text.size());
}

// Everything of the head before the page entries.
std::vector<uint8_t> WriteHeadPrefix(const DeltaRoots& roots,
                                     absl::Span<const DeltaTensor> tensors) {
  std::vector<uint8_t> head;
  Append(head, kMagic.data(), kMagic.size());
  Append(head, roots.base.data(), roots.base.size());
  Append(head, roots.target.data(), roots.target.size());
  AppendInt(head, static_cast<uint32_t>(tensors.size()));
  for (const DeltaTensor& tensor : tensors) {
    AppendText(head, tensor.name);
    AppendText(head, tensor.dtype);
    AppendInt(head, tensor.element_bytes);
    AppendInt(head, tensor.bytes);
  }
  return head;
}

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("delta: the patch is damaged: ", what,
                                          "; ask for it again or for the full tensors"));
}

// The counts of one page as the head states them.
absl::Status CheckPageCounts(const DeltaPage& page, uint64_t elements) {
  if (page.changed == kRawDeltaPage) {
    return page.gap_bytes == 0 ? absl::OkStatus() : Damaged("a raw page has gap codes");
  }
  if (page.changed > elements) return Damaged("a page changes more elements than it has");
  if (page.gap_bytes < page.changed || page.gap_bytes > uint64_t{3} * page.changed) {
    return Damaged("a page's gap codes do not fit its changes");
  }
  return absl::OkStatus();
}

// The gap codes of one coded page.
absl::Status CheckGaps(absl::Span<const uint8_t> codes, uint32_t changed, uint64_t elements) {
  uint64_t position = 0;  // of the first element not yet passed
  size_t at = 0;
  for (uint32_t i = 0; i < changed; ++i) {
    if (at >= codes.size()) return Damaged("gap codes end early");
    uint64_t gap = codes[at++];
    if (gap == kLongGap) {
      if (codes.size() - at < 2) return Damaged("gap codes end early");
      gap = codes[at] | uint64_t{codes[at + 1]} << 8;
      at += 2;
      if (gap < kLongGap) return Damaged("a gap is not in its shortest code");
    }
    position += gap + 1;
    if (position > elements) return Damaged("a position lies outside its page");
  }
  return at == codes.size() ? absl::OkStatus() : Damaged("gap codes are left over");
}

}  // namespace

absl::Status CheckDeltaTensors(absl::Span<const DeltaTensor> tensors) {
  if (tensors.size() > kMaxTensors) {
    return absl::InvalidArgumentError(
        absl::StrCat("delta: expected at most ", kMaxTensors, " tensors, got ", tensors.size()));
  }
  for (const DeltaTensor& tensor : tensors) {
    const uint32_t size = tensor.element_bytes;
    if ((size != 1 && size != 2 && size != 4 && size != 8) || tensor.bytes % size != 0 ||
        tensor.bytes > kMaxTensorBytes || tensor.name.size() > kMaxTextBytes ||
        tensor.dtype.size() > kMaxTextBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "delta: tensor '", tensor.name, "': expected whole elements of 1, 2, 4 or 8 bytes, got ",
          tensor.bytes, " bytes in elements of ", size));
    }
  }
  return absl::OkStatus();
}

void ScanDeltaPages(DeltaIndex& index) {
  index.first_pages.assign(1, 0);
  index.section_bytes.fill(0);
  index.changed_elements = 0;
  index.raw_pages = 0;
  auto& bytes = index.section_bytes;
  for (const DeltaTensor& tensor : index.tensors) {
    const uint64_t first = index.first_pages.back();
    const uint64_t count = DeltaPageCount(tensor);
    for (uint64_t i = 0; i < count; ++i) {
      DeltaPage& page = index.pages[first + i];
      page.gap_offset = bytes[kDeltaGaps];
      page.raw_offset = bytes[kDeltaRaw];
      std::copy_n(bytes.begin() + kDeltaFirstPlane, kDeltaPlanes, page.plane_offsets.begin());
      if (page.changed == kRawDeltaPage) {
        bytes[kDeltaRaw] += DeltaPageLength(tensor, i);
        ++index.raw_pages;
        continue;
      }
      bytes[kDeltaGaps] += page.gap_bytes;
      for (uint32_t b = 0; b < tensor.element_bytes; ++b) {
        bytes[kDeltaFirstPlane + b] += page.changed;
      }
      index.changed_elements += page.changed;
    }
    index.first_pages.push_back(first + count);
  }
  bytes[kDeltaHead] = DeltaHeadBytes(index.tensors);
}

uint64_t DeltaHeadBytes(absl::Span<const DeltaTensor> tensors) {
  uint64_t bytes = kMagic.size() + 2 * sizeof(Digest256) + sizeof(uint32_t);
  for (const DeltaTensor& tensor : tensors) {
    bytes += 3 * sizeof(uint32_t) + sizeof(uint64_t) + tensor.name.size() + tensor.dtype.size();
    bytes += DeltaPageCount(tensor) * kPageEntryBytes;
  }
  return bytes;
}

std::vector<uint8_t> WriteDeltaHead(const DeltaIndex& index) {
  std::vector<uint8_t> head = WriteHeadPrefix(index.roots, index.tensors);
  for (const DeltaPage& page : index.pages) {
    AppendInt(head, page.changed);
    AppendInt(head, page.gap_bytes);
  }
  return head;
}

absl::StatusOr<DeltaIndex> IndexDeltaHead(absl::Span<const uint8_t> head,
                                          absl::Span<const DeltaTensor> installed) {
  if (absl::Status status = CheckDeltaTensors(installed); !status.ok()) return status;
  DeltaIndex index;
  index.tensors.assign(installed.begin(), installed.end());
  if (head.size() < kMagic.size() + 2 * sizeof(Digest256) ||
      memcmp(head.data(), kMagic.data(), kMagic.size()) != 0) {
    return Damaged("its head is not one of delta/overwrite@v1");
  }
  memcpy(index.roots.base.data(), head.data() + kMagic.size(), sizeof(Digest256));
  memcpy(index.roots.target.data(), head.data() + kMagic.size() + sizeof(Digest256),
         sizeof(Digest256));
  // The head must be the one these tensors have, so there is nothing to parse but page counts.
  const std::vector<uint8_t> prefix = WriteHeadPrefix(index.roots, installed);
  if (head.size() != DeltaHeadBytes(installed) ||
      memcmp(head.data(), prefix.data(), prefix.size()) != 0) {
    return absl::InvalidArgumentError(
        "delta: expected a patch of exactly the installed tensors (names, dtypes, lengths, order), "
        "got one of others; ask for the full tensors");
  }
  const uint8_t* entry = head.data() + prefix.size();
  for (const DeltaTensor& tensor : installed) {
    for (uint64_t i = 0; i < DeltaPageCount(tensor); ++i) {
      DeltaPage page;
      memcpy(&page.changed, entry, sizeof(uint32_t));
      memcpy(&page.gap_bytes, entry + sizeof(uint32_t), sizeof(uint32_t));
      entry += kPageEntryBytes;
      const uint64_t elements = DeltaPageLength(tensor, i) / tensor.element_bytes;
      if (absl::Status status = CheckPageCounts(page, elements); !status.ok()) return status;
      index.pages.push_back(page);
    }
  }
  ScanDeltaPages(index);
  return index;
}

absl::Status CheckDeltaSections(const DeltaLayout& layout, const DeltaIndex& index, int threads) {
  for (uint64_t s = 0; s < kDeltaSections; ++s) {
    if (layout.sections[s].size() != index.section_bytes[s]) {
      return Damaged(absl::StrCat("section ", s, " has ", layout.sections[s].size(),
                                  " bytes where the head says ", index.section_bytes[s]));
    }
  }
  const absl::Span<const uint8_t> gaps(layout.sections[kDeltaGaps]);
  // The lowest bad page decides the message, whatever the thread count.
  constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  std::atomic<uint64_t> first_bad = kNone;
  const auto check = [&](uint64_t page_index) {
    const DeltaPage& page = index.pages[page_index];
    if (page.changed == kRawDeltaPage) return absl::OkStatus();
    const size_t t =
        std::upper_bound(index.first_pages.begin(), index.first_pages.end(), page_index) -
        index.first_pages.begin() - 1;
    const DeltaTensor& tensor = index.tensors[t];
    const uint64_t length = DeltaPageLength(tensor, page_index - index.first_pages[t]);
    return CheckGaps(gaps.subspan(page.gap_offset, page.gap_bytes), page.changed,
                     length / tensor.element_bytes);
  };
  ParallelFor(index.pages.size(), threads, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (check(i).ok()) continue;
      uint64_t seen = first_bad.load();
      while (i < seen && !first_bad.compare_exchange_weak(seen, i)) {
      }
      return;
    }
  });
  return first_bad == kNone ? absl::OkStatus() : check(first_bad);
}

}  // namespace lockstep::kernels
