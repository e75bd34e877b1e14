#ifndef LOCKSTEP_KERNELS_GDN_ENGINE_CUDA_H_
#define LOCKSTEP_KERNELS_GDN_ENGINE_CUDA_H_

// The device's side of gdn_engine.h, for all value heads at once. Unchecked: gdn_cuda.h and
// gdn_cp_cuda.h are the doors.
//
// Example:
//   GdnDeviceEngine engine(params, params.tokens, false, workspace, stream);
//   LOCKSTEP_RETURN_IF_ERROR(engine.Chunks(0, params.tokens, params.state));

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda_support.h"
#include "kernels/gdn.h"
#include "kernels/gdn_work_cuda.h"

namespace lockstep::kernels {

class GdnDeviceEngine {
 public:
  // For runs of at most `most_tokens` tokens; `with_maps` when Affine is called.
  static size_t WorkspaceBytes(const GdnParams& params, int64_t most_tokens, bool with_maps);

  // Pointers of `params` and `workspace` (WorkspaceBytes of the same) must outlive what is
  // enqueued.
  GdnDeviceEngine(const GdnParams& params, int64_t most_tokens, bool with_maps, void* workspace,
                  CudaStream stream);

  // One head's map: M [K, K], then b [K, V].
  static size_t MapFloats(const GdnParams& params) {
    return static_cast<size_t>(params.key_dim * (params.key_dim + params.value_dim));
  }
  static size_t StateFloats(const GdnParams& params) {
    return static_cast<size_t>(params.value_heads * params.key_dim * params.value_dim);
  }

  // Tokens [first, first + count) of the params' tensors, from and to `state` of all heads.
  absl::Status Chunks(int64_t first, int64_t count, float* state);
  absl::Status Recurrence(int64_t first, int64_t count, float* state);

  // The run as a map of its start state: `maps` holds MapFloats of each head. `spare` is as large
  // and is overwritten.
  absl::Status Affine(int64_t first, int64_t count, float* maps, float* spare);

  // to = M * from + b for all heads; `to` is not `from`.
  absl::Status Advance(const float* maps, const float* from, float* to);

 private:
  GdnDims dims_;
  GdnWork work_;
  CudaStream stream_;
};

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_GDN_ENGINE_CUDA_H_
