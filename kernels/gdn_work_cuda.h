#ifndef LOCKSTEP_KERNELS_GDN_WORK_CUDA_H_
#define LOCKSTEP_KERNELS_GDN_WORK_CUDA_H_

// What the kernels of the gated delta net hand to one another, and their launches. A long run is
// done in groups of chunks, so that the workspace is bounded: first every chunk of the group is
// prepared (in parallel: all that needs no state), then the group is finished chunk after chunk.
//
// Example:
//   LOCKSTEP_RETURN_IF_ERROR(LaunchGdnNorms(dims, tokens, work, stream));
//   LOCKSTEP_RETURN_IF_ERROR(LaunchGdnPrepare(dims, tokens, work, stream));
//   LOCKSTEP_RETURN_IF_ERROR(LaunchGdnFinish(dims, tokens, work, state, stream));

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda_support.h"
#include "kernels/hd.h"
#include "kernels/types.h"

namespace lockstep::kernels {

inline constexpr int kChunk = 64;  // kGdnChunk
// Tokens of one group.
inline constexpr int64_t kGdnGroupTokens = 32 * kChunk;

// The sizes, types and tensors of a call, as its kernels see them.
struct GdnDims {
  const void* q;
  const void* k;
  const void* v;
  const void* g;
  const void* beta;
  void* o;
  int key_heads;
  int value_heads;
  int key_dim;
  int value_dim;
  FloatType input_type;
  FloatType gate_type;
  FloatType out_type;
  float scale;  // of q: 1 / sqrt(K), from float64

  LOCKSTEP_HD int KeyHead(int head) const {
    return static_cast<int>(int64_t{head} * key_heads / value_heads);
  }
};

// Tokens [first, first + count) of the tensors.
struct GdnTokens {
  int64_t first;
  int count;  // at most kGdnGroupTokens

  LOCKSTEP_HD int Chunks() const { return (count + kChunk - 1) / kChunk; }
  LOCKSTEP_HD int ChunkCount(int chunk) const {
    const int left = count - chunk * kChunk;
    return left < kChunk ? left : kChunk;
  }
};

// One head's prepared chunk; rows are tokens of the chunk (kernels/SPECIFICATION.md, "Gated delta
// net", has the names).
struct GdnSlot {
  float* w;        // [chunk, K]
  float* u;        // [chunk, V]
  float* p;        // [chunk, chunk], lower triangle with the diagonal
  float* q_grown;  // [chunk, K]: q_i,c * e_i
  float* k_end;    // [chunk, K]: k_i,c * E[last, i]
  float* growth;   // [1]: e_last
};

struct GdnWork {
  float* q_norms;  // [group tokens, Hk]: 1 / sqrt(sum of squares + eps)
  float* k_norms;
  float* slots;
  float* maps;  // a chunk's map of each slot, when wanted
  int64_t slot_floats;
  int64_t map_floats;

  LOCKSTEP_HD int64_t SlotIndex(const GdnDims& dims, int chunk, int head) const {
    return int64_t{chunk} * dims.value_heads + head;
  }
  LOCKSTEP_HD GdnSlot Slot(const GdnDims& dims, int chunk, int head) const {
    GdnSlot slot;
    slot.w = slots + SlotIndex(dims, chunk, head) * slot_floats;
    slot.q_grown = slot.w + kChunk * dims.key_dim;
    slot.k_end = slot.q_grown + kChunk * dims.key_dim;
    slot.u = slot.k_end + kChunk * dims.key_dim;
    slot.p = slot.u + kChunk * dims.value_dim;
    slot.growth = slot.p + kChunk * kChunk;
    return slot;
  }
  LOCKSTEP_HD float* Map(const GdnDims& dims, int chunk, int head) const {
    return maps + SlotIndex(dims, chunk, head) * map_floats;
  }
};

absl::Status LaunchGdnNorms(const GdnDims& dims, const GdnTokens& tokens, const GdnWork& work,
                            CudaStream stream);
absl::Status LaunchGdnPrepare(const GdnDims& dims, const GdnTokens& tokens, const GdnWork& work,
                              CudaStream stream);
// Outputs and, in place, the state [Hv, K, V].
absl::Status LaunchGdnFinish(const GdnDims& dims, const GdnTokens& tokens, const GdnWork& work,
                             float* state, CudaStream stream);
absl::Status LaunchGdnRecurrence(const GdnDims& dims, const GdnTokens& tokens, const GdnWork& work,
                                 float* state, CudaStream stream);
// Every prepared chunk's map into work.maps.
absl::Status LaunchGdnChunkMaps(const GdnDims& dims, const GdnTokens& tokens, const GdnWork& work,
                                CudaStream stream);
// The maps of consecutive chunks as one: into `maps`, or onto what is there when `more`.
absl::Status LaunchGdnCompose(const GdnDims& dims, const GdnTokens& tokens, const GdnWork& work,
                              bool more, float* maps, float* spare, CudaStream stream);
absl::Status LaunchGdnAdvance(const GdnDims& dims, const float* maps, const float* from, float* to,
                              CudaStream stream);

// The same for K = V = 128 and aligned tensors, on a device with room in shared memory.
bool FitsGdnPrepare128(const GdnDims& dims);
absl::Status LaunchGdnPrepare128(const GdnDims& dims, const GdnTokens& tokens, const GdnWork& work,
                                 CudaStream stream);
bool FitsGdnFinish128(const GdnDims& dims, const float* state);
absl::Status LaunchGdnFinish128(const GdnDims& dims, const GdnTokens& tokens, const GdnWork& work,
                                float* state, CudaStream stream);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_GDN_WORK_CUDA_H_
