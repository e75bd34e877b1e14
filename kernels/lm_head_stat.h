#ifndef LOCKSTEP_KERNELS_LM_HEAD_STAT_H_
#define LOCKSTEP_KERNELS_LM_HEAD_STAT_H_

// The scalar steps of `lm_head/selected_logprob@v1` above the logits, for host and device
// (kernels/SPECIFICATION.md, "LM head").
//
// Example:
//   LmHeadTileStat both = MergeTileStats(left, right);
//   float logprob = LogprobOf(selected_logit, root);

#include "kernels/exact_math.h"
#include "kernels/float_formats.h"
#include "kernels/hd.h"
#include "kernels/lm_head.h"

namespace lockstep::kernels {

// From a tile's largest logit and its sum of exponentials. A sum that is NaN states two.
LOCKSTEP_HD inline LmHeadTileStat MakeTileStat(float max, float sum) {
  if (sum != sum) max = sum;
  return {Canonicalise(max), Canonicalise(sum)};
}

LOCKSTEP_HD inline LmHeadTileStat MergeTileStats(LmHeadTileStat left, LmHeadTileStat right) {
  const float max = right.max > left.max ? right.max : left.max;
  return {max, left.sum * ExpF32(left.max - max) + right.sum * ExpF32(right.max - max)};
}

LOCKSTEP_HD inline float LogprobOf(float selected_logit, LmHeadTileStat root) {
  return Canonicalise((selected_logit - root.max) - LogF32(root.sum));
}

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_LM_HEAD_STAT_H_
