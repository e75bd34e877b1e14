#ifndef LOCKSTEP_TESTS_GPU_BENCHES_H_
#define LOCKSTEP_TESTS_GPU_BENCHES_H_

// The measurements of twins_bench, one function per family of programs.
//
// Example:
//   GpuBench bench(only);
//   BenchElementwise(bench);

#include "tests/gpu/gpu_bench.h"

namespace lockstep::kernels {

void BenchElementwise(GpuBench& bench);  // SwiGLU, MoE, RMSNorm
void BenchProducts(GpuBench& bench);
void BenchHeads(GpuBench& bench);  // LM head, attention, RoPE, router, adapters

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_TESTS_GPU_BENCHES_H_
