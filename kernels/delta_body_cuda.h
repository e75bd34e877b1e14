#ifndef LOCKSTEP_KERNELS_DELTA_BODY_CUDA_H_
#define LOCKSTEP_KERNELS_DELTA_BODY_CUDA_H_

// How the sections of a delta lie in one block of device memory (its body), and one page's place
// in them; for the CUDA twins of delta alone.
//
// Example:
//   uint64_t offsets[kDeltaSections];
//   const uint64_t needed = BodyOffsets(section_bytes, offsets);

#include <cstdint>

#include "kernels/delta_layout.h"
#include "kernels/hd.h"

namespace lockstep::kernels {

// Sections begin at multiples of this.
inline constexpr uint64_t kBodyAlignment = 256;

// Planes that exist for the same element sizes share their offsets: plane 0 for all; 1 from 2
// bytes on; 2 and 3 from 4; 4 to 7 from 8.
inline constexpr int kPlaneClasses = 4;

LOCKSTEP_HD inline int PlaneClass(uint32_t plane) {
  return plane == 0 ? 0 : plane == 1 ? 1 : plane < 4 ? 2 : 3;
}

// The largest class an element of 1, 2, 4 or 8 bytes has.
LOCKSTEP_HD inline int LastPlaneClass(uint32_t element_bytes) {
  return PlaneClass(element_bytes - 1);
}

// Places of sections 1.. (the head is not in the body); returns the bytes of all.
LOCKSTEP_HD inline uint64_t BodyOffsets(const uint64_t section_bytes[], uint64_t offsets[]) {
  uint64_t used = 0;
  offsets[kDeltaHead] = 0;
  for (uint64_t s = 1; s < kDeltaSections; ++s) {
    offsets[s] = used;
    used += (section_bytes[s] + kBodyAlignment - 1) / kBodyAlignment * kBodyAlignment;
  }
  return used;
}

// One page on the device: its counts, and where its shares begin in their sections.
struct DeviceDeltaPage {
  uint32_t changed;
  uint32_t gap_bytes;
  uint32_t element_bytes;
  uint32_t length;
  uint64_t gap_offset;
  uint64_t raw_offset;
  uint64_t plane_offsets[kPlaneClasses];
};

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_DELTA_BODY_CUDA_H_
