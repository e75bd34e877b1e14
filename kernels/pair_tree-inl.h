// The adjacent-pair tree over float32, vectorised across the nodes of a level; a Highway "-inl"
// header, included once per target. Its shape depends on the count alone: node i of a level is
// the sum of nodes 2i and 2i + 1 of the level below, and an odd last node is passed up.
//
// Example, inside a file that uses hwy/foreach_target.h:
//   float total = PairTreeSum(leaves, count);   // overwrites leaves

#if defined(LOCKSTEP_KERNELS_PAIR_TREE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_PAIR_TREE_INL_H_
#undef LOCKSTEP_KERNELS_PAIR_TREE_INL_H_
#else
#define LOCKSTEP_KERNELS_PAIR_TREE_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Replaces the `count` nodes of a level by those of the next, in place; returns their count.
HWY_INLINE size_t PairTreeLevel(float* nodes, size_t count) {
  const size_t pairs = count / 2;
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  for (; i + lanes <= pairs; i += lanes) {
    const auto low = hn::LoadU(d, nodes + 2 * i);
    const auto high = hn::LoadU(d, nodes + 2 * i + lanes);
    hn::StoreU(hn::Add(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low)), d, nodes + i);
  }
#endif
  for (; i < pairs; ++i) nodes[i] = nodes[2 * i] + nodes[2 * i + 1];
  if (count % 2 == 1) nodes[pairs] = nodes[count - 1];
  return pairs + count % 2;
}

HWY_INLINE float PairTreeSum(float* nodes, size_t count) {
  while (count > 1) count = PairTreeLevel(nodes, count);
  return nodes[0];
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
