#ifndef LOCKSTEP_KERNELS_ROUTER_TOPK_CUDA_H_
#define LOCKSTEP_KERNELS_ROUTER_TOPK_CUDA_H_

// The CUDA twin of router_topk.h: same bytes, device pointers, a stream (cuda_support.h states what
// holds for every twin).
//
// Example:
//   LOCKSTEP_RETURN_IF_ERROR(RouterTopkCuda(params, stream));

#include "absl/status/status.h"
#include "kernels/cuda_support.h"
#include "kernels/router_topk.h"

namespace lockstep::kernels {

absl::Status RouterTopkCuda(const RouterTopkParams& params, CudaStream stream);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_ROUTER_TOPK_CUDA_H_
