#include <algorithm>
#include <cstdint>

#include "kernels/cuda_half.h"
#include "kernels/cuda_launch.h"
#include "kernels/rope_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = int64_t{1} << 20;

// A thread turns one pair of a head, or stores one element that passes through: D - d/2 items a
// head.
template <class Format>
__global__ void __launch_bounds__(kThreads) RopeKernel(RopeParams p, int64_t items) {
  const int64_t half = p.rotary_dim / 2;
  const int64_t head_items = p.head_dim - half;
  for (int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x; item < items;
       item += int64_t{gridDim.x} * kThreads) {
    const int64_t i = item % head_items;
    const int64_t head = item / head_items % p.heads;
    const int64_t row = item / head_items / p.heads;
    const uint16_t* x =
        static_cast<const uint16_t*>(p.x) + row * p.x_row_stride + head * p.head_dim;
    uint16_t* out = static_cast<uint16_t*>(p.out) + row * p.out_row_stride + head * p.head_dim;
    const int64_t position = p.positions[row];
    const bool known = position >= 0 && position < p.table_positions;
    const float nan = F32FromBits(kF32CanonicalNan);
    if (i >= half) {
      const float passed = LoadHalf<Format>(x[half + i]);
      out[half + i] = StoreHalf<Format>(known ? passed : nan);
      continue;
    }
    const float left = LoadHalf<Format>(x[i]);
    const float right = LoadHalf<Format>(x[half + i]);
    const float c = known ? p.cos[position * half + i] : nan;
    const float s = known ? p.sin[position * half + i] : nan;
    out[i] = StoreHalf<Format>(left * c + -right * s);
    out[half + i] = StoreHalf<Format>(right * c + left * s);
  }
}

}  // namespace

absl::Status RopeNeoxCuda(const RopeParams& params, CudaStream stream) {
  if (absl::Status s = CheckRopeNeox(params); !s.ok()) return s;
  RopeParams p = params;
  if (p.x_row_stride == 0) p.x_row_stride = p.heads * p.head_dim;
  if (p.out_row_stride == 0) p.out_row_stride = p.heads * p.head_dim;
  const int64_t items = p.rows * p.heads * (p.head_dim - p.rotary_dim / 2);
  const int64_t blocks = std::min((items + kThreads - 1) / kThreads, kMaxBlocks);
  const LaunchShape shape = {static_cast<unsigned>(blocks), kThreads, 0, stream};
  return p.type == FloatType::kBf16 ? Launch("rope", RopeKernel<Bf16>, shape, p, items)
                                    : Launch("rope", RopeKernel<F16>, shape, p, items);
}

}  // namespace lockstep::kernels
