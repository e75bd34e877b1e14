#include <algorithm>
#include <cstdint>

#include "kernels/attention_cuda.h"
#include "kernels/cuda_half.h"
#include "kernels/cuda_launch.h"
#include "kernels/cuda_workspace.h"
#include "kernels/exact_math.h"
#include "kernels/gemm_engine_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int64_t kScoreBytes = int64_t{512} << 20;

// Queries that pass through the workspace at a time; changes no byte.
int64_t BlockQueries(const AttentionParams& p) {
  const int64_t query_bytes = p.query_heads * p.keys * int64_t{sizeof(float)};
  return std::max<int64_t>(1, std::min(p.queries, kScoreBytes / std::max<int64_t>(1, query_bytes)));
}

struct Scratch {
  float* weights;  // [heads, block, keys]: scores, then exponentials
  float* sums;     // [heads, block]
  float* values;   // [heads, block, value_dim]
};

Scratch Lay(const AttentionParams& p, WorkspaceCutter& cut) {
  const int64_t rows = p.query_heads * BlockQueries(p);
  return {cut.Take<float>(rows * p.keys), cut.Take<float>(rows),
          cut.Take<float>(rows * p.value_dim)};
}

constexpr int kThreads = 128;
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;
constexpr int kStretch = 1024;  // exponentials that are added up at a time

// Turns row (head, query) of dots into exponentials, ascending, and adds them up. Which of equal
// zeros is the maximum changes no exponential, and a NaN makes the whole row NaN, so the order of
// the maximum's comparisons is free.
__global__ void __launch_bounds__(kThreads)
    ExponentialsKernel(Scratch scratch, int64_t block, int64_t keys, int64_t first_keys,
                       float scale) {
  __shared__ float maxima[kWarps];
  __shared__ float stretch[kStretch];
  const int64_t row = blockIdx.x;
  const int64_t count = first_keys + row % block;
  float* dots = scratch.weights + row * keys;
  float max = scale * dots[0];
  for (int64_t j = threadIdx.x; j < count; j += kThreads) {
    const float score = scale * dots[j];
    max = score > max ? score : max;
  }
  for (int step = kWarp / 2; step >= 1; step /= 2) {
    const float other = __shfl_xor_sync(0xFFFFFFFF, max, step);
    max = other > max ? other : max;
  }
  if (threadIdx.x % kWarp == 0) maxima[threadIdx.x / kWarp] = max;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) max = maxima[w] > max ? maxima[w] : max;
  float sum = 0.0f;
  for (int64_t begin = 0; begin < count; begin += kStretch) {
    const int length = static_cast<int>(min(int64_t{kStretch}, count - begin));
    for (int j = static_cast<int>(threadIdx.x); j < length; j += kThreads) {
      stretch[j] = ExpF32(scale * dots[begin + j] - max);
      dots[begin + j] = stretch[j];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int j = 0; j < length; ++j) sum = sum + stretch[j];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) scratch.sums[row] = sum;
}

struct OutOperands {
  uint16_t* out;  // of the block's first query
  int64_t out_stride, block, heads, value_dim;
};

template <class Format>
__global__ void __launch_bounds__(kThreads) DivideKernel(Scratch scratch, OutOperands p) {
  const int64_t row = blockIdx.x;
  const int64_t head = row / p.block;
  uint16_t* out = p.out + row % p.block * p.out_stride + head * p.value_dim;
  const float sum = scratch.sums[row];
  for (int64_t i = threadIdx.x; i < p.value_dim; i += kThreads) {
    out[i] = StoreHalf<Format>(scratch.values[row * p.value_dim + i] / sum);
  }
}

int64_t StrideOr(int64_t stride, int64_t columns) { return stride == 0 ? columns : stride; }

const uint16_t* At(const void* tensor, int64_t offset) {
  return static_cast<const uint16_t*>(tensor) + offset;
}

// Dots of queries [query, query + block) with the keys that they see, per head.
absl::Status EnqueueScores(const AttentionParams& p, const Scratch& scratch, int64_t query,
                           int64_t block, CudaStream stream) {
  const int64_t q_stride = StrideOr(p.q_row_stride, p.query_heads * p.head_dim);
  const int64_t k_stride = StrideOr(p.k_row_stride, p.kv_heads * p.head_dim);
  CudaChainProduct dots;
  dots.a = {At(p.q, query * q_stride), p.type, static_cast<size_t>(q_stride), 1};
  dots.b = {p.k, p.type, static_cast<size_t>(k_stride), 1};
  dots.m = block, dots.n = p.keys, dots.k = p.head_dim;
  dots.out = scratch.weights, dots.out_row_stride = p.keys;
  dots.batches = p.query_heads, dots.b_share = p.query_heads / p.kv_heads;
  dots.a_batch_stride = dots.b_batch_stride = p.head_dim;
  dots.out_batch_stride = block * p.keys;
  dots.causal = Causal::kColumns, dots.causal_first = p.keys - p.queries + query;
  return EnqueueChainProduct(dots, stream);
}

absl::Status EnqueueValues(const AttentionParams& p, const Scratch& scratch, int64_t query,
                           int64_t block, CudaStream stream) {
  const int64_t v_stride = StrideOr(p.v_row_stride, p.kv_heads * p.value_dim);
  CudaChainProduct sum;
  sum.a = {scratch.weights, FloatType::kF32, static_cast<size_t>(p.keys), 1};
  sum.b = {p.v, p.type, 1, static_cast<size_t>(v_stride)};
  sum.m = block, sum.n = p.value_dim, sum.k = p.keys;
  sum.out = scratch.values, sum.out_row_stride = p.value_dim;
  sum.batches = p.query_heads, sum.b_share = p.query_heads / p.kv_heads;
  sum.a_batch_stride = block * p.keys;
  sum.b_batch_stride = p.value_dim;
  sum.out_batch_stride = block * p.value_dim;
  sum.causal = Causal::kDepth, sum.causal_first = p.keys - p.queries + query;
  return EnqueueChainProduct(sum, stream);
}

absl::Status EnqueueBlock(const AttentionParams& p, const Scratch& scratch, int64_t query,
                          int64_t block, CudaStream stream) {
  if (absl::Status s = EnqueueScores(p, scratch, query, block, stream); !s.ok()) return s;
  const LaunchShape rows = {static_cast<unsigned>(p.query_heads * block), kThreads, 0, stream};
  const int64_t first_keys = p.keys - p.queries + query + 1;
  if (absl::Status s = Launch("attention", ExponentialsKernel, rows, scratch, block, p.keys,
                              first_keys, p.scale);
      !s.ok()) {
    return s;
  }
  if (absl::Status s = EnqueueValues(p, scratch, query, block, stream); !s.ok()) return s;
  OutOperands out = {};
  out.out_stride = StrideOr(p.out_row_stride, p.query_heads * p.value_dim);
  out.out = static_cast<uint16_t*>(p.out) + query * out.out_stride;
  out.block = block, out.heads = p.query_heads, out.value_dim = p.value_dim;
  return p.type == FloatType::kBf16 ? Launch("attention", DivideKernel<Bf16>, rows, scratch, out)
                                    : Launch("attention", DivideKernel<F16>, rows, scratch, out);
}

}  // namespace

size_t SoftmaxAttentionCudaWorkspaceBytes(const AttentionParams& p) {
  WorkspaceCutter size(nullptr);
  Lay(p, size);
  return size.bytes();
}

absl::Status SoftmaxAttentionCuda(const AttentionParams& p, void* workspace, CudaStream stream) {
  if (absl::Status s = CheckAttention(p); !s.ok()) return s;
  if (absl::Status s = CheckWorkspace("attention", workspace); !s.ok()) return s;
  WorkspaceCutter cut(workspace);
  const Scratch scratch = Lay(p, cut);
  const int64_t block = BlockQueries(p);
  for (int64_t query = 0; query < p.queries; query += block) {
    absl::Status s = EnqueueBlock(p, scratch, query, std::min(block, p.queries - query), stream);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
