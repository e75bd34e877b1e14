#ifndef LOCKSTEP_KERNELS_SHORT_CONV_CUDA_H_
#define LOCKSTEP_KERNELS_SHORT_CONV_CUDA_H_

// The CUDA twins of short_conv.h (cuda_support.h states what holds for every twin).
//
// Example:
//   LOCKSTEP_RETURN_IF_ERROR(ShortConvCuda(params, stream));

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda_support.h"
#include "kernels/short_conv.h"

namespace lockstep::kernels {

absl::Status ShortConvCuda(const ShortConvParams& params, CudaStream stream);

// Of one rank; at least 1. 0 when the split is refused.
size_t ShortConvCpRankCudaWorkspaceBytes(const ShortConvParams& local, GdnCpProgram split,
                                         int64_t document_tokens, int cp);

// `exchange` moves device memory and enqueues on `stream`.
absl::Status ShortConvCpRankCuda(const ShortConvParams& local, GdnCpProgram split,
                                 int64_t document_tokens, CpExchange& exchange, void* workspace,
                                 CudaStream stream);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_SHORT_CONV_CUDA_H_
