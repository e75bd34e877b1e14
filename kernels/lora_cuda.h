#ifndef LOCKSTEP_KERNELS_LORA_CUDA_H_
#define LOCKSTEP_KERNELS_LORA_CUDA_H_

// The CUDA twins of lora.h: same bytes, device pointers, a stream, a workspace (cuda_support.h
// states what holds for every twin). A workspace of 0 bytes may be nullptr.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(DeviceBuffer workspace,
//                             DeviceBuffer::Allocate(LoraMlpCudaWorkspaceBytes(p)));
//   LOCKSTEP_RETURN_IF_ERROR(LoraMlpCuda(p, &silu_on_device, workspace.data(), stream));

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda_support.h"
#include "kernels/gate_table_cuda.h"
#include "kernels/lora.h"

namespace lockstep::kernels {

// The BF16 view of float32 masters.
absl::Status ViewAsBf16Cuda(const float* masters, int64_t count, uint16_t* view, CudaStream stream);

// Workspace sizes are those of valid params.
size_t LoraLinearCudaWorkspaceBytes(const LoraLinearParams& params);
absl::Status LoraLinearCuda(const LoraLinearParams& params, void* workspace, CudaStream stream);

// `silu` as for SwigluCuda.
size_t LoraMlpCudaWorkspaceBytes(const LoraMlpParams& params);
absl::Status LoraMlpCuda(const LoraMlpParams& params, const DeviceGateTable* silu, void* workspace,
                         CudaStream stream);

size_t LoraMergeCudaWorkspaceBytes(const LoraMergeParams& params);
absl::Status LoraMergeCuda(const LoraMergeParams& params, void* workspace, CudaStream stream);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_LORA_CUDA_H_
