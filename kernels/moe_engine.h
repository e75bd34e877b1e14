#ifndef LOCKSTEP_KERNELS_MOE_ENGINE_H_
#define LOCKSTEP_KERNELS_MOE_ENGINE_H_

// The vector side of moe.h: one stretch of one row, operands already validated.

#include <cstddef>
#include <cstdint>

#include "kernels/moe.h"

namespace lockstep::kernels {

struct MoeLeafStretch {
  MoeLeafProgram program;
  float scale;
  size_t count;
  const uint16_t* routed;
  const uint16_t* shared;
  uint16_t* out;
};

void RunMoeLeafStretch(const MoeLeafStretch& stretch);

struct MoeFoldStretch {
  MoeFoldProgram program;
  size_t contributors;
  size_t contributor_stride;  // elements
  size_t count;
  const uint16_t* first;  // the first contributor's stretch
  uint16_t* out;
};

void RunMoeFoldStretch(const MoeFoldStretch& stretch);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_MOE_ENGINE_H_
