#ifndef LOCKSTEP_KERNELS_ATTENTION_H_
#define LOCKSTEP_KERNELS_ATTENTION_H_

// Exact causal softmax attention of one request, `softmax_attention/k_ascending@v1`
// (kernels/SPECIFICATION.md, "Attention"): maximum first, then exponentials and values in
// ascending key order, with grouped key/value heads. A query's bytes depend on itself and its own
// keys alone: prefill whole, prefill in chunks and decoding one by one agree.
//
// Example (decode one token against a cache of 100 keys, the token's own included):
//   AttentionParams p;
//   p.queries = 1, p.keys = 100;
//   p.query_heads = 16, p.kv_heads = 4, p.head_dim = p.value_dim = 128;
//   p.scale = AttentionScale(128);
//   p.q = q, p.k = k_cache, p.v = v_cache, p.out = out;
//   LOCKSTEP_RETURN_IF_ERROR(SoftmaxAttention(p));

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/types.h"

namespace lockstep::kernels {

inline constexpr char kAttentionId[] = "softmax_attention/k_ascending@v1";

// 1 / sqrt(head_dim), each operation rounded once to float32.
float AttentionScale(int64_t head_dim);

struct AttentionParams {
  FloatType type = FloatType::kBf16;  // of every tensor: BF16 or F16
  int64_t queries = 0;
  int64_t keys = 0;         // at least queries: query t sees keys 0 .. keys - queries + t
  int64_t query_heads = 0;  // a multiple of kv_heads
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  float scale = 0;          // of the scores; finite and > 0
  const void* q = nullptr;  // [queries, query_heads, head_dim]
  const void* k = nullptr;  // [keys, kv_heads, head_dim]
  const void* v = nullptr;  // [keys, kv_heads, value_dim]
  void* out = nullptr;      // [queries, query_heads, value_dim]; overlaps no operand
  // Elements between consecutive tokens; 0 means contiguous. Heads of a token are contiguous.
  int64_t q_row_stride = 0;
  int64_t k_row_stride = 0;
  int64_t v_row_stride = 0;
  int64_t out_row_stride = 0;
  int threads = 1;
};

// InvalidArgument for an unsupported type, a size, stride, scale or pointer out of range.
absl::Status SoftmaxAttention(const AttentionParams& params);

// The errors alone, nothing computed; the CUDA twin refuses the same.
absl::Status CheckAttention(const AttentionParams& params);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_ATTENTION_H_
