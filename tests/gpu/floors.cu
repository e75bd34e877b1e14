#include "kernels/cuda_launch.h"
#include "tests/gpu/floors.h"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kReadBlocks = 1024;
constexpr int kReadUnroll = 4;
constexpr int kChains = 16;
constexpr int kFmaSteps = 4096;
constexpr int kFmaBlocksPerMultiprocessor = 4;

__global__ void __launch_bounds__(kThreads)
    ReadKernel(const uint4* data, size_t count, uint32_t* scratch) {
  uint32_t mixed = 0;
  const size_t step = size_t{kReadBlocks} * kThreads;
  size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + (kReadUnroll - 1) * step < count; i += kReadUnroll * step) {
    uint4 x[kReadUnroll];
#pragma unroll
    for (int u = 0; u < kReadUnroll; ++u) x[u] = __ldcs(data + i + u * step);
#pragma unroll
    for (int u = 0; u < kReadUnroll; ++u) mixed ^= x[u].x ^ x[u].y ^ x[u].z ^ x[u].w;
  }
  for (; i < count; i += step) mixed ^= data[i].x ^ data[i].y ^ data[i].z ^ data[i].w;
  // Never true for the data it reads, but the compiler cannot know that.
  if (mixed == 0x9E3779B9) scratch[blockIdx.x] = mixed;
}

__global__ void __launch_bounds__(kThreads) FmaKernel(float factor, float* scratch) {
  float chains[kChains];
#pragma unroll
  for (int c = 0; c < kChains; ++c) chains[c] = static_cast<float>(threadIdx.x + c);
  for (int step = 0; step < kFmaSteps; ++step) {
#pragma unroll
    for (int c = 0; c < kChains; ++c) chains[c] = __fmaf_rn(chains[c], factor, 1.0f);
  }
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < kChains; ++c) sum = sum + chains[c];
  if (sum == 0.125f) scratch[blockIdx.x] = sum;
}

}  // namespace

absl::Status ReadFloor(const void* data, size_t bytes, void* scratch, CudaStream stream) {
  return Launch("read", ReadKernel, {kReadBlocks, kThreads, 0, stream},
                static_cast<const uint4*>(data), bytes / sizeof(uint4),
                static_cast<uint32_t*>(scratch));
}

int64_t FmaFloorOperations(int multiprocessors) {
  return int64_t{multiprocessors} * kFmaBlocksPerMultiprocessor * kThreads * kChains * kFmaSteps;
}

absl::Status FmaFloor(int multiprocessors, void* scratch, CudaStream stream) {
  const unsigned blocks = static_cast<unsigned>(multiprocessors * kFmaBlocksPerMultiprocessor);
  return Launch("fma", FmaKernel, {blocks, kThreads, 0, stream}, 0.999f,
                static_cast<float*>(scratch));
}

}  // namespace lockstep::kernels
