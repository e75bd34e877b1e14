#ifndef LOCKSTEP_KERNELS_GDN_CP_CUDA_H_
#define LOCKSTEP_KERNELS_GDN_CP_CUDA_H_

// The CUDA twins of gdn_cp.h (cuda_support.h states what holds for every twin).
//
// Example, one rank of a group:
//   const size_t bytes = GdnCpRankCudaWorkspaceBytes(params, exchange.rank(), exchange.size());
//   LOCKSTEP_RETURN_IF_ERROR(GdnCpRankCuda(params, exchange, workspace, stream));

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/cuda_support.h"
#include "kernels/gdn_cp.h"

namespace lockstep::kernels {

// 0 when the split is refused.
size_t GdnCpRankCudaWorkspaceBytes(const GdnCpParams& params, int rank, int cp);

// `exchange` moves device memory and enqueues on `stream`. The relay waits for `stream` at each
// boundary: a receipt's digest is made and checked on the host before anything is computed from
// the state. `workspace` is aligned to 256 bytes.
absl::Status GdnCpRankCuda(const GdnCpParams& params, CpExchange& exchange, void* workspace,
                           CudaStream stream);

// All ranks as threads of this process on one device; `whole` holds the whole document in its
// memory. Waits for `stream` first; everything is done on return. Allocates each rank's memory.
absl::Status GdnCpSimulatedCuda(const GdnParams& whole, GdnCpProgram program, int cp, int device,
                                CudaStream stream);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_GDN_CP_CUDA_H_
