#ifndef LOCKSTEP_KERNELS_DIGEST_CUDA_H_
#define LOCKSTEP_KERNELS_DIGEST_CUDA_H_

// The CUDA twins of digest.h (cuda_support.h states what holds for every twin): the sums of
// `digest/paged@v1` at memory speed where the weights lie. Page sums stay on the device, one
// PageSum a page, until DownloadPageTable; the root over them is the CPU's TensorRoot.
//
// Example: a shard, through a view of the full tensor.
//   absl::StatusOr<DevicePageKeys> keys = DevicePageKeys::Upload(PageKeys(version_key), stream);
//   absl::StatusOr<DeviceBuffer> sums = DeviceBuffer::Allocate(PageSumBytes(stream_bytes));
//   LOCKSTEP_RETURN_IF_ERROR(ClearPageSumsCuda(sums->As<PageSum>(), stream_bytes, stream));
//   LOCKSTEP_RETURN_IF_ERROR(AddViewCuda(*keys, view, buffer, buffer_bytes, stream_bytes,
//                                        sums->As<PageSum>(), stream));
//   absl::StatusOr<PageTable> table =
//       DownloadPageTable(sums->As<PageSum>(), stream_bytes, stream);

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda_support.h"
#include "kernels/digest.h"

namespace lockstep::kernels {

// A key's words in device memory, made once and used by any number of calls.
class DevicePageKeys {
 public:
  // Waits for `stream`; `keys` may go then.
  static absl::StatusOr<DevicePageKeys> Upload(const PageKeys& keys, CudaStream stream) {
    constexpr size_t kBytes = (PageKeys::kWords + PageKeys::kPaddingWords) * sizeof(uint32_t);
    absl::StatusOr<DeviceBuffer> buffer = DeviceBuffer::Allocate(kBytes);
    if (!buffer.ok()) return buffer.status();
    absl::Status copied = CopyToDevice(buffer->data(), keys.words(), kBytes, stream);
    copied.Update(SynchronizeStream(stream));
    if (!copied.ok()) return copied;
    return DevicePageKeys(*std::move(buffer));
  }

  const uint32_t* words() const { return words_.As<uint32_t>(); }

 private:
  explicit DevicePageKeys(DeviceBuffer words) : words_(std::move(words)) {}

  DeviceBuffer words_;
};

// Pages of a stream, and the bytes of their sums (at least 1, so that it can be allocated).
inline uint64_t PagesOf(uint64_t stream_bytes) {
  return stream_bytes / kPageBytes + (stream_bytes % kPageBytes != 0 ? 1 : 0);
}
inline size_t PageSumBytes(uint64_t stream_bytes) {
  return static_cast<size_t>(PagesOf(stream_bytes) * sizeof(PageSum)) + 1;
}

absl::Status ClearPageSumsCuda(PageSum* sums, uint64_t stream_bytes, CudaStream stream);

// PageTable::Add: adds `count` bytes that lie at `stream_offset`.
absl::Status AddBytesCuda(const DevicePageKeys& keys, uint64_t stream_offset, const uint8_t* bytes,
                          uint64_t count, uint64_t stream_bytes, PageSum* sums, CudaStream stream);

// PageTable::AddView: adds the box that `view` describes.
absl::Status AddViewCuda(const DevicePageKeys& keys, const BoxView& view, const uint8_t* buffer,
                         uint64_t buffer_bytes, uint64_t stream_bytes, PageSum* sums,
                         CudaStream stream);

// CopyAndDigest: each task's whole stream in one pass. `sums` receives the pages of all tasks, one
// task after another, and `nan_counts` (one a task) the NaN elements; both are overwritten.
absl::Status CopyAndDigestCuda(const DevicePageKeys& keys, absl::Span<const DigestTask> tasks,
                               PageSum* sums, uint64_t* nan_counts, CudaStream stream);

// The table of one stream's sums. Waits for `stream`.
absl::StatusOr<PageTable> DownloadPageTable(const PageSum* sums, uint64_t stream_bytes,
                                            CudaStream stream);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_DIGEST_CUDA_H_
