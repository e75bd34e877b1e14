#ifndef LOCKSTEP_KERNELS_ROUTER_ORDER_H_
#define LOCKSTEP_KERNELS_ROUTER_ORDER_H_

// The order of experts in `router_topk/stable@v1`, for host and device.
//
// Example:
//   bool first = IsBetterChoice(choice[i], i, choice[j], j);

#include <cstdint>

#include "kernels/hd.h"

namespace lockstep::kernels {

// Added to the sum that sigmoid weights are divided by, so that a row of zeros stays one.
inline constexpr float kSigmoidSumFloor = 1e-20f;

// A total order: greater first, NaN after every number, equals by the lower id.
LOCKSTEP_HD inline bool IsBetterChoice(float a, int32_t a_id, float b, int32_t b_id) {
  const bool a_is_nan = a != a;
  const bool b_is_nan = b != b;
  if (a_is_nan != b_is_nan) return b_is_nan;
  if (a > b) return true;
  if (b > a) return false;
  return a_id < b_id;
}

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_ROUTER_ORDER_H_
