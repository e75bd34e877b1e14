#ifndef LOCKSTEP_TESTS_GPU_STATE_BENCHES_H_
#define LOCKSTEP_TESTS_GPU_STATE_BENCHES_H_

// The measurements of state_twins_bench, one function per family of programs.
//
// Example:
//   GpuBench bench(only);
//   BenchDigest(bench);

#include "tests/gpu/gpu_bench.h"

namespace lockstep::kernels {

void BenchDigest(GpuBench& bench);
void BenchDelta(GpuBench& bench);
void BenchGdn(GpuBench& bench);
void BenchShortConv(GpuBench& bench);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_TESTS_GPU_STATE_BENCHES_H_
