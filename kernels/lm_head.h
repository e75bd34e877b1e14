#ifndef LOCKSTEP_KERNELS_LM_HEAD_H_
#define LOCKSTEP_KERNELS_LM_HEAD_H_

// Exact log-probability of a selected token, `lm_head/selected_logprob@v1`
// (kernels/SPECIFICATION.md, "LM head"), whole or with the vocabulary sharded over ranks.
// The bytes depend neither on the sharding nor on the batch or the threads.
//
// Example (one rank):
//   LmHeadParams p;
//   p.rows = tokens, p.hidden_size = hidden, p.vocab = vocab;
//   p.hidden = h, p.weight = w, p.tokens = ids, p.logprob = out;
//   LOCKSTEP_RETURN_IF_ERROR(SelectedLogprob(p));
//
// Example (two ranks; every rank ends with all tiles and the selected logits, then merges):
//   LOCKSTEP_RETURN_IF_ERROR(LmHeadShard(shard_0));   // on rank 0
//   LOCKSTEP_RETURN_IF_ERROR(LmHeadShard(shard_1));   // on rank 1
//   LOCKSTEP_RETURN_IF_ERROR(LmHeadMerge(merge));     // after the exchange

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/types.h"

namespace lockstep::kernels {

inline constexpr char kLmHeadId[] = "lm_head/selected_logprob@v1";

// Vocabulary entries of one tile; the last tile may be short.
inline constexpr int64_t kLmHeadTile = 128;

constexpr int64_t LmHeadTiles(int64_t vocab) { return (vocab + kLmHeadTile - 1) / kLmHeadTile; }

// What a tile contributes to a row's log-sum-exp: its largest logit and the sum of
// exp(logit - max). Both are the canonical NaN when the tile's sum is one.
struct LmHeadTileStat {
  float max;
  float sum;
};

struct LmHeadParams {
  FloatType operand_type = FloatType::kBf16;  // of hidden and weight: BF16 or F16
  int64_t rows = 0;
  int64_t hidden_size = 0;
  int64_t vocab = 0;
  const void* hidden = nullptr;     // [rows, hidden_size]
  const void* weight = nullptr;     // [vocab, hidden_size]
  const int64_t* tokens = nullptr;  // [rows], each in [0, vocab)
  float* logprob = nullptr;         // [rows]
  int threads = 1;
};

// InvalidArgument for a size below 1, a null pointer, an unsupported type or a token out of range.
absl::Status SelectedLogprob(const LmHeadParams& params);

// One rank's part: rows [vocab_begin, vocab_begin + shard_vocab) of the weight.
struct LmHeadShardParams {
  FloatType operand_type = FloatType::kBf16;
  int64_t rows = 0;
  int64_t hidden_size = 0;
  int64_t vocab = 0;                   // of all shards together
  int64_t vocab_begin = 0;             // a multiple of kLmHeadTile
  int64_t shard_vocab = 0;             // a multiple of kLmHeadTile, but where the vocabulary ends
  const void* hidden = nullptr;        // [rows, hidden_size]
  const void* shard_weight = nullptr;  // [shard_vocab, hidden_size]
  const int64_t* tokens = nullptr;     // [rows], ids in the whole vocabulary
  LmHeadTileStat* tiles = nullptr;     // [rows, LmHeadTiles(shard_vocab)]
  int64_t tiles_row_stride = 0;        // 0 means contiguous
  float* selected_logit = nullptr;     // [rows]; written where the shard owns the row's token
  int threads = 1;
};
absl::Status LmHeadShard(const LmHeadShardParams& params);

// All shards' tiles in vocabulary order, and each row's selected logit from the shard that owns it.
struct LmHeadMergeParams {
  int64_t rows = 0;
  int64_t vocab = 0;
  const LmHeadTileStat* tiles = nullptr;  // [rows, LmHeadTiles(vocab)]
  const float* selected_logit = nullptr;  // [rows]
  float* logprob = nullptr;               // [rows]
  int threads = 1;
};
absl::Status LmHeadMerge(const LmHeadMergeParams& params);

// The errors alone, but for those of the tokens' values; the CUDA twin refuses the same.
absl::Status CheckLmHeadShard(const LmHeadShardParams& params);
absl::Status CheckLmHeadMerge(const LmHeadMergeParams& params);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_LM_HEAD_H_
