#ifndef LOCKSTEP_KERNELS_GDN_H_
#define LOCKSTEP_KERNELS_GDN_H_

// The gated delta net on one document (kernels/SPECIFICATION.md, "Gated delta net"). The two
// programs have different bytes: a contract names one for prefill and one for decoding.
//
// Example:
//   GdnParams p;
//   p.program = GdnProgram::kChunk64;
//   p.tokens = t, p.key_heads = 16, p.value_heads = 32, p.key_dim = p.value_dim = 128;
//   p.q = q, p.k = k, p.v = v, p.g = g, p.beta = beta, p.o = o, p.state = state;
//   if (absl::Status s = Gdn(p); !s.ok()) return s;

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/gdn_engine.h"
#include "kernels/types.h"

namespace lockstep::kernels {

inline constexpr char kGdnRecurrentId[] = "gdn/recurrent@v1";
inline constexpr char kGdnChunk64Id[] = "gdn/chunk64@v1";

inline constexpr int64_t kGdnMaxHeadDim = 1'024;
inline constexpr int64_t kGdnMaxHeads = 65'536;

enum class GdnProgram { kRecurrent, kChunk64 };

// Dense row-major tensors of one document or a run of its tokens. q and k come as projected: the
// programs normalise both and scale q.
struct GdnParams {
  GdnProgram program = GdnProgram::kChunk64;
  int64_t batch = 1;        // anything else is refused: call once per document
  int64_t tokens = 0;       // T, at least 1
  int64_t key_heads = 0;    // Hk; value head h reads key head floor(h * Hk / Hv)
  int64_t value_heads = 0;  // Hv
  int64_t key_dim = 0;      // K
  int64_t value_dim = 0;    // V
  // Tokens of the document before this call: a multiple of 64 for chunk64, whose chunks lie on
  // the document's grid.
  int64_t document_offset = 0;
  FloatType input_type = FloatType::kF32;  // of q, k and v: F32 or BF16
  FloatType gate_type = FloatType::kF32;   // of g and beta: F32 or BF16
  FloatType state_type = FloatType::kF32;  // anything else is refused
  FloatType out_type = FloatType::kF32;    // of o: F32 or BF16
  const void* q = nullptr;                 // [T, Hk, K]
  const void* k = nullptr;                 // [T, Hk, K]
  const void* v = nullptr;                 // [T, Hv, V]
  const void* g = nullptr;                 // [T, Hv], log of the decay
  const void* beta = nullptr;              // [T, Hv]
  const float* s0 = nullptr;               // [Hv, K, V]; nullptr is zeros; may be `state`
  void* o = nullptr;                       // [T, Hv, V]
  float* state = nullptr;                  // [Hv, K, V], the end state
  int threads = 1;
};

// InvalidArgument names what was expected and what came; FailedPrecondition as
// CheckFpEnvironment. Nothing is written then.
absl::Status Gdn(const GdnParams& params);

// What Gdn checks: everything that does not depend on tokens (types, batch, heads, dims, state,
// floating-point environment), the rest, and the program's own condition on the offset.
absl::Status CheckGdnShape(const GdnParams& params);
absl::Status CheckGdnTokens(const GdnParams& params);
absl::Status CheckGdnOnGrid(const GdnParams& params);

// The engine's view of value head `head`, over tokens [first, first + count).
GdnHead GdnHeadOf(const GdnParams& params, int64_t head, int64_t first, int64_t count);

// Calls fn(head, scratch) for each value head, over params.threads threads.
absl::Status ForEachGdnHead(const GdnParams& params,
                            absl::FunctionRef<void(int64_t head, GdnScratch& scratch)> fn);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_GDN_H_
