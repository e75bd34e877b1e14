#ifndef LOCKSTEP_KERNELS_ROPE_CUDA_H_
#define LOCKSTEP_KERNELS_ROPE_CUDA_H_

// The CUDA twin of RopeNeox: same bytes, device pointers (positions and the table too), a stream
// (cuda_support.h states what holds for every twin). The table is MakeRopeTable's, copied. A
// position outside the table is not seen before the kernel runs: its row becomes NaN.
//
// Example:
//   LOCKSTEP_RETURN_IF_ERROR(RopeNeoxCuda(params, stream));

#include "absl/status/status.h"
#include "kernels/cuda_support.h"
#include "kernels/rope.h"

namespace lockstep::kernels {

absl::Status RopeNeoxCuda(const RopeParams& params, CudaStream stream);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_ROPE_CUDA_H_
