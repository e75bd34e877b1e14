#ifndef LOCKSTEP_KERNELS_CUDA_LAUNCH_H_
#define LOCKSTEP_KERNELS_CUDA_LAUNCH_H_

// Launching a kernel with its error as a status; for .cu files alone.
//
// Example:
//   return Launch("rmsnorm", RmsNormKernel<4>, {blocks, 256, shared_bytes, stream}, params);

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda_support.h"

namespace lockstep::kernels {

struct LaunchShape {
  dim3 blocks;
  dim3 threads;
  size_t shared_bytes = 0;  // dynamic; more than 48 KiB is asked for before the launch
  CudaStream stream = nullptr;
};

inline constexpr size_t kDefaultSharedBytes = 48 * 1024;

// The launch's own error, whatever other threads and earlier calls left behind.
template <class... Params, class... Args>
absl::Status Launch(const char* what, void (*kernel)(Params...), const LaunchShape& shape,
                    Args... args) {
  if (shape.shared_bytes > kDefaultSharedBytes) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
    if (error != cudaSuccess) return CudaStatus(error, what);
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.blocks;
  config.blockDim = shape.threads;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = shape.stream;
  return CudaStatus(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...), what);
}

// An attribute of the calling thread's device.
inline absl::StatusOr<int> DeviceAttribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&value, attribute, device);
  if (error != cudaSuccess) return CudaStatus(error, "reading the device's size");
  return value;
}

inline absl::StatusOr<int> Multiprocessors() {
  return DeviceAttribute(cudaDevAttrMultiProcessorCount);
}

// Static and dynamic shared memory that one block may have.
inline absl::StatusOr<int> BlockSharedBytes() {
  return DeviceAttribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
}

inline unsigned DivideUp(int64_t amount, int64_t unit) {
  return static_cast<unsigned>((amount + unit - 1) / unit);
}

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_CUDA_LAUNCH_H_
