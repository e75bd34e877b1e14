// Applying a checked patch: a block a changed page.

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda_launch.h"
#include "kernels/delta_body_cuda.h"
#include "kernels/delta_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 128;
// Fewer gap bytes than this are one thread's work.
constexpr uint32_t kLeastStretch = 4;

// Tensors whose addresses travel as a kernel's parameters, of which there are 4 KiB.
constexpr int kTensorsPerLaunch = 256;

struct Targets {
  uint8_t* of[kTensorsPerLaunch];
};

// A page that changes, with the places of its shares in the body.
struct ApplyPage {
  uint64_t target;  // which of its launch's
  uint64_t offset;  // bytes, of the page in its tensor
  uint32_t length;
  uint32_t element_bytes;
  uint32_t changed;
  uint32_t gap_bytes;
  uint64_t gaps;
  uint64_t raw;
  uint64_t planes[kDeltaPlanes];
};

// The bytes of a gap code still to come when a stretch of bytes begins or ends.
enum Awaited : uint32_t { kCodeStart = 0, kLowByte = 1, kHighByte = 2 };
constexpr int kStates = 3;

// What a stretch of gap bytes does, begun in some state: codes that end in it, and the elements
// they pass (unchanged and changed).
struct Walk {
  uint32_t state;
  uint32_t codes;
  uint32_t elements;
};

// Calls fn(element, code number) for each changed element whose code ends in the stretch.
template <class Fn>
__device__ Walk WalkStretch(const uint8_t* codes, uint32_t begin, uint32_t end, Walk at, Fn fn) {
  for (uint32_t i = begin; i < end; ++i) {
    const uint32_t byte = codes[i];
    uint32_t gap = byte;
    if (at.state == kCodeStart && byte == kLongGap) {
      at.state = kLowByte;
      continue;
    }
    if (at.state == kLowByte) {
      at.state = kHighByte;
      continue;
    }
    if (at.state == kHighByte) gap = codes[i - 1] | byte << 8;
    at.state = kCodeStart;
    at.elements += gap + 1;
    fn(at.elements - 1, at.codes);
    ++at.codes;
  }
  return at;
}

__device__ void StoreElement(uint8_t* page, uint32_t element, uint32_t element_bytes,
                             const uint8_t* body, const ApplyPage& from, uint32_t code) {
  for (uint32_t b = 0; b < element_bytes; ++b) {
    page[element * element_bytes + b] = body[from.planes[b] + code];
  }
}

__device__ void ApplyRaw(uint8_t* to, const uint8_t* from, uint32_t length) {
  constexpr uint32_t kVector = sizeof(uint4);
  const bool aligned =
      (reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) % kVector == 0;
  const uint32_t vectors = aligned ? length / kVector : 0;
  for (uint32_t i = threadIdx.x; i < vectors; i += kThreads) {
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  }
  for (uint32_t i = vectors * kVector + threadIdx.x; i < length; i += kThreads) to[i] = from[i];
}

__global__ void __launch_bounds__(kThreads)
    ApplyPages(const __grid_constant__ Targets targets, const ApplyPage* pages,
               const uint8_t* body) {
  __shared__ Walk walks[kThreads][kStates];
  __shared__ Walk starts[kThreads];
  const ApplyPage& page = pages[blockIdx.x];
  uint8_t* const target = targets.of[page.target] + page.offset;
  if (page.changed == kRawDeltaPage) {
    ApplyRaw(target, body + page.raw, page.length);
    return;
  }
  const uint8_t* codes = body + page.gaps;
  const uint32_t stretch = max(kLeastStretch, (page.gap_bytes + kThreads - 1) / kThreads);
  const uint32_t begin = min(page.gap_bytes, threadIdx.x * stretch);
  const uint32_t end = min(page.gap_bytes, begin + stretch);
  const uint32_t walkers = (page.gap_bytes + stretch - 1) / stretch;
  for (uint32_t state = 0; state < kStates; ++state) {
    walks[threadIdx.x][state] =
        WalkStretch(codes, begin, end, {state, 0, 0}, [](uint32_t, uint32_t) {});
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    Walk at = {kCodeStart, 0, 0};
    for (uint32_t t = 0; t < walkers; ++t) {
      starts[t] = at;
      const Walk& walk = walks[t][at.state];
      at = {walk.state, at.codes + walk.codes, at.elements + walk.elements};
    }
  }
  __syncthreads();
  if (threadIdx.x >= walkers) return;
  WalkStretch(codes, begin, end, starts[threadIdx.x], [&](uint32_t element, uint32_t code) {
    StoreElement(target, element, page.element_bytes, body, page, code);
  });
}

// `ends` receives the number of pages up to and with each tensor.
std::vector<ApplyPage> ChangedPages(const DeltaIndex& index,
                                    const std::array<uint64_t, kDeltaSections>& offsets,
                                    std::vector<uint64_t>& ends) {
  std::vector<ApplyPage> changed;
  for (uint64_t t = 0; t < index.tensors.size(); ++t) {
    const DeltaTensor& tensor = index.tensors[t];
    for (uint64_t i = 0; i < DeltaPageCount(tensor); ++i) {
      const DeltaPage& page = index.pages[index.first_pages[t] + i];
      if (page.changed == 0) continue;
      ApplyPage apply = {};
      apply.target = t % kTensorsPerLaunch;
      apply.offset = i * kPageBytes;
      apply.length = static_cast<uint32_t>(DeltaPageLength(tensor, i));
      apply.element_bytes = tensor.element_bytes;
      apply.changed = page.changed;
      apply.gap_bytes = page.gap_bytes;
      apply.gaps = offsets[kDeltaGaps] + page.gap_offset;
      apply.raw = offsets[kDeltaRaw] + page.raw_offset;
      for (uint32_t b = 0; b < tensor.element_bytes; ++b) {
        apply.planes[b] = offsets[kDeltaFirstPlane + b] + page.plane_offsets[b];
      }
      changed.push_back(apply);
    }
    ends.push_back(changed.size());
  }
  return changed;
}

}  // namespace

absl::StatusOr<DeviceDeltaPatch> DeviceDeltaPatch::Upload(const DeltaPatch& patch,
                                                          CudaStream stream) {
  const DeltaIndex& index = patch.index();
  std::array<uint64_t, kDeltaSections> offsets;
  const uint64_t body_bytes = BodyOffsets(index.section_bytes.data(), offsets.data());
  DeviceDeltaPatch on_device;
  const std::vector<ApplyPage> changed = ChangedPages(index, offsets, on_device.page_ends_);
  for (const DeltaTensor& tensor : index.tensors) on_device.tensor_bytes_.push_back(tensor.bytes);
  absl::StatusOr<DeviceBuffer> body = DeviceBuffer::Allocate(body_bytes + 1);
  if (!body.ok()) return body.status();
  absl::StatusOr<DeviceBuffer> pages =
      DeviceBuffer::Allocate(changed.size() * sizeof(ApplyPage) + 1);
  if (!pages.ok()) return pages.status();
  absl::Status copied =
      CopyToDevice(pages->data(), changed.data(), changed.size() * sizeof(ApplyPage), stream);
  for (uint64_t s = 1; s < kDeltaSections; ++s) {
    const std::vector<uint8_t>& section = patch.layout().sections[s];
    copied.Update(
        CopyToDevice(body->As<uint8_t>() + offsets[s], section.data(), section.size(), stream));
  }
  copied.Update(SynchronizeStream(stream));
  if (!copied.ok()) return copied;
  on_device.body_ = *std::move(body);
  on_device.pages_ = *std::move(pages);
  return on_device;
}

absl::Status DeviceDeltaPatch::Apply(absl::Span<const absl::Span<uint8_t>> buffers,
                                     CudaStream stream) const {
  if (buffers.size() != tensor_bytes_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("delta: expected ", tensor_bytes_.size(), " buffers, got ", buffers.size()));
  }
  for (size_t t = 0; t < buffers.size(); ++t) {
    if (buffers[t].size() != tensor_bytes_[t]) {
      return absl::InvalidArgumentError(absl::StrCat("delta: tensor ", t, ": expected a buffer of ",
                                                     tensor_bytes_[t], " bytes, got one of ",
                                                     buffers[t].size()));
    }
  }
  uint64_t done = 0;
  for (size_t first = 0; first < buffers.size(); first += kTensorsPerLaunch) {
    const size_t end = std::min(buffers.size(), first + kTensorsPerLaunch);
    Targets targets = {};
    for (size_t t = first; t < end; ++t) targets.of[t - first] = buffers[t].data();
    const uint64_t pages = page_ends_[end - 1] - done;
    if (pages == 0) continue;
    const absl::Status launched =
        Launch("delta: applying", ApplyPages, {static_cast<unsigned>(pages), kThreads, 0, stream},
               targets, pages_.As<ApplyPage>() + done, body_.As<uint8_t>());
    if (!launched.ok()) return launched;
    done += pages;
  }
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
