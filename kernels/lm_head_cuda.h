#ifndef LOCKSTEP_KERNELS_LM_HEAD_CUDA_H_
#define LOCKSTEP_KERNELS_LM_HEAD_CUDA_H_

// The CUDA twins of lm_head.h: same bytes, device pointers (tokens too), a stream, a workspace
// (cuda_support.h states what holds for every twin). A token outside the vocabulary is not seen
// before the kernels run: SelectedLogprobCuda then writes NaN for its row, and LmHeadShardCuda
// leaves the row's selected logit unwritten, as it does where another shard owns the token.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(DeviceBuffer workspace,
//                             DeviceBuffer::Allocate(SelectedLogprobCudaWorkspaceBytes(p)));
//   LOCKSTEP_RETURN_IF_ERROR(SelectedLogprobCuda(p, workspace.data(), stream));

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/cuda_support.h"
#include "kernels/lm_head.h"

namespace lockstep::kernels {

size_t SelectedLogprobCudaWorkspaceBytes(const LmHeadParams& params);
absl::Status SelectedLogprobCuda(const LmHeadParams& params, void* workspace, CudaStream stream);

size_t LmHeadShardCudaWorkspaceBytes(const LmHeadShardParams& params);
absl::Status LmHeadShardCuda(const LmHeadShardParams& params, void* workspace, CudaStream stream);

size_t LmHeadMergeCudaWorkspaceBytes(const LmHeadMergeParams& params);
absl::Status LmHeadMergeCuda(const LmHeadMergeParams& params, void* workspace, CudaStream stream);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_LM_HEAD_CUDA_H_
