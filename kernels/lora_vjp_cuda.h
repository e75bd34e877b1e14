#ifndef LOCKSTEP_KERNELS_LORA_VJP_CUDA_H_
#define LOCKSTEP_KERNELS_LORA_VJP_CUDA_H_

// The CUDA twin of lora_vjp.h: same bytes, device pointers, a stream, a workspace (cuda_support.h
// states what holds for every twin).
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(DeviceBuffer workspace,
//                             DeviceBuffer::Allocate(LoraMlpVjpCudaWorkspaceBytes(p)));
//   LOCKSTEP_RETURN_IF_ERROR(LoraMlpVjpCuda(p, workspace.data(), stream));

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/cuda_support.h"
#include "kernels/lora_vjp.h"

namespace lockstep::kernels {

// Of valid params.
size_t LoraMlpVjpCudaWorkspaceBytes(const LoraMlpVjpParams& params);

absl::Status LoraMlpVjpCuda(const LoraMlpVjpParams& params, void* workspace, CudaStream stream);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_LORA_VJP_CUDA_H_
