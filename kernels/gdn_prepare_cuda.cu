// The part of gdn/chunk64@v1 that needs no state, for any dims: a block a chunk and head.

#include "kernels/cuda_launch.h"
#include "kernels/gdn_device_cuda.h"
#include "kernels/gdn_work_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kNormThreads = 128;
constexpr float kNormEpsilon = 1e-6f;
constexpr int kTriangleStride = kChunk + 1;
constexpr int kVector = 8;  // BF16 elements of one 16-byte load

__device__ float SumOfSquares(const GdnDims& dims, const void* from, int64_t row) {
  float sum = 0.0f;
  const int64_t at = row * dims.key_dim;
  if (dims.input_type == FloatType::kBf16 && dims.key_dim % kVector == 0 &&
      reinterpret_cast<uintptr_t>(from) % sizeof(uint4) == 0) {
    const auto* vectors = reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(from) + at);
#pragma unroll 4
    for (int i = 0; i < dims.key_dim / kVector; ++i) {
      const uint4 v = __ldg(vectors + i);
      const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (const uint32_t word : words) {
        const float low = F32FromBits(word << 16);
        const float high = F32FromBits(word & 0xFFFF0000);
        sum = __fmaf_rn(low, low, sum);
        sum = __fmaf_rn(high, high, sum);
      }
    }
    return sum;
  }
  for (int c = 0; c < dims.key_dim; ++c) {
    const float x = LoadFloat(dims.input_type, from, at + c);
    sum = __fmaf_rn(x, x, sum);
  }
  return sum;
}

// A thread a row of q (block row 0) or k (1).
__global__ void __launch_bounds__(kNormThreads)
    Norms(const GdnDims dims, const GdnTokens tokens, const GdnWork work) {
  const int64_t rows = int64_t{tokens.count} * dims.key_heads;
  const int64_t row = int64_t{blockIdx.x} * kNormThreads + threadIdx.x;
  if (row >= rows) return;
  const int64_t in_tensor = tokens.first * dims.key_heads + row;
  const float sum = SumOfSquares(dims, blockIdx.y == 0 ? dims.q : dims.k, in_tensor);
  const float norm = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(sum, kNormEpsilon)));
  (blockIdx.y == 0 ? work.q_norms : work.k_norms)[row] = norm;
}

struct Shared {
  ChunkGates gates;
  float a[kChunk][kTriangleStride];
  float t[kChunk][kTriangleStride];
};

// A from k_i . k_j, and P from q_i . k_j; k and q are normalised in the slot.
__device__ void Products(const GdnDims& dims, const GdnSlot& slot, int count, Shared& shared) {
  for (int at = threadIdx.x; at < count * kChunk; at += kThreads) {
    const int i = at / kChunk;
    const int j = at % kChunk;
    if (j > i) continue;
    const float* k_i = slot.k_end + i * dims.key_dim;
    const float* q_i = slot.q_grown + i * dims.key_dim;
    const float* k_j = slot.k_end + j * dims.key_dim;
    float kk = 0.0f;
    float qk = 0.0f;
    for (int c = 0; c < dims.key_dim; ++c) {
      kk = __fmaf_rn(k_i[c], k_j[c], kk);
      qk = __fmaf_rn(q_i[c], k_j[c], qk);
    }
    const float decay = shared.gates.Decay(i, j);
    slot.p[i * kChunk + j] = __fmul_rn(qk, decay);
    if (j < i) shared.a[i][j] = __fmul_rn(__fmul_rn(shared.gates.beta[i], kk), decay);
  }
}

// T by forward substitution, a thread a column.
__device__ void Invert(int count, Shared& shared) {
  const int j = static_cast<int>(threadIdx.x);
  if (j >= kChunk) return;
  for (int i = 0; i < count; ++i) {
    float acc = 0.0f;
    if (j < i) {
      for (int m = 0; m < i; ++m) acc = __fmaf_rn(shared.a[i][m], shared.t[m][j], acc);
      shared.t[i][j] = -acc;
    } else {
      shared.t[i][j] = j == i ? 1.0f : 0.0f;
    }
  }
}

__device__ void UpdateRows(const GdnDims& dims, const GdnTokens& tokens, int first_token, int head,
                           int count, const GdnSlot& slot, const Shared& shared) {
  const int columns = dims.key_dim + dims.value_dim;
  for (int at = threadIdx.x; at < count * columns; at += kThreads) {
    const int i = at / columns;
    const int column = at % columns;
    float acc = 0.0f;
    if (column < dims.key_dim) {
      for (int j = 0; j <= i; ++j) {
        const float grown_beta = __fmul_rn(shared.gates.beta[j], shared.gates.grown[j]);
        const float right = __fmul_rn(grown_beta, slot.k_end[j * dims.key_dim + column]);
        acc = __fmaf_rn(shared.t[i][j], right, acc);
      }
      slot.w[i * dims.key_dim + column] = acc;
    } else {
      const int v = column - dims.key_dim;
      for (int j = 0; j <= i; ++j) {
        const int64_t row = ValueRow(dims, tokens, first_token + j, head);
        const float value = LoadFloat(dims.input_type, dims.v, row * dims.value_dim + v);
        acc = __fmaf_rn(shared.t[i][j], __fmul_rn(shared.gates.beta[j], value), acc);
      }
      slot.u[i * dims.value_dim + v] = acc;
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    Prepare(const GdnDims dims, const GdnTokens tokens, const GdnWork work) {
  __shared__ Shared shared;
  const int head = static_cast<int>(blockIdx.x);
  const int chunk = static_cast<int>(blockIdx.y);
  const int first_token = chunk * kChunk;
  const int count = tokens.ChunkCount(chunk);
  const int key_head = dims.KeyHead(head);
  const GdnSlot slot = work.Slot(dims, chunk, head);
  for (int at = threadIdx.x; at < count * dims.key_dim; at += kThreads) {
    const int i = at / dims.key_dim;
    const int c = at % dims.key_dim;
    slot.k_end[at] = NormalisedKey(dims, work, tokens, first_token + i, key_head, c);
    slot.q_grown[at] = NormalisedQuery(dims, work, tokens, first_token + i, key_head, c);
  }
  shared.gates.Load(dims, tokens, first_token, count, head);
  Products(dims, slot, count, shared);
  __syncthreads();
  Invert(count, shared);
  __syncthreads();
  UpdateRows(dims, tokens, first_token, head, count, slot, shared);
  __syncthreads();
  for (int at = threadIdx.x; at < count * dims.key_dim; at += kThreads) {
    const int i = at / dims.key_dim;
    slot.k_end[at] = __fmul_rn(slot.k_end[at], shared.gates.Decay(count - 1, i));
    slot.q_grown[at] = __fmul_rn(slot.q_grown[at], shared.gates.grown[i]);
  }
  if (threadIdx.x == 0) *slot.growth = shared.gates.grown[count - 1];
}

}  // namespace

absl::Status LaunchGdnNorms(const GdnDims& dims, const GdnTokens& tokens, const GdnWork& work,
                            CudaStream stream) {
  const unsigned blocks = DivideUp(int64_t{tokens.count} * dims.key_heads, kNormThreads);
  return Launch("gdn: norms", Norms, {dim3(blocks, 2), kNormThreads, 0, stream}, dims, tokens,
                work);
}

absl::Status LaunchGdnPrepare(const GdnDims& dims, const GdnTokens& tokens, const GdnWork& work,
                              CudaStream stream) {
  if (FitsGdnPrepare128(dims)) return LaunchGdnPrepare128(dims, tokens, work, stream);
  const dim3 blocks(static_cast<unsigned>(dims.value_heads),
                    static_cast<unsigned>(tokens.Chunks()));
  return Launch("gdn: preparing chunks", Prepare, {blocks, kThreads, 0, stream}, dims, tokens,
                work);
}

}  // namespace lockstep::kernels
