#ifndef LOCKSTEP_KERNELS_SHORT_CONV_ENGINE_CUDA_H_
#define LOCKSTEP_KERNELS_SHORT_CONV_ENGINE_CUDA_H_

// The launches of the short convolution. Unchecked: short_conv_cuda.h is the door.
//
// Example:
//   LOCKSTEP_RETURN_IF_ERROR(LaunchShortConv(p, halo, first, count, stream));

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda_support.h"
#include "kernels/short_conv.h"

namespace lockstep::kernels {

// Tokens [first, first + count) of the params' tensors, after `halo` [3, D]; nullptr is zeros.
absl::Status LaunchShortConv(const ShortConvParams& params, const void* halo, int64_t first,
                             int64_t count, CudaStream stream);

// next = the last 3 rows of `halo` (nullptr is zeros) and `count` more at `rows`; `next` may be
// `halo`.
absl::Status LaunchNextHalo(const ShortConvParams& params, const void* halo, const void* rows,
                            int64_t count, void* next, CudaStream stream);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_SHORT_CONV_ENGINE_CUDA_H_
