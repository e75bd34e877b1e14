#ifndef LOCKSTEP_KERNELS_SWIGLU_CUDA_H_
#define LOCKSTEP_KERNELS_SWIGLU_CUDA_H_

// The CUDA twins of swiglu.h: same bytes, device pointers, a stream (cuda_support.h states what
// holds for every twin).
//
// Example:
//   SwigluParams p;
//   p.rows = tokens, p.columns = intermediate;
//   p.SetPackedGateUp(gate_up_on_device);
//   p.out = out_on_device;
//   LOCKSTEP_RETURN_IF_ERROR(SwigluCuda(p, &silu_on_device, stream));

#include "absl/status/status.h"
#include "kernels/cuda_support.h"
#include "kernels/gate_table_cuda.h"
#include "kernels/swiglu.h"

namespace lockstep::kernels {

// `silu` is the realisation's table on the device; nullptr computes silu/ieee@v1, which is slower.
// params.silu is null or the table that `silu` is the copy of.
absl::Status SwigluCuda(const SwigluParams& params, const DeviceGateTable* silu, CudaStream stream);

// `sigmoid` likewise.
absl::Status SwigluVjpCuda(const SwigluVjpParams& params, const DeviceGateTable* sigmoid,
                           CudaStream stream);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_SWIGLU_CUDA_H_
