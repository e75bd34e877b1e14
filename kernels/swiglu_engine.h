#ifndef LOCKSTEP_KERNELS_SWIGLU_ENGINE_H_
#define LOCKSTEP_KERNELS_SWIGLU_ENGINE_H_

// The vector side of swiglu.h: one stretch of one row, operands already validated.

#include <cstddef>
#include <cstdint>

#include "kernels/swiglu.h"

namespace lockstep::kernels {

struct SwigluStretch {
  SwigluProgram program;
  FloatType type;
  const float* silu;  // 65,536 entries, or null to compute silu/ieee@v1
  float limit;        // the clamped program's
  size_t count;
  const uint16_t* gate;
  const uint16_t* up;
  uint16_t* out;
};

void RunSwigluStretch(const SwigluStretch& stretch);

struct SwigluVjpStretch {
  FloatType type;
  const float* sigmoid;  // 65,536 entries, or null to compute
  size_t count;
  const uint16_t* gate;
  const uint16_t* up;
  const uint16_t* dout;
  uint16_t* dgate;
  uint16_t* dup;
};

void RunSwigluVjpStretch(const SwigluVjpStretch& stretch);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_SWIGLU_ENGINE_H_
