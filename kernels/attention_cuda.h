#ifndef LOCKSTEP_KERNELS_ATTENTION_CUDA_H_
#define LOCKSTEP_KERNELS_ATTENTION_CUDA_H_

// The CUDA twin of attention.h: same bytes, device pointers, a stream, a workspace (cuda_support.h
// states what holds for every twin). The workspace holds the scores of a block of queries, at most
// about 512 MiB where one query's fit into that.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(DeviceBuffer workspace,
//                             DeviceBuffer::Allocate(SoftmaxAttentionCudaWorkspaceBytes(p)));
//   LOCKSTEP_RETURN_IF_ERROR(SoftmaxAttentionCuda(p, workspace.data(), stream));

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/attention.h"
#include "kernels/cuda_support.h"

namespace lockstep::kernels {

// Of valid params.
size_t SoftmaxAttentionCudaWorkspaceBytes(const AttentionParams& params);

absl::Status SoftmaxAttentionCuda(const AttentionParams& params, void* workspace,
                                  CudaStream stream);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_ATTENTION_CUDA_H_
