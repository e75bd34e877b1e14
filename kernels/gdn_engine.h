#ifndef LOCKSTEP_KERNELS_GDN_ENGINE_H_
#define LOCKSTEP_KERNELS_GDN_ENGINE_H_

// The arithmetic of the gated delta net on one value head, vectorised across outputs with run-time
// dispatch (kernels/SPECIFICATION.md, "Gated delta net"). Unchecked: gdn.h and gdn_cp.h are the
// doors.
//
// Example:
//   GdnScratch scratch(key_dim, value_dim);
//   GdnChunkHead(head, state, scratch);   // state [K, V] is read and overwritten

#include <cstddef>
#include <cstdint>

#include "hwy/aligned_allocator.h"
#include "kernels/types.h"

namespace lockstep::kernels {

inline constexpr size_t kGdnChunk = 64;

// One value head over a run of consecutive tokens. Pointers are at the head's first element of the
// first token; strides are elements from one token to the next.
struct GdnHead {
  const void* q = nullptr;  // key_dim elements a token, of input_type
  const void* k = nullptr;
  const void* v = nullptr;  // value_dim elements
  const void* g = nullptr;  // one element, of gate_type
  const void* beta = nullptr;
  void* o = nullptr;  // value_dim elements, of out_type
  size_t qk_stride = 0;
  size_t v_stride = 0;
  size_t gate_stride = 0;
  size_t o_stride = 0;
  FloatType input_type = FloatType::kF32;
  FloatType gate_type = FloatType::kF32;
  FloatType out_type = FloatType::kF32;
  size_t tokens = 0;
  size_t key_dim = 0;
  size_t value_dim = 0;
};

// Working memory of one head, reused from head to head.
class GdnScratch {
 public:
  GdnScratch(size_t key_dim, size_t value_dim);

  float* data() const { return floats_.get(); }

 private:
  hwy::AlignedFreeUniquePtr<float[]> floats_;
};

// gdn/recurrent@v1 and gdn/chunk64@v1: writes o, overwrites `state` [K, V] by the end state.
void GdnRecurrentHead(const GdnHead& head, float* state, GdnScratch& scratch);
void GdnChunkHead(const GdnHead& head, float* state, GdnScratch& scratch);

// The run as a map of its start state, end = m * start + b, with m [K, K] and b [K, V]: its chunks'
// maps composed in ascending order. Reads no o.
void GdnAffineHead(const GdnHead& head, float* m, float* b, GdnScratch& scratch);

// state = m * state + b.
void GdnAdvanceState(const float* m, const float* b, size_t key_dim, size_t value_dim, float* state,
                     GdnScratch& scratch);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_GDN_ENGINE_H_
