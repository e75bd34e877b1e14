#ifndef LOCKSTEP_KERNELS_SCALED_ADD_H_
#define LOCKSTEP_KERNELS_SCALED_ADD_H_

// Elementwise BF16 steps of the adapter programs; each element depends on its operands alone.
//
// Example:
//   ScaledAddBf16(base, delta, 0.5f, count, out);   // out = round(float(base) + 0.5f * delta)

#include <cstddef>
#include <cstdint>

namespace lockstep::kernels {

// out[i] = round(float(base[i]) + scale * delta[i]): one multiply, one add, one store. `out` may
// be `base`.
void ScaledAddBf16(const uint16_t* base, const float* delta, float scale, size_t count,
                   uint16_t* out);

// out[i] = round(left[i] + right[i]) of float32 operands.
void AddToBf16(const float* left, const float* right, size_t count, uint16_t* out);

// values[i] = scale * values[i], a store: a NaN (infinity times zero) is canonical.
void ScaleF32(float scale, size_t count, float* values);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_SCALED_ADD_H_
