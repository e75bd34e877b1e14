#ifndef LOCKSTEP_KERNELS_GDN_CUDA_H_
#define LOCKSTEP_KERNELS_GDN_CUDA_H_

// The CUDA twin of gdn.h (cuda_support.h states what holds for every twin).
//
// Example:
//   absl::StatusOr<DeviceBuffer> workspace =
//       DeviceBuffer::Allocate(GdnCudaWorkspaceBytes(params));
//   LOCKSTEP_RETURN_IF_ERROR(GdnCuda(params, workspace->data(), stream));

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/cuda_support.h"
#include "kernels/gdn.h"

namespace lockstep::kernels {

// Of any params; at least 1. It grows with heads and dims, and with tokens up to 2,048.
size_t GdnCudaWorkspaceBytes(const GdnParams& params);

// `workspace` is aligned to 256 bytes.
absl::Status GdnCuda(const GdnParams& params, void* workspace, CudaStream stream);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_GDN_CUDA_H_
