#include "kernels/lm_head.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/exact_math.h"
#include "kernels/float_formats.h"
#include "kernels/fp_environment.h"
#include "kernels/gemm_engine.h"
#include "kernels/lm_head_stat.h"
#include "kernels/parallel.h"

namespace lockstep::kernels {
namespace {

// A thread's logits are made this many tiles and rows at a time; changes no byte.
constexpr size_t kGroupTiles = 8;
constexpr size_t kGroupRows = 120;

// In ascending order; of equal logits (zeros of both signs) the first is the maximum.
LmHeadTileStat TileStat(const float* logits, size_t count) {
  float max = logits[0];
  for (size_t i = 1; i < count; ++i) max = logits[i] > max ? logits[i] : max;
  float sum = 0.0f;
  for (size_t i = 0; i < count; ++i) sum = sum + ExpF32(logits[i] - max);
  return MakeTileStat(max, sum);
}

// Tiles [tile_begin, tile_end) of the shard for rows [row_begin, row_begin + rows).
void GroupStats(const LmHeadShardParams& p, size_t tile_begin, size_t tile_end, size_t row_begin,
                size_t rows, std::vector<float>& logits) {
  const size_t hidden = static_cast<size_t>(p.hidden_size);
  const size_t begin = tile_begin * kLmHeadTile;
  const size_t columns =
      std::min(tile_end * kLmHeadTile, static_cast<size_t>(p.shard_vocab)) - begin;
  const size_t element = SizeOf(p.operand_type);
  ChainProduct product;
  product.a = {static_cast<const char*>(p.hidden) + row_begin * hidden * element, p.operand_type,
               hidden, 1};
  product.b = {static_cast<const char*>(p.shard_weight) + begin * hidden * element, p.operand_type,
               hidden, 1};
  product.m = rows, product.n = columns, product.k = hidden;
  product.out = logits.data(), product.out_row_stride = columns;
  RunChainProduct(product);
  const size_t stride = static_cast<size_t>(p.tiles_row_stride == 0 ? LmHeadTiles(p.shard_vocab)
                                                                    : p.tiles_row_stride);
  for (size_t r = 0; r < rows; ++r) {
    const float* row = logits.data() + r * columns;
    for (size_t tile = tile_begin; tile < tile_end; ++tile) {
      const size_t at = tile * kLmHeadTile - begin;
      p.tiles[(row_begin + r) * stride + tile] =
          TileStat(row + at, std::min<size_t>(kLmHeadTile, columns - at));
    }
    const int64_t selected = p.tokens[row_begin + r] - p.vocab_begin - static_cast<int64_t>(begin);
    if (selected >= 0 && selected < static_cast<int64_t>(columns)) {
      p.selected_logit[row_begin + r] = row[selected];
    }
  }
}

absl::Status CheckTokens(const int64_t* tokens, int64_t rows, int64_t vocab) {
  for (int64_t r = 0; r < rows; ++r) {
    if (tokens[r] < 0 || tokens[r] >= vocab) {
      return absl::InvalidArgumentError(absl::StrCat("lm_head: expected tokens in [0, V=", vocab,
                                                     "), got ", tokens[r], " at row ", r));
    }
  }
  return absl::OkStatus();
}

float MergeRow(const LmHeadTileStat* tiles, size_t count, float selected,
               std::vector<LmHeadTileStat>& nodes) {
  nodes.assign(tiles, tiles + count);
  while (count > 1) {
    const size_t pairs = count / 2;
    for (size_t i = 0; i < pairs; ++i) nodes[i] = MergeTileStats(nodes[2 * i], nodes[2 * i + 1]);
    if (count % 2 == 1) nodes[pairs] = nodes[count - 1];
    count = pairs + count % 2;
  }
  return LogprobOf(selected, nodes[0]);
}

}  // namespace

absl::Status CheckLmHeadShard(const LmHeadShardParams& p) {
  if (p.operand_type != FloatType::kBf16 && p.operand_type != FloatType::kF16) {
    return absl::InvalidArgumentError(absl::StrCat(
        "lm_head: expected hidden and weight as BF16 or F16, got ", Name(p.operand_type)));
  }
  if (p.rows < 1 || p.hidden_size < 1 || p.vocab < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "lm_head: expected hidden [T,H] and weight [V,H] with T, H and V of at least 1, got T=",
        p.rows, " H=", p.hidden_size, " V=", p.vocab));
  }
  if (p.vocab_begin < 0 || p.vocab_begin % kLmHeadTile != 0 || p.shard_vocab < 1 ||
      p.shard_vocab > p.vocab - p.vocab_begin ||
      (p.shard_vocab % kLmHeadTile != 0 && p.vocab_begin + p.shard_vocab != p.vocab)) {
    return absl::InvalidArgumentError(absl::StrCat("lm_head: expected a shard cut at multiples of ",
                                                   kLmHeadTile, " within V=", p.vocab, ", got ",
                                                   p.shard_vocab, " rows from ", p.vocab_begin));
  }
  if (p.tiles_row_stride != 0 && p.tiles_row_stride < LmHeadTiles(p.shard_vocab)) {
    return absl::InvalidArgumentError(
        absl::StrCat("lm_head: expected tiles_row_stride 0 or at least ",
                     LmHeadTiles(p.shard_vocab), ", got ", p.tiles_row_stride));
  }
  if (p.hidden == nullptr || p.shard_weight == nullptr || p.tokens == nullptr ||
      p.tiles == nullptr || p.selected_logit == nullptr) {
    return absl::InvalidArgumentError(
        "lm_head: expected non-null hidden, weight, tokens and outputs");
  }
  return CheckFpEnvironment();
}

absl::Status CheckLmHeadMerge(const LmHeadMergeParams& p) {
  if (p.rows < 1 || p.vocab < 1 || p.tiles == nullptr || p.selected_logit == nullptr ||
      p.logprob == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "lm_head: expected T and V of at least 1 and non-null tiles, selected logits and output, "
        "got T=",
        p.rows, " V=", p.vocab));
  }
  return CheckFpEnvironment();
}

absl::Status LmHeadShard(const LmHeadShardParams& p) {
  if (absl::Status status = CheckLmHeadShard(p); !status.ok()) return status;
  if (absl::Status status = CheckTokens(p.tokens, p.rows, p.vocab); !status.ok()) return status;
  const size_t tiles = static_cast<size_t>(LmHeadTiles(p.shard_vocab));
  const size_t rows = static_cast<size_t>(p.rows);
  ParallelFor((tiles + kGroupTiles - 1) / kGroupTiles, p.threads, [&](size_t begin, size_t end) {
    std::vector<float> logits(std::min(kGroupRows, rows) * kGroupTiles * kLmHeadTile);
    for (size_t group = begin; group < end; ++group) {
      const size_t tile_begin = group * kGroupTiles;
      for (size_t row = 0; row < rows; row += kGroupRows) {
        GroupStats(p, tile_begin, std::min(tile_begin + kGroupTiles, tiles), row,
                   std::min(kGroupRows, rows - row), logits);
      }
    }
  });
  return absl::OkStatus();
}

absl::Status LmHeadMerge(const LmHeadMergeParams& p) {
  if (absl::Status status = CheckLmHeadMerge(p); !status.ok()) return status;
  const size_t tiles = static_cast<size_t>(LmHeadTiles(p.vocab));
  ParallelFor(static_cast<size_t>(p.rows), p.threads, [&](size_t begin, size_t end) {
    std::vector<LmHeadTileStat> nodes;
    for (size_t r = begin; r < end; ++r) {
      p.logprob[r] = MergeRow(p.tiles + r * tiles, tiles, p.selected_logit[r], nodes);
    }
  });
  return absl::OkStatus();
}

absl::Status SelectedLogprob(const LmHeadParams& p) {
  if (p.rows < 1 || p.vocab < 1 || p.logprob == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "lm_head: expected T and V of at least 1 and a non-null logprob, got T=", p.rows,
        " V=", p.vocab));
  }
  std::vector<LmHeadTileStat> tiles(static_cast<size_t>(p.rows * LmHeadTiles(p.vocab)));
  std::vector<float> selected(static_cast<size_t>(p.rows));
  LmHeadShardParams shard;
  shard.operand_type = p.operand_type;
  shard.rows = p.rows, shard.hidden_size = p.hidden_size;
  shard.vocab = shard.shard_vocab = p.vocab;
  shard.hidden = p.hidden, shard.shard_weight = p.weight, shard.tokens = p.tokens;
  shard.tiles = tiles.data(), shard.selected_logit = selected.data();
  shard.threads = p.threads;
  if (absl::Status status = LmHeadShard(shard); !status.ok()) return status;
  LmHeadMergeParams merge;
  merge.rows = p.rows, merge.vocab = p.vocab;
  merge.tiles = tiles.data(), merge.selected_logit = selected.data();
  merge.logprob = p.logprob, merge.threads = p.threads;
  return LmHeadMerge(merge);
}

}  // namespace lockstep::kernels
