#ifndef LOCKSTEP_KERNELS_GEMM_CUDA_H_
#define LOCKSTEP_KERNELS_GEMM_CUDA_H_

// The CUDA twin of gemm.h: same bytes, device pointers, a stream (cuda_support.h states what holds
// for every twin). Fastest where rows of a and b begin at multiples of 16 bytes.
//
// Example:
//   LOCKSTEP_RETURN_IF_ERROR(GemmCuda(params, stream));

#include "absl/status/status.h"
#include "kernels/cuda_support.h"
#include "kernels/gemm.h"

namespace lockstep::kernels {

absl::Status GemmCuda(const GemmParams& params, CudaStream stream);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_GEMM_CUDA_H_
