// The part of gdn/chunk64@v1 that follows the state, for any dims, and gdn/recurrent@v1. A block
// owns some columns of a head's state; columns never meet.

#include "kernels/cuda_launch.h"
#include "kernels/gdn_device_cuda.h"
#include "kernels/gdn_work_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kColumns = 32;
constexpr int kRowGroups = 8;

struct Shared {
  float x[kChunk][kColumns];     // X: the corrected values
  float from[kChunk][kColumns];  // what the queries read of the start state
};

// Block (32, 8); state is this head's, in place.
__global__ void __launch_bounds__(kColumns* kRowGroups)
    Finish(const GdnDims dims, const GdnTokens tokens, const GdnWork work, float* states) {
  __shared__ Shared shared;
  const int head = static_cast<int>(blockIdx.x);
  const int column = static_cast<int>(threadIdx.x);
  const int v = static_cast<int>(blockIdx.y) * kColumns + column;
  const bool inside = v < dims.value_dim;
  const int group = static_cast<int>(threadIdx.y);
  float* state = states + (int64_t{head} * dims.key_dim) * dims.value_dim + v;
  for (int chunk = 0; chunk < tokens.Chunks(); ++chunk) {
    const int count = tokens.ChunkCount(chunk);
    const GdnSlot slot = work.Slot(dims, chunk, head);
    for (int i = group; inside && i < count; i += kRowGroups) {
      float recalled[1], read[1];
      ChainRows<1>(slot.w + i * dims.key_dim, 0, state, dims.value_dim, dims.key_dim, recalled);
      ChainRows<1>(slot.q_grown + i * dims.key_dim, 0, state, dims.value_dim, dims.key_dim, read);
      shared.x[i][column] = __fsub_rn(slot.u[i * dims.value_dim + v], recalled[0]);
      shared.from[i][column] = read[0];
    }
    __syncthreads();
    for (int i = group; inside && i < count; i += kRowGroups) {
      float own[1];
      ChainRows<1>(slot.p + i * kChunk, 0, &shared.x[0][column], kColumns, i + 1, own);
      const int64_t row = ValueRow(dims, tokens, chunk * kChunk + i, head);
      StoreFloat(dims.out_type, dims.o, row * dims.value_dim + v,
                 __fadd_rn(shared.from[i][column], own[0]));
    }
    const float growth = *slot.growth;
    for (int c = group; inside && c < dims.key_dim; c += kRowGroups) {
      float added = 0.0f;
      for (int i = 0; i < count; ++i) {
        added = __fmaf_rn(slot.k_end[i * dims.key_dim + c], shared.x[i][column], added);
      }
      float& s = state[int64_t{c} * dims.value_dim];
      s = __fadd_rn(__fmul_rn(growth, s), added);
    }
    __syncthreads();
  }
  for (int c = group; inside && c < dims.key_dim; c += kRowGroups) {
    float& s = state[int64_t{c} * dims.value_dim];
    s = F32::Store(s);
  }
}

constexpr int kRegisterDim = 128;

// One thread's column of the state: in registers when K is kRegisterDim, else in memory.
template <bool kInRegisters>
struct Column {
  float values[kInRegisters ? kRegisterDim : 1];
  float* memory;
  int64_t stride;

  __device__ void Load(int key_dim) {
    if constexpr (kInRegisters) {
#pragma unroll
      for (int c = 0; c < kRegisterDim; ++c) values[c] = memory[c * stride];
    }
  }
  __device__ void Store(int key_dim) {
    if constexpr (kInRegisters) {
#pragma unroll
      for (int c = 0; c < kRegisterDim; ++c) memory[c * stride] = F32::Store(values[c]);
    } else {
      for (int c = 0; c < key_dim; ++c) memory[c * stride] = F32::Store(memory[c * stride]);
    }
  }
  // Calls fn(c, S[c]) for each c ascending.
  template <class Fn>
  __device__ void ForEach(int key_dim, Fn fn) {
    if constexpr (kInRegisters) {
#pragma unroll
      for (int c = 0; c < kRegisterDim; ++c) fn(c, values[c]);
    } else {
      for (int c = 0; c < key_dim; ++c) fn(c, memory[c * stride]);
    }
  }
};

// A warp a head and 32 columns of its state; dynamic shared memory holds k and q of a token.
template <bool kInRegisters>
__global__ void __launch_bounds__(kColumns)
    Recurrence(const GdnDims dims, const GdnTokens tokens, const GdnWork work, float* states) {
  extern __shared__ float rows[];
  float* const k = rows;
  float* const q = rows + dims.key_dim;
  const int head = static_cast<int>(blockIdx.x);
  const int v = static_cast<int>(blockIdx.y) * kColumns + static_cast<int>(threadIdx.x);
  const bool inside = v < dims.value_dim;
  const int key_head = dims.KeyHead(head);
  Column<kInRegisters> state;
  state.stride = dims.value_dim;
  state.memory = states + int64_t{head} * dims.key_dim * dims.value_dim + v;
  if (inside) state.Load(dims.key_dim);
  for (int token = 0; token < tokens.count; ++token) {
    __syncwarp();
    for (int c = threadIdx.x; c < dims.key_dim; c += kColumns) {
      k[c] = NormalisedKey(dims, work, tokens, token, key_head, c);
      q[c] = NormalisedQuery(dims, work, tokens, token, key_head, c);
    }
    __syncwarp();
    if (!inside) continue;
    const int64_t row = ValueRow(dims, tokens, token, head);
    const float growth = ExpF32(LoadFloat(dims.gate_type, dims.g, row));
    const float beta = LoadFloat(dims.gate_type, dims.beta, row);
    const float value = LoadFloat(dims.input_type, dims.v, row * dims.value_dim + v);
    float recalled = 0.0f;
    state.ForEach(dims.key_dim, [&](int c, float& s) {
      s = __fmul_rn(growth, s);
      recalled = __fmaf_rn(s, k[c], recalled);
    });
    const float delta = __fmul_rn(beta, __fsub_rn(value, recalled));
    float out = 0.0f;
    state.ForEach(dims.key_dim, [&](int c, float& s) {
      s = __fmaf_rn(k[c], delta, s);
      out = __fmaf_rn(s, q[c], out);
    });
    StoreFloat(dims.out_type, dims.o, row * dims.value_dim + v, out);
  }
  if (inside) state.Store(dims.key_dim);
}

}  // namespace

absl::Status LaunchGdnFinish(const GdnDims& dims, const GdnTokens& tokens, const GdnWork& work,
                             float* state, CudaStream stream) {
  if (FitsGdnFinish128(dims, state)) return LaunchGdnFinish128(dims, tokens, work, state, stream);
  const dim3 blocks(static_cast<unsigned>(dims.value_heads), DivideUp(dims.value_dim, kColumns));
  return Launch("gdn: finishing chunks", Finish, {blocks, dim3(kColumns, kRowGroups), 0, stream},
                dims, tokens, work, state);
}

absl::Status LaunchGdnRecurrence(const GdnDims& dims, const GdnTokens& tokens, const GdnWork& work,
                                 float* state, CudaStream stream) {
  const dim3 blocks(static_cast<unsigned>(dims.value_heads), DivideUp(dims.value_dim, kColumns));
  const LaunchShape shape = {blocks, kColumns,
                             2 * sizeof(float) * static_cast<size_t>(dims.key_dim), stream};
  if (dims.key_dim == kRegisterDim) {
    return Launch("gdn: recurrence", Recurrence<true>, shape, dims, tokens, work, state);
  }
  return Launch("gdn: recurrence", Recurrence<false>, shape, dims, tokens, work, state);
}

}  // namespace lockstep::kernels
