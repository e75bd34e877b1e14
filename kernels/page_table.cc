#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/digest.h"
#include "kernels/parallel.h"

namespace lockstep::kernels {
namespace {

// Elements that are not dense in the buffer are gathered into a scratch of this size first.
constexpr uint64_t kGatherBytes = 4'096;

// The sums of pages first.. of one thread's part of a box.
struct Accumulator {
  const PageKeys& keys;
  uint64_t first_page;
  std::vector<PageSum> pages;
};

// The bytes of an incomplete unit, one at a time.
void AddBytes(const uint32_t* keys, uint64_t page_offset, const uint8_t* from, uint64_t bytes,
              PageSum& sum) {
  for (uint64_t i = 0; i < bytes; ++i) {
    const uint64_t at = page_offset + i;
    const uint64_t m = uint64_t{from[i]} << (8 * (at % kUnitBytes));
    sum.lane0 += keys[at / kUnitBytes] * m;
    sum.lane1 += keys[at / kUnitBytes + 1] * m;
  }
}

void AddWithinPage(const uint32_t* keys, uint64_t page_offset, const uint8_t* from, uint64_t bytes,
                   PageSum& sum) {
  sum.covered_bytes += bytes;
  const uint64_t head = std::min(bytes, (kUnitBytes - page_offset % kUnitBytes) % kUnitBytes);
  AddBytes(keys, page_offset, from, head, sum);
  const uint64_t units = (bytes - head) / kUnitBytes;
  const LaneSums middle = SumUnits(keys + (page_offset + head) / kUnitBytes, from + head, units);
  sum.lane0 += middle.lane0;
  sum.lane1 += middle.lane1;
  const uint64_t done = head + units * kUnitBytes;
  AddBytes(keys, page_offset + done, from + done, bytes - done, sum);
}

void AddRun(Accumulator& to, uint64_t stream_offset, const uint8_t* from, uint64_t bytes) {
  while (bytes > 0) {
    const uint64_t page_offset = stream_offset % kPageBytes;
    const uint64_t part = std::min(bytes, kPageBytes - page_offset);
    AddWithinPage(to.keys.words(), page_offset, from, part,
                  to.pages[stream_offset / kPageBytes - to.first_page]);
    stream_offset += part;
    from += part;
    bytes -= part;
  }
}

// Elements [begin, end) of one run.
void AddElements(Accumulator& to, const RunPlan& plan, uint64_t stream_offset, const uint8_t* local,
                 uint64_t begin, uint64_t end) {
  const uint64_t size = plan.element_bytes;
  stream_offset += begin * size;
  local += static_cast<int64_t>(begin) * plan.run_local_stride;
  if (plan.run_local_stride == static_cast<int64_t>(size)) {
    AddRun(to, stream_offset, local, (end - begin) * size);
    return;
  }
  uint8_t scratch[kGatherBytes];
  while (begin < end) {
    const uint64_t count = std::min(end - begin, kGatherBytes / size);
    for (uint64_t i = 0; i < count; ++i) {
      memcpy(scratch + i * size, local, size);
      local += plan.run_local_stride;
    }
    AddRun(to, stream_offset, scratch, count * size);
    stream_offset += count * size;
    begin += count;
  }
}

struct RunPlace {
  uint64_t stream_offset;
  int64_t local_offset;
};

RunPlace PlaceOfRun(const RunPlan& plan, uint64_t run) {
  RunPlace place{plan.stream_offset, static_cast<int64_t>(plan.local_offset)};
  for (size_t d = plan.outer.size(); d-- > 0;) {
    const RunPlan::Loop& loop = plan.outer[d];
    const uint64_t index = run % loop.extent;
    run /= loop.extent;
    place.stream_offset += index * loop.stream_stride;
    place.local_offset += static_cast<int64_t>(index) * loop.local_stride;
  }
  return place;
}

uint64_t StreamOffsetOfElement(const RunPlan& plan, uint64_t element) {
  return PlaceOfRun(plan, element / plan.run_elements).stream_offset +
         element % plan.run_elements * plan.element_bytes;
}

// Elements [begin, end) of the box, in stream order; the pages they touch are contiguous.
std::pair<uint64_t, std::vector<PageSum>> SumElements(const PageKeys& keys, const RunPlan& plan,
                                                      const uint8_t* buffer, uint64_t begin,
                                                      uint64_t end) {
  const uint64_t first = StreamOffsetOfElement(plan, begin) / kPageBytes;
  const uint64_t last =
      (StreamOffsetOfElement(plan, end - 1) + plan.element_bytes - 1) / kPageBytes;
  Accumulator sums{keys, first, std::vector<PageSum>(last - first + 1)};
  while (begin < end) {
    const uint64_t run = begin / plan.run_elements;
    const uint64_t from = begin % plan.run_elements;
    const uint64_t to = std::min(plan.run_elements, from + (end - begin));
    const RunPlace place = PlaceOfRun(plan, run);
    AddElements(sums, plan, place.stream_offset, buffer + place.local_offset, from, to);
    begin += to - from;
  }
  return {first, std::move(sums.pages)};
}

void AddPlan(const PageKeys& keys, const RunPlan& plan, const uint8_t* buffer, int threads,
             std::vector<PageSum>& pages) {
  const uint64_t elements = plan.run_count * plan.run_elements;
  if (elements == 0) return;
  // A thread gets whole blocks of about a page, so that small boxes start no thread.
  const uint64_t block = kPageBytes / plan.element_bytes;
  const uint64_t blocks = (elements + block - 1) / block;
  std::vector<std::pair<uint64_t, std::vector<PageSum>>> parts(
      std::min<uint64_t>(blocks, std::clamp(threads, 1, kMaxThreads)));
  ParallelFor(parts.size(), static_cast<int>(parts.size()), [&](size_t first, size_t last) {
    for (size_t part = first; part < last; ++part) {
      const uint64_t begin = blocks * part / parts.size() * block;
      const uint64_t end = std::min(elements, blocks * (part + 1) / parts.size() * block);
      parts[part] = SumElements(keys, plan, buffer, begin, end);
    }
  });
  for (const auto& [first_page, sums] : parts) {
    for (size_t i = 0; i < sums.size(); ++i) {
      PageSum& page = pages[first_page + i];
      page.lane0 += sums[i].lane0;
      page.lane1 += sums[i].lane1;
      page.covered_bytes += sums[i].covered_bytes;
    }
  }
}

}  // namespace

PageTable::PageTable(uint64_t stream_bytes)
    : stream_bytes_(stream_bytes),
      pages_(stream_bytes / kPageBytes + (stream_bytes % kPageBytes != 0 ? 1 : 0)) {}

uint64_t PageTable::PageLength(uint64_t index) const {
  return std::min(kPageBytes, stream_bytes_ - index * kPageBytes);
}

absl::Status PageTable::Add(const PageKeys& keys, uint64_t stream_offset,
                            absl::Span<const uint8_t> bytes, int threads) {
  if (stream_offset > stream_bytes_ || bytes.size() > stream_bytes_ - stream_offset) {
    return absl::OutOfRangeError(absl::StrCat("digest: expected bytes inside a stream of ",
                                              stream_bytes_, " bytes, got ", bytes.size(),
                                              " at offset ", stream_offset));
  }
  RunPlan plan;
  plan.stream_bytes = stream_bytes_;
  plan.stream_offset = stream_offset;
  plan.element_bytes = 1;
  plan.run_elements = bytes.size();
  plan.run_local_stride = 1;
  plan.run_count = 1;
  AddPlan(keys, plan, bytes.data(), threads, pages_);
  return absl::OkStatus();
}

absl::Status PageTable::AddView(const PageKeys& keys, const BoxView& view,
                                absl::Span<const uint8_t> buffer, int threads) {
  absl::StatusOr<RunPlan> plan = PlanRuns(view, buffer.size());
  if (!plan.ok()) return plan.status();
  if (plan->stream_bytes != stream_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat("digest: expected a view of a stream of ",
                                                   stream_bytes_, " bytes, got one of ",
                                                   plan->stream_bytes));
  }
  AddPlan(keys, *plan, buffer.data(), threads, pages_);
  return absl::OkStatus();
}

absl::Status PageTable::Merge(const PageTable& part) {
  if (part.stream_bytes_ != stream_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat("digest: expected a part of a stream of ",
                                                   stream_bytes_, " bytes, got one of ",
                                                   part.stream_bytes_));
  }
  for (size_t i = 0; i < pages_.size(); ++i) {
    if (absl::Status status = MergePage(i, part.pages_[i]); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status PageTable::MergePage(uint64_t index, const PageSum& sum) {
  if (index >= pages_.size()) {
    return absl::OutOfRangeError(
        absl::StrCat("digest: expected a page below ", pages_.size(), ", got ", index));
  }
  // The counts may come from a peer: an absurd one must not wrap around to the right one.
  if (sum.covered_bytes >
      PageLength(index) - std::min(PageLength(index), pages_[index].covered_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("digest: page ", index, " has ", PageLength(index), " bytes; a part with ",
                     sum.covered_bytes, " more on top of ", pages_[index].covered_bytes,
                     " covers some byte twice"));
  }
  pages_[index].lane0 += sum.lane0;
  pages_[index].lane1 += sum.lane1;
  pages_[index].covered_bytes += sum.covered_bytes;
  return absl::OkStatus();
}

absl::Status PageTable::CheckCovered() const {
  for (size_t i = 0; i < pages_.size(); ++i) {
    if (pages_[i].covered_bytes != PageLength(i)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "digest: expected page ", i, " of ", pages_.size(), " covered to its length of ",
          PageLength(i), " bytes, got ", pages_[i].covered_bytes,
          "; every shard of the plan must be added exactly once"));
    }
  }
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
