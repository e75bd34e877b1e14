#ifndef LOCKSTEP_KERNELS_MOE_CUDA_H_
#define LOCKSTEP_KERNELS_MOE_CUDA_H_

// The CUDA twins of moe.h: same bytes, device pointers, a stream (cuda_support.h states what holds
// for every twin).
//
// Example:
//   LOCKSTEP_RETURN_IF_ERROR(MoeLeafCuda(leaf, stream));
//   LOCKSTEP_RETURN_IF_ERROR(MoeFoldCuda(fold, stream));

#include "absl/status/status.h"
#include "kernels/cuda_support.h"
#include "kernels/moe.h"

namespace lockstep::kernels {

absl::Status MoeLeafCuda(const MoeLeafParams& params, CudaStream stream);
absl::Status MoeFoldCuda(const MoeFoldParams& params, CudaStream stream);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_MOE_CUDA_H_
