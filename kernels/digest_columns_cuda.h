#ifndef LOCKSTEP_KERNELS_DIGEST_COLUMNS_CUDA_H_
#define LOCKSTEP_KERNELS_DIGEST_COLUMNS_CUDA_H_

// Views whose neighbours in memory are not neighbours in the stream: a transposed weight. Reading
// it in the stream's order would fetch a whole sector for each element.
//
// Example:
//   if (FitsDigestColumns(plan, buffer)) {
//     return LaunchDigestColumns(plan, buffer, keys, sums, stream);
//   }

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/box_view.h"
#include "kernels/cuda_support.h"
#include "kernels/digest.h"

namespace lockstep::kernels {

// Whether some loop around the runs walks memory element by element, and all is aligned.
bool FitsDigestColumns(const RunPlan& plan, const uint8_t* buffer);

// Adds the box to `sums`.
absl::Status LaunchDigestColumns(const RunPlan& plan, const uint8_t* buffer, const uint32_t* keys,
                                 PageSum* sums, CudaStream stream);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_DIGEST_COLUMNS_CUDA_H_
