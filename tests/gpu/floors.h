#ifndef LOCKSTEP_TESTS_GPU_FLOORS_H_
#define LOCKSTEP_TESTS_GPU_FLOORS_H_

// What the card can do at most, for the figures of twins_bench to stand beside.
//
// Example:
//   LOCKSTEP_RETURN_IF_ERROR(ReadFloor(data, bytes, scratch, stream));

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda_support.h"

namespace lockstep::kernels {

// Reads `bytes` (a multiple of 16) once and writes 4 bytes per block to `scratch` (4,096 bytes).
absl::Status ReadFloor(const void* data, size_t bytes, void* scratch, CudaStream stream);

// Float32 multiply-adds of FmaFloor, all multiprocessors busy with independent chains.
int64_t FmaFloorOperations(int multiprocessors);
absl::Status FmaFloor(int multiprocessors, void* scratch, CudaStream stream);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_TESTS_GPU_FLOORS_H_
