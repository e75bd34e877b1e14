#include <algorithm>
#include <cstdint>

#include "kernels/cuda_launch.h"
#include "kernels/cuda_workspace.h"
#include "kernels/gemm_engine_cuda.h"
#include "kernels/lm_head_cuda.h"
#include "kernels/lm_head_stat.h"

namespace lockstep::kernels {
namespace {

constexpr int kTile = static_cast<int>(kLmHeadTile);

// Logits are made for this many rows and in so many bytes at a time; changes no byte.
constexpr int64_t kGroupRows = 4096;
constexpr int64_t kGroupBytes = int64_t{256} << 20;

int64_t GroupTiles(const LmHeadShardParams& p) {
  const int64_t rows = std::clamp<int64_t>(p.rows, 1, kGroupRows);
  const int64_t fit = kGroupBytes / (rows * kTile * int64_t{sizeof(float)});
  return std::max<int64_t>(1, std::min(fit, LmHeadTiles(p.shard_vocab)));
}

float* LayShard(const LmHeadShardParams& p, WorkspaceCutter& cut) {
  return cut.Take<float>(std::min(p.rows, kGroupRows) * GroupTiles(p) * kTile);
}

constexpr int kStatThreads = 128;
constexpr int kStatTiles = 64;  // of one block
constexpr int kTilePitch = kTile + 1;

struct StatOperands {
  const float* logits;  // [rows, columns]
  int64_t rows, columns, tiles;
  const int64_t* tokens;  // of these rows
  int64_t vocab_begin;    // of the first column
  LmHeadTileStat* stats;
  int64_t stats_stride;
  float* selected_logit;
};

// Each block reduces kStatTiles tiles of a row or of several: all threads exponentiate, one per
// tile adds up in order.
__global__ void __launch_bounds__(kStatThreads) StatKernel(StatOperands p) {
  __shared__ float tiles[kStatTiles][kTilePitch];
  __shared__ float maxima[kStatTiles];
  const int64_t first = int64_t{blockIdx.x} * kStatTiles;
  const int count = static_cast<int>(min(int64_t{kStatTiles}, p.rows * p.tiles - first));
  const auto width = [&](int64_t tile) {
    return static_cast<int>(min(int64_t{kTile}, p.columns - tile * kTile));
  };
  for (int i = static_cast<int>(threadIdx.x); i < count * kTile; i += kStatThreads) {
    const int64_t pair = first + i / kTile;
    const int64_t tile = pair % p.tiles;
    if (i % kTile < width(tile)) {
      tiles[i / kTile][i % kTile] = p.logits[pair / p.tiles * p.columns + tile * kTile + i % kTile];
    }
  }
  __syncthreads();
  const int own = static_cast<int>(threadIdx.x);
  const int64_t own_row = (first + own) / p.tiles;
  const int64_t own_tile = (first + own) % p.tiles;
  if (own < count) {
    float max = tiles[own][0];
    for (int i = 1; i < width(own_tile); ++i) max = tiles[own][i] > max ? tiles[own][i] : max;
    maxima[own] = max;
    const int64_t selected = p.tokens[own_row] - p.vocab_begin - own_tile * kTile;
    if (selected >= 0 && selected < width(own_tile)) {
      p.selected_logit[own_row] = tiles[own][selected];
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < count * kTile; i += kStatThreads) {
    if (i % kTile < width((first + i / kTile) % p.tiles)) {
      tiles[i / kTile][i % kTile] = ExpF32(tiles[i / kTile][i % kTile] - maxima[i / kTile]);
    }
  }
  __syncthreads();
  if (own < count) {
    float sum = 0.0f;
    for (int i = 0; i < width(own_tile); ++i) sum = sum + tiles[own][i];
    p.stats[own_row * p.stats_stride + own_tile] = MakeTileStat(maxima[own], sum);
  }
}

// One level of a row's tree lies in one half of the scratch, the next in the other.
struct MergeScratch {
  LmHeadTileStat* nodes;  // [rows, 2, half]
  int64_t half;
};

MergeScratch LayMerge(const LmHeadMergeParams& p, WorkspaceCutter& cut) {
  const int64_t half = (LmHeadTiles(p.vocab) + 1) / 2;
  return {cut.Take<LmHeadTileStat>(p.rows * 2 * half), half};
}

constexpr int kMergeThreads = 256;

__global__ void __launch_bounds__(kMergeThreads)
    MergeKernel(const LmHeadTileStat* tiles, int64_t count, const float* selected_logit,
                MergeScratch scratch, float* logprob) {
  const int64_t row = blockIdx.x;
  const LmHeadTileStat* from = tiles + row * count;
  LmHeadTileStat* halves = scratch.nodes + row * 2 * scratch.half;
  for (int level = 0; count > 1; ++level) {
    LmHeadTileStat* to = halves + level % 2 * scratch.half;
    const int64_t pairs = count / 2;
    for (int64_t i = threadIdx.x; i < pairs; i += kMergeThreads) {
      to[i] = MergeTileStats(from[2 * i], from[2 * i + 1]);
    }
    if (threadIdx.x == 0 && count % 2 == 1) to[pairs] = from[count - 1];
    __syncthreads();
    count = pairs + count % 2;
    from = to;
  }
  if (threadIdx.x == 0) logprob[row] = LogprobOf(selected_logit[row], from[0]);
}

__global__ void FillKernel(float* values, int64_t count, float value) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) values[i] = value;
}

// Rows [row, row + rows) and tiles [tile, tile + tiles) of the shard.
absl::Status EnqueueGroup(const LmHeadShardParams& p, int64_t row, int64_t rows, int64_t tile,
                          int64_t tiles, float* logits, CudaStream stream) {
  const int64_t column = tile * kTile;
  const int64_t columns = std::min(tiles * kTile, p.shard_vocab - column);
  const int64_t element = static_cast<int64_t>(SizeOf(p.operand_type));
  const size_t stride = static_cast<size_t>(p.hidden_size);
  CudaChainProduct product;
  product.a = {static_cast<const char*>(p.hidden) + row * p.hidden_size * element, p.operand_type,
               stride, 1};
  product.b = {static_cast<const char*>(p.shard_weight) + column * p.hidden_size * element,
               p.operand_type, stride, 1};
  product.m = rows, product.n = columns, product.k = p.hidden_size;
  product.out = logits, product.out_row_stride = columns;
  if (absl::Status status = EnqueueChainProduct(product, stream); !status.ok()) return status;
  StatOperands stat = {};
  stat.logits = logits;
  stat.rows = rows, stat.columns = columns, stat.tiles = tiles;
  stat.tokens = p.tokens + row;
  stat.vocab_begin = p.vocab_begin + column;
  stat.stats_stride = p.tiles_row_stride == 0 ? LmHeadTiles(p.shard_vocab) : p.tiles_row_stride;
  stat.stats = p.tiles + row * stat.stats_stride + tile;
  stat.selected_logit = p.selected_logit + row;
  return Launch("lm_head", StatKernel,
                {DivideUp(rows * tiles, kStatTiles), kStatThreads, 0, stream}, stat);
}

struct WholeScratch {
  LmHeadTileStat* tiles;
  float* selected_logit;
  float* logits;
  MergeScratch merge;
};

LmHeadShardParams WholeShard(const LmHeadParams& p) {
  LmHeadShardParams shard;
  shard.operand_type = p.operand_type;
  shard.rows = p.rows, shard.hidden_size = p.hidden_size;
  shard.vocab = shard.shard_vocab = p.vocab;
  shard.hidden = p.hidden, shard.shard_weight = p.weight, shard.tokens = p.tokens;
  return shard;
}

LmHeadMergeParams WholeMerge(const LmHeadParams& p) {
  LmHeadMergeParams merge;
  merge.rows = p.rows, merge.vocab = p.vocab, merge.logprob = p.logprob;
  return merge;
}

WholeScratch LayWhole(const LmHeadParams& p, WorkspaceCutter& cut) {
  WholeScratch scratch;
  scratch.tiles = cut.Take<LmHeadTileStat>(p.rows * LmHeadTiles(p.vocab));
  scratch.selected_logit = cut.Take<float>(p.rows);
  scratch.logits = LayShard(WholeShard(p), cut);
  scratch.merge = LayMerge(WholeMerge(p), cut);
  return scratch;
}

absl::Status EnqueueShard(const LmHeadShardParams& p, float* logits, CudaStream stream) {
  const int64_t tiles = LmHeadTiles(p.shard_vocab);
  const int64_t group = GroupTiles(p);
  for (int64_t row = 0; row < p.rows; row += kGroupRows) {
    for (int64_t tile = 0; tile < tiles; tile += group) {
      absl::Status status = EnqueueGroup(p, row, std::min(kGroupRows, p.rows - row), tile,
                                         std::min(group, tiles - tile), logits, stream);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::Status EnqueueMerge(const LmHeadMergeParams& p, const MergeScratch& scratch,
                          CudaStream stream) {
  return Launch("lm_head", MergeKernel, {static_cast<unsigned>(p.rows), kMergeThreads, 0, stream},
                p.tiles, LmHeadTiles(p.vocab), p.selected_logit, scratch, p.logprob);
}

template <class Params, class Lay>
size_t BytesOf(const Params& p, const Lay& lay) {
  WorkspaceCutter size(nullptr);
  lay(p, size);
  return size.bytes();
}

}  // namespace

size_t LmHeadShardCudaWorkspaceBytes(const LmHeadShardParams& p) { return BytesOf(p, LayShard); }

size_t LmHeadMergeCudaWorkspaceBytes(const LmHeadMergeParams& p) { return BytesOf(p, LayMerge); }

size_t SelectedLogprobCudaWorkspaceBytes(const LmHeadParams& p) { return BytesOf(p, LayWhole); }

absl::Status LmHeadShardCuda(const LmHeadShardParams& p, void* workspace, CudaStream stream) {
  if (absl::Status s = CheckLmHeadShard(p); !s.ok()) return s;
  if (absl::Status s = CheckWorkspace("lm_head", workspace); !s.ok()) return s;
  WorkspaceCutter cut(workspace);
  return EnqueueShard(p, LayShard(p, cut), stream);
}

absl::Status LmHeadMergeCuda(const LmHeadMergeParams& p, void* workspace, CudaStream stream) {
  if (absl::Status s = CheckLmHeadMerge(p); !s.ok()) return s;
  if (absl::Status s = CheckWorkspace("lm_head", workspace); !s.ok()) return s;
  WorkspaceCutter cut(workspace);
  return EnqueueMerge(p, LayMerge(p, cut), stream);
}

absl::Status SelectedLogprobCuda(const LmHeadParams& p, void* workspace, CudaStream stream) {
  if (absl::Status s = CheckWorkspace("lm_head", workspace); !s.ok()) return s;
  LmHeadShardParams shard = WholeShard(p);
  LmHeadMergeParams merge = WholeMerge(p);
  // The checks look at sizes before anything is laid out by them.
  shard.tiles = reinterpret_cast<LmHeadTileStat*>(workspace);
  shard.selected_logit = reinterpret_cast<float*>(workspace);
  merge.tiles = shard.tiles, merge.selected_logit = shard.selected_logit;
  if (absl::Status s = CheckLmHeadShard(shard); !s.ok()) return s;
  if (absl::Status s = CheckLmHeadMerge(merge); !s.ok()) return s;
  WorkspaceCutter cut(workspace);
  const WholeScratch scratch = LayWhole(p, cut);
  shard.tiles = scratch.tiles, shard.selected_logit = scratch.selected_logit;
  merge.tiles = scratch.tiles, merge.selected_logit = scratch.selected_logit;
  // A token that no tile has leaves NaN.
  if (absl::Status s =
          Launch("lm_head", FillKernel, {DivideUp(p.rows, kMergeThreads), kMergeThreads, 0, stream},
                 scratch.selected_logit, p.rows, F32FromBits(kF32CanonicalNan));
      !s.ok()) {
    return s;
  }
  if (absl::Status s = EnqueueShard(shard, scratch.logits, stream); !s.ok()) return s;
  return EnqueueMerge(merge, scratch.merge, stream);
}

}  // namespace lockstep::kernels
