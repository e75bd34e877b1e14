#ifndef LOCKSTEP_KERNELS_LAYER_WEIGHTS_H_
#define LOCKSTEP_KERNELS_LAYER_WEIGHTS_H_

// What the whole-layer programs share: weights by role, how a batch's documents lie in packed
// rows, an observer of every stored intermediate, and the matrix product that all projections are.
//
// Example:
//   LayerRun run;
//   run.document_tokens = {13, 13, 9};   // 35 packed rows
//   run.threads = 8;
//   run.observe = [&](absl::string_view component, const LayerTensor& t) { digest(component, t); };

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/gate_table.h"
#include "kernels/types.h"

namespace lockstep::kernels {

// One dense tensor, borrowed; the memory lives as long as the layer is run. `data` is aligned to
// its type.
struct LayerWeight {
  FloatType type = FloatType::kBf16;
  const void* data = nullptr;
  int64_t elements = 0;

  const uint16_t* bf16() const { return static_cast<const uint16_t*>(data); }
};

// A stored intermediate [rows, columns].
struct LayerTensor {
  FloatType type = FloatType::kBf16;
  int64_t rows = 0;
  int64_t columns = 0;
  const void* data = nullptr;
};

using LayerObserver = std::function<void(absl::string_view component, const LayerTensor& tensor)>;

// How a layer runs. None of it but `silu` changes a byte.
struct LayerRun {
  absl::Span<const int64_t> document_tokens;  // each at least 1; rows of a batch, back to back
  const GateTable* silu = nullptr;            // BF16 table of the MLPs' SiLU; null: silu/ieee@v1
  LayerObserver observe;                      // optional
  int threads = 1;

  int64_t rows() const;
  // Tells the observer, if there is one.
  void Observe(absl::string_view component, FloatType type, int64_t rows, int64_t columns,
               const void* data) const;
};

// InvalidArgument unless there is a document and each has a token.
absl::Status CheckLayerRun(const LayerRun& run);

// InvalidArgument, naming `op` and `role`, unless the weight has `elements` elements and is BF16,
// or F32 where `f32_too`.
absl::Status CheckLayerWeight(absl::string_view op, absl::string_view role,
                              const LayerWeight& weight, int64_t elements, bool f32_too = false);

// out [rows, n] BF16 = x [rows, k] BF16 times weight [n, k] transposed, `gemm/k_chain@v1`.
// Strides in elements, 0 contiguous.
struct Projection {
  int64_t rows = 0;
  int64_t n = 0;
  int64_t k = 0;
  const uint16_t* x = nullptr;
  const uint16_t* weight = nullptr;
  int64_t weight_row_stride = 0;
  FloatType out_type = FloatType::kBf16;  // F32: the sums, unrounded
  void* out = nullptr;
  int threads = 1;
};
absl::Status Project(const Projection& projection);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_LAYER_WEIGHTS_H_
