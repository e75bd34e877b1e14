#ifndef LOCKSTEP_KERNELS_RMSNORM_CUDA_H_
#define LOCKSTEP_KERNELS_RMSNORM_CUDA_H_

// The CUDA twin of rmsnorm.h: same bytes, device pointers, a stream (cuda_support.h states what
// holds for every twin). A block holds a row of up to 16,384 columns in registers; longer ones are
// read twice. split_columns is checked and changes nothing.
//
// Example:
//   LOCKSTEP_RETURN_IF_ERROR(RmsNormCuda(params, stream));

#include "absl/status/status.h"
#include "kernels/cuda_support.h"
#include "kernels/rmsnorm.h"

namespace lockstep::kernels {

absl::Status RmsNormCuda(const RmsNormParams& params, CudaStream stream);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_RMSNORM_CUDA_H_
