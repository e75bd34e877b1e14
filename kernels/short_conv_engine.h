#ifndef LOCKSTEP_KERNELS_SHORT_CONV_ENGINE_H_
#define LOCKSTEP_KERNELS_SHORT_CONV_ENGINE_H_

// One token of the short convolution, vectorised across channels. Unchecked: short_conv.h is the
// door.
//
// Example:
//   ShortConvToken(FloatType::kBf16, rows, taps, channels, out_row);

#include <cstddef>

#include "kernels/types.h"

namespace lockstep::kernels {

// out[c] = round(chain over j of fma(taps[j * channels + c], rows[j][c])): rows are the 4 inputs,
// oldest first, of `type`; taps are float32.
void ShortConvToken(FloatType type, const void* const rows[4], const float* taps, size_t channels,
                    void* out);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_SHORT_CONV_ENGINE_H_
