// The part of gdn/chunk64@v1 that needs no state for K = V = 128: a block a chunk and head,
// operands in shared memory. What it writes is what gdn_prepare_cuda.cu writes.

#include "kernels/cuda_launch.h"
#include "kernels/gdn_device_cuda.h"
#include "kernels/gdn_tiles_cuda.h"
#include "kernels/gdn_work_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kLanes;
// Rows of keys and of triangles are padded, so that lanes on different rows meet no bank twice.
constexpr int kRow = kWideDim + 4;
constexpr int kTriangleRow = kChunk + 4;
// Warps that invert; a thread has a column of T.
constexpr int kInvertWarps = kChunk / kLanes;
constexpr int kBlockRows = 8;

struct Shared {
  float k[kChunk][kRow];
  float qv[kChunk][kRow];                 // queries, then values
  float a_columns[kChunk][kTriangleRow];  // [m][i]: A[i, m]
  float t_columns[kChunk][kTriangleRow];  // [j][i]: T[i, j]
  ChunkGates gates;
  float grown_beta[kChunk];
  float to_end[kChunk];  // E[last, i]
};

// Keys and queries of the chunk, normalised; rows past its end are zeros.
__device__ void LoadRows(const GdnDims& dims, const GdnTokens& tokens, const GdnWork& work,
                         int first_token, int count, int key_head, Shared& shared) {
  const int c = 4 * static_cast<int>(threadIdx.x % kLanes);
  for (int i = static_cast<int>(threadIdx.x) / kLanes; i < kChunk; i += kWarps) {
    float4 k = {}, q = {};
    if (i < count) {
      const int64_t at = KeyRow(dims, tokens, first_token + i, key_head) * kWideDim + c;
      const float q_norm = QueryNorm(dims, work, first_token + i, key_head);
      k = Scaled(LoadFour(dims.input_type, dims.k, at),
                 KeyNorm(dims, work, first_token + i, key_head));
      q = Scaled(Scaled(LoadFour(dims.input_type, dims.q, at), q_norm), dims.scale);
    }
    Four(&shared.k[i][c]) = k;
    Four(&shared.qv[i][c]) = q;
  }
}

// A and P. Thread (x, y) has rows y + 16 a and columns x + 16 b, b <= a.
__device__ void Products(const GdnSlot& slot, Shared& shared) {
  constexpr int kTile = 4;
  constexpr int kStep = kChunk / kTile;
  const int x = static_cast<int>(threadIdx.x) % kStep;
  const int y = static_cast<int>(threadIdx.x) / kStep;
  float kk[kTile][kTile] = {};
  float qk[kTile][kTile] = {};
  for (int c = 0; c < kWideDim; c += 4) {
    float4 right[kTile];
#pragma unroll
    for (int b = 0; b < kTile; ++b) right[b] = Four(&shared.k[x + kStep * b][c]);
#pragma unroll
    for (int a = 0; a < kTile; ++a) {
      const float4 k = Four(&shared.k[y + kStep * a][c]);
      const float4 q = Four(&shared.qv[y + kStep * a][c]);
#pragma unroll
      for (int b = 0; b <= a; ++b) {
        kk[a][b] = Dot(k, right[b], kk[a][b]);
        qk[a][b] = Dot(q, right[b], qk[a][b]);
      }
    }
  }
#pragma unroll
  for (int a = 0; a < kTile; ++a) {
#pragma unroll
    for (int b = 0; b <= a; ++b) {
      const int i = y + kStep * a;
      const int j = x + kStep * b;
      if (j > i) continue;
      const float decay = shared.gates.Decay(i, j);
      slot.p[i * kChunk + j] = __fmul_rn(qk[a][b], decay);
      shared.a_columns[j][i] = __fmul_rn(__fmul_rn(shared.gates.beta[i], kk[a][b]), decay);
    }
  }
}

// T by forward substitution, eight rows at a time; a thread a column.
__device__ void Invert(Shared& shared) {
  const int j = static_cast<int>(threadIdx.x);
  float* const column = shared.t_columns[j];
  for (int first = 0; first < kChunk; first += kBlockRows) {
    float acc[kBlockRows] = {};
    for (int m = 0; m < first; m += 4) {
      const float4 above = Four(&column[m]);
      const float t[4] = {above.x, above.y, above.z, above.w};
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        const float* a = &shared.a_columns[m + u][first];
        const float4 low = Four(a), high = Four(a + 4);
        const float row[kBlockRows] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int r = 0; r < kBlockRows; ++r) acc[r] = __fmaf_rn(row[r], t[u], acc[r]);
      }
    }
    float own[kBlockRows];
#pragma unroll
    for (int r = 0; r < kBlockRows; ++r) {
#pragma unroll
      for (int m = 0; m < r; ++m) {
        acc[r] = __fmaf_rn(shared.a_columns[first + m][first + r], own[m], acc[r]);
      }
      const int i = first + r;
      own[r] = j < i ? -acc[r] : j == i ? 1.0f : 0.0f;
    }
    Four(&column[first]) = make_float4(own[0], own[1], own[2], own[3]);
    Four(&column[first + 4]) = make_float4(own[4], own[5], own[6], own[7]);
  }
}

// By the warps that do not invert: grown queries and decayed keys leave, values come in.
__device__ void MoveRows(const GdnDims& dims, const GdnTokens& tokens, int first_token, int count,
                         int head, const GdnSlot& slot, Shared& shared) {
  const int c = 4 * static_cast<int>(threadIdx.x % kLanes);
  const int warp = static_cast<int>(threadIdx.x) / kLanes - kInvertWarps;
  for (int i = warp; i < kChunk; i += kWarps - kInvertWarps) {
    Four(&slot.q_grown[i * kWideDim + c]) = Scaled(Four(&shared.qv[i][c]), shared.gates.grown[i]);
    Four(&slot.k_end[i * kWideDim + c]) = Scaled(Four(&shared.k[i][c]), shared.to_end[i]);
    float4 v = {};
    if (i < count) {
      const int64_t at = ValueRow(dims, tokens, first_token + i, head) * kWideDim + c;
      v = LoadFour(dims.input_type, dims.v, at);
    }
    Four(&shared.qv[i][c]) = v;
  }
}

// One step of the chains of U and W: column j of T, from row kFirst of the warp's eight on.
template <int kFirst>
__device__ void AddColumn(const Shared& shared, int j, int first_row, int c,
                          float (&u)[kBlockRows][4], float (&w)[kBlockRows][4]) {
  const float* t = &shared.t_columns[j][first_row];
  const float4 low = Four(t), high = Four(t + 4);
  const float row[kBlockRows] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  const float4 v = Scaled(Four(&shared.qv[j][c]), shared.gates.beta[j]);
  const float4 k = Scaled(Four(&shared.k[j][c]), shared.grown_beta[j]);
#pragma unroll
  for (int r = kFirst; r < kBlockRows; ++r) {
    AddScaled(row[r], v, u[r]);
    AddScaled(row[r], k, w[r]);
  }
}

template <int kFirst>
__device__ void AddTriangle(const Shared& shared, int first_row, int c, float (&u)[kBlockRows][4],
                            float (&w)[kBlockRows][4]) {
  AddColumn<kFirst>(shared, first_row + kFirst, first_row, c, u, w);
  if constexpr (kFirst + 1 < kBlockRows) AddTriangle<kFirst + 1>(shared, first_row, c, u, w);
}

// U and W. A warp has eight rows, a lane four columns of each.
__device__ void UpdateRows(const GdnSlot& slot, const Shared& shared) {
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  // Low rows are short chains: each scheduler gets as much.
  const int first_row = kBlockRows * (warp < kWarps / 2 ? warp : 3 * kWarps / 2 - 1 - warp);
  const int c = 4 * static_cast<int>(threadIdx.x % kLanes);
  float u[kBlockRows][4] = {};
  float w[kBlockRows][4] = {};
#pragma unroll 2
  for (int j = 0; j < first_row; ++j) AddColumn<0>(shared, j, first_row, c, u, w);
  AddTriangle<0>(shared, first_row, c, u, w);
#pragma unroll
  for (int r = 0; r < kBlockRows; ++r) {
    const int at = (first_row + r) * kWideDim + c;
    Four(&slot.u[at]) = make_float4(u[r][0], u[r][1], u[r][2], u[r][3]);
    Four(&slot.w[at]) = make_float4(w[r][0], w[r][1], w[r][2], w[r][3]);
  }
}

__global__ void __launch_bounds__(kThreads, 2)
    Prepare128(const GdnDims dims, const GdnTokens tokens, const GdnWork work) {
  extern __shared__ float4 shared_memory[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_memory);
  const int head = static_cast<int>(blockIdx.x);
  const int chunk = static_cast<int>(blockIdx.y);
  const int first_token = chunk * kChunk;
  const int count = tokens.ChunkCount(chunk);
  const GdnSlot slot = work.Slot(dims, chunk, head);
  LoadRows(dims, tokens, work, first_token, count, dims.KeyHead(head), shared);
  shared.gates.Load(dims, tokens, first_token, count, head);
  const int i = static_cast<int>(threadIdx.x);
  if (i < kChunk) {
    shared.grown_beta[i] = __fmul_rn(shared.gates.beta[i], shared.gates.grown[i]);
    shared.to_end[i] = i < count ? shared.gates.Decay(count - 1, i) : 0.0f;
  }
  Products(slot, shared);
  __syncthreads();
  if (i < kChunk) {
    Invert(shared);
  } else {
    MoveRows(dims, tokens, first_token, count, head, slot, shared);
  }
  __syncthreads();
  UpdateRows(slot, shared);
  if (i == 0) *slot.growth = shared.gates.grown[count - 1];
}

}  // namespace

bool FitsGdnPrepare128(const GdnDims& dims) {
  const uintptr_t places = reinterpret_cast<uintptr_t>(dims.q) |
                           reinterpret_cast<uintptr_t>(dims.k) |
                           reinterpret_cast<uintptr_t>(dims.v);
  return dims.key_dim == kWideDim && dims.value_dim == kWideDim &&
         places % FourBytes(dims.input_type) == 0 && SharedMemoryOfBlock() >= sizeof(Shared);
}

absl::Status LaunchGdnPrepare128(const GdnDims& dims, const GdnTokens& tokens, const GdnWork& work,
                                 CudaStream stream) {
  const dim3 blocks(static_cast<unsigned>(dims.value_heads),
                    static_cast<unsigned>(tokens.Chunks()));
  return Launch("gdn: preparing chunks", Prepare128, {blocks, kThreads, sizeof(Shared), stream},
                dims, tokens, work);
}

}  // namespace lockstep::kernels
