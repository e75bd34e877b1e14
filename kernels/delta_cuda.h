#ifndef LOCKSTEP_KERNELS_DELTA_CUDA_H_
#define LOCKSTEP_KERNELS_DELTA_CUDA_H_

// The CUDA twins of delta.h: `delta/overwrite@v1` is made and applied where the weights lie, with
// the compaction on the device; the layout has the CPU's bytes (cuda_support.h states what holds
// for every twin). The zstd stage is the CPU's.
//
// Example, sender:
//   const size_t work_bytes = MakeDeltaCudaWorkspaceBytes(sources);
//   const uint64_t body_bytes = DeltaBodyBytes(sources);   // enough for anything
//   LOCKSTEP_RETURN_IF_ERROR(MakeDeltaCuda(sources, workspace, body, body_bytes, stream));
//   absl::StatusOr<DeltaLayout> layout =
//       DownloadDeltaLayout(roots, sources, workspace, body, body_bytes, stream);
// Receiver, after DeltaPatch::Open has checked the patch:
//   absl::StatusOr<DeviceDeltaPatch> on_device = DeviceDeltaPatch::Upload(*patch, stream);
//   LOCKSTEP_RETURN_IF_ERROR(on_device->Apply(device_buffers, stream));

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda_support.h"
#include "kernels/delta.h"

namespace lockstep::kernels {

// Two versions of one tensor's logical stream in device memory, both of tensor.bytes bytes.
struct DeviceDeltaSource {
  DeltaTensor tensor;
  const uint8_t* base = nullptr;
  const uint8_t* target = nullptr;
};

// About a sixteenth of the streams (an eighth for elements of one byte).
size_t MakeDeltaCudaWorkspaceBytes(absl::Span<const DeviceDeltaSource> sources);

// What `body` must hold for any change; most deltas need far less.
uint64_t DeltaBodyBytes(absl::Span<const DeviceDeltaSource> sources);

// Writes every section but the head into `body` and what DownloadDeltaLayout needs into
// `workspace`. Both are aligned to 256 bytes. A body that is too small is not written at all:
// DownloadDeltaLayout says so. InvalidArgument as MakeDeltaLayout.
absl::Status MakeDeltaCuda(absl::Span<const DeviceDeltaSource> sources, void* workspace,
                           uint8_t* body, uint64_t body_bytes, CudaStream stream);

// The layout, on the host. Waits for `stream`. ResourceExhausted names the bytes the body needs.
absl::StatusOr<DeltaLayout> DownloadDeltaLayout(const DeltaRoots& roots,
                                                absl::Span<const DeviceDeltaSource> sources,
                                                const void* workspace, const uint8_t* body,
                                                uint64_t body_bytes, CudaStream stream);

// A checked patch in device memory.
class DeviceDeltaPatch {
 public:
  // Waits for `stream`; `patch` may go then.
  static absl::StatusOr<DeviceDeltaPatch> Upload(const DeltaPatch& patch, CudaStream stream);

  // Overwrites `buffers`, device memory, parallel to the patch's tensors and of their lengths, in
  // place. InvalidArgument, and nothing written, when their number or a length differs.
  absl::Status Apply(absl::Span<const absl::Span<uint8_t>> buffers, CudaStream stream) const;

 private:
  DeviceDeltaPatch() = default;

  std::vector<uint64_t> tensor_bytes_;
  std::vector<uint64_t> page_ends_;  // changed pages up to and with each tensor
  DeviceBuffer body_;
  DeviceBuffer pages_;
};

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_DELTA_CUDA_H_
