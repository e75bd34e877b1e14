// The part of gdn/chunk64@v1 that follows the state for K = V = 128: a block owns 32 columns of a
// head's state in shared memory and walks the chunks; while one half of a chunk's operands is used
// the other is on its way.

#include <cuda_pipeline.h>

#include "kernels/cuda_launch.h"
#include "kernels/gdn_device_cuda.h"
#include "kernels/gdn_tiles_cuda.h"
#include "kernels/gdn_work_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kColumns = 32;
constexpr int kColumnGroups = kColumns / 4;
constexpr int kRowGroups = kThreads / kColumnGroups;
constexpr int kRowsOfThread = kChunk / kRowGroups;
static_assert(kRowGroups == 16 && kRowsOfThread == 4);
// Padded, so that lanes on different rows meet no bank twice.
constexpr int kRow = kWideDim + 4;
constexpr int kTriangleRow = kChunk + 4;

struct Shared {
  float w[kChunk][kRow];
  float q[kChunk][kRow];  // grown
  float k_end[kChunk][kWideDim];
  float p[kChunk][kTriangleRow];
  float state[kWideDim][kColumns];
  float x[kChunk][kColumns];
};

// Starts the copy of `rows` rows of kFloats.
template <int kFloats>
__device__ void Fetch(const float* from, int rows, float* to, int to_stride) {
  constexpr int kPieces = kFloats / 4;
  for (int at = threadIdx.x; at < rows * kPieces; at += kThreads) {
    const int row = at / kPieces;
    const int c = at % kPieces * 4;
    __pipeline_memcpy_async(to + row * to_stride + c, from + row * kFloats + c, sizeof(float4));
  }
}

// This thread's place: columns 4 * group.. of the block's, rows `row` + 16 a.
struct Place {
  int column;
  int row;
};

// acc[a] += row (row + 16 a) of W, then of Q, times the state.
__device__ void ReadState(const Shared& shared, const Place& place,
                          float (&recalled)[kRowsOfThread][4], float (&read)[kRowsOfThread][4]) {
#pragma unroll 2
  for (int k = 0; k < kWideDim; k += 4) {
    float4 s[4];
#pragma unroll
    for (int u = 0; u < 4; ++u) s[u] = Four(&shared.state[k + u][place.column]);
#pragma unroll
    for (int a = 0; a < kRowsOfThread; ++a) {
      const float4 w = Four(&shared.w[place.row + kRowGroups * a][k]);
      const float4 q = Four(&shared.q[place.row + kRowGroups * a][k]);
      const float w_steps[4] = {w.x, w.y, w.z, w.w};
      const float q_steps[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        AddScaled(w_steps[u], s[u], recalled[a]);
        AddScaled(q_steps[u], s[u], read[a]);
      }
    }
  }
}

// acc[a] = chain over j <= i of P[i, j] X[j, .]: column blocks below the diagonal's in full.
template <int kBlock>
__device__ void AddBlock(const Shared& shared, const Place& place, float (&acc)[kRowsOfThread][4]) {
#pragma unroll
  for (int step = 0; step < kRowGroups; step += 4) {
    const int j = kRowGroups * kBlock + step;
    float4 x[4];
#pragma unroll
    for (int u = 0; u < 4; ++u) x[u] = Four(&shared.x[j + u][place.column]);
#pragma unroll
    for (int a = kBlock; a < kRowsOfThread; ++a) {
      const float4 p = Four(&shared.p[place.row + kRowGroups * a][j]);
      const float steps[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        if (a > kBlock || step + u <= place.row) AddScaled(steps[u], x[u], acc[a]);
      }
    }
  }
  if constexpr (kBlock + 1 < kRowsOfThread) AddBlock<kBlock + 1>(shared, place, acc);
}

// State rows 4 * place.row.. and 64 + 4 * place.row..: S = growth * S + chain over i of k_end X.
__device__ void AdvanceState(Shared& shared, int state_row, const Place& place, int count,
                             float growth) {
  float acc[8][4] = {};
#pragma unroll 4
  for (int i = 0; i < count; ++i) {
    const float4 x = Four(&shared.x[i][place.column]);
    const float4 low = Four(&shared.k_end[i][state_row]);
    const float4 high = Four(&shared.k_end[i][kWideDim / 2 + state_row]);
    const float k[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int r = 0; r < 8; ++r) AddScaled(k[r], x, acc[r]);
  }
#pragma unroll
  for (int r = 0; r < 8; ++r) {
    const int c = state_row + r % 4 + (r < 4 ? 0 : kWideDim / 2);
    float4& s = Four(&shared.state[c][place.column]);
    const float4 kept = Scaled(s, growth);
    s = make_float4(__fadd_rn(kept.x, acc[r][0]), __fadd_rn(kept.y, acc[r][1]),
                    __fadd_rn(kept.z, acc[r][2]), __fadd_rn(kept.w, acc[r][3]));
  }
}

__device__ void MoveState(float* memory, Shared& shared, bool store) {
  for (int at = threadIdx.x; at < kWideDim * kColumnGroups; at += kThreads) {
    const int c = at / kColumnGroups;
    const int column = at % kColumnGroups * 4;
    if (store) {
      StoreFour(FloatType::kF32, memory, c * kWideDim + column, Four(&shared.state[c][column]));
    } else {
      Four(&shared.state[c][column]) = Four(&memory[c * kWideDim + column]);
    }
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    Finish128(const GdnDims dims, const GdnTokens tokens, const GdnWork work, float* states) {
  extern __shared__ float4 shared_memory[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_memory);
  const int head = static_cast<int>(blockIdx.x);
  const int first_column = static_cast<int>(blockIdx.y) * kColumns;
  const Place place = {static_cast<int>(threadIdx.x) % kColumnGroups * 4,
                       static_cast<int>(threadIdx.x) / kColumnGroups};
  float* const memory = states + int64_t{head} * kWideDim * kWideDim + first_column;
  const auto fetch_rows = [&](int chunk) {
    if (chunk < tokens.Chunks()) {
      const GdnSlot slot = work.Slot(dims, chunk, head);
      Fetch<kWideDim>(slot.w, kChunk, &shared.w[0][0], kRow);
      Fetch<kWideDim>(slot.q_grown, kChunk, &shared.q[0][0], kRow);
    }
    __pipeline_commit();
  };
  MoveState(memory, shared, false);
  fetch_rows(0);
  for (int chunk = 0; chunk < tokens.Chunks(); ++chunk) {
    const int count = tokens.ChunkCount(chunk);
    const GdnSlot slot = work.Slot(dims, chunk, head);
    Fetch<kWideDim>(slot.k_end, kChunk, &shared.k_end[0][0], kWideDim);
    Fetch<kChunk>(slot.p, kChunk, &shared.p[0][0], kTriangleRow);
    __pipeline_commit();
    float4 u[kRowsOfThread];
#pragma unroll
    for (int a = 0; a < kRowsOfThread; ++a) {
      u[a] = __ldg(reinterpret_cast<const float4*>(
          &slot.u[(place.row + kRowGroups * a) * kWideDim + first_column + place.column]));
    }
    const float growth = *slot.growth;
    __pipeline_wait_prior(1);
    __syncthreads();
    float recalled[kRowsOfThread][4] = {};
    float read[kRowsOfThread][4] = {};
    ReadState(shared, place, recalled, read);
#pragma unroll
    for (int a = 0; a < kRowsOfThread; ++a) {
      Four(&shared.x[place.row + kRowGroups * a][place.column]) =
          make_float4(__fsub_rn(u[a].x, recalled[a][0]), __fsub_rn(u[a].y, recalled[a][1]),
                      __fsub_rn(u[a].z, recalled[a][2]), __fsub_rn(u[a].w, recalled[a][3]));
    }
    __syncthreads();
    fetch_rows(chunk + 1);
    __pipeline_wait_prior(1);
    __syncthreads();
    float own[kRowsOfThread][4] = {};
    AddBlock<0>(shared, place, own);
#pragma unroll
    for (int a = 0; a < kRowsOfThread; ++a) {
      const int i = place.row + kRowGroups * a;
      if (i >= count) continue;
      const int64_t row = ValueRow(dims, tokens, chunk * kChunk + i, head);
      StoreFour(dims.out_type, dims.o, row * kWideDim + first_column + place.column,
                make_float4(__fadd_rn(read[a][0], own[a][0]), __fadd_rn(read[a][1], own[a][1]),
                            __fadd_rn(read[a][2], own[a][2]), __fadd_rn(read[a][3], own[a][3])));
    }
    AdvanceState(shared, 4 * place.row, place, count, growth);
    __syncthreads();
  }
  MoveState(memory, shared, true);
}

}  // namespace

bool FitsGdnFinish128(const GdnDims& dims, const float* state) {
  return dims.key_dim == kWideDim && dims.value_dim == kWideDim &&
         reinterpret_cast<uintptr_t>(dims.o) % FourBytes(dims.out_type) == 0 &&
         reinterpret_cast<uintptr_t>(state) % sizeof(float4) == 0 &&
         SharedMemoryOfBlock() >= sizeof(Shared);
}

absl::Status LaunchGdnFinish128(const GdnDims& dims, const GdnTokens& tokens, const GdnWork& work,
                                float* state, CudaStream stream) {
  const dim3 blocks(static_cast<unsigned>(dims.value_heads), kWideDim / kColumns);
  return Launch("gdn: finishing chunks", Finish128, {blocks, kThreads, sizeof(Shared), stream},
                dims, tokens, work, state);
}

}  // namespace lockstep::kernels
