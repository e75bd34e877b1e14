#include <algorithm>

#include "kernels/cuda_half.h"
#include "kernels/cuda_launch.h"
#include "kernels/float_formats.h"
#include "kernels/short_conv_engine_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 128;
// Rows a thread walks down its channels: the 3 rows above are read again by the next.
constexpr int kRowsOfThread = 32;
constexpr int kTaps = 4;
constexpr int kHalo = 3;

struct Shape {
  int64_t tokens;
  int64_t channels;
};

// kWide consecutive elements of Format, widened.
template <class Format, int kWide>
__device__ void LoadWide(const typename Format::Storage* from, float (&x)[kWide]) {
  if constexpr (kWide == 1) {
    x[0] = Format::Load(*from);
  } else if constexpr (Format::kType == FloatType::kBf16) {
    const uint4 packed = __ldg(reinterpret_cast<const uint4*>(from));
#pragma unroll
    for (int i = 0; i < kWide; ++i) x[i] = Bf16::Load(Element(packed, i));
  } else {
#pragma unroll
    for (int i = 0; i < kWide; i += 4) {
      const float4 four = __ldg(reinterpret_cast<const float4*>(from + i));
      x[i] = four.x, x[i + 1] = four.y, x[i + 2] = four.z, x[i + 3] = four.w;
    }
  }
}

template <class Format, int kWide>
__device__ void StoreWide(typename Format::Storage* to, const float (&x)[kWide]) {
  if constexpr (kWide == 1) {
    *to = Format::Store(x[0]);
  } else if constexpr (Format::kType == FloatType::kBf16) {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = uint32_t{Bf16::Store(x[2 * i])} | uint32_t{Bf16::Store(x[2 * i + 1])} << 16;
    }
    __stcs(reinterpret_cast<uint4*>(to), make_uint4(words[0], words[1], words[2], words[3]));
  } else {
#pragma unroll
    for (int i = 0; i < kWide; i += 4) {
      __stcs(reinterpret_cast<float4*>(to + i),
             make_float4(F32::Store(x[i]), F32::Store(x[i + 1]), F32::Store(x[i + 2]),
                         F32::Store(x[i + 3])));
    }
  }
}

// A thread: kWide channels, kRowsOfThread tokens.
template <class Format, class Weight, int kWide>
__global__ void __launch_bounds__(kThreads)
    Convolve(const Shape shape, const typename Format::Storage* x,
             const typename Format::Storage* halo, const typename Weight::Storage* weight,
             typename Format::Storage* out) {
  const int64_t channel = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWide;
  if (channel >= shape.channels) return;
  float taps[kTaps][kWide];
#pragma unroll
  for (int i = 0; i < kWide; ++i) {
#pragma unroll
    for (int j = 0; j < kTaps; ++j) taps[j][i] = Weight::Load(weight[(channel + i) * kTaps + j]);
  }
  const auto load = [&](int64_t token, float(&row)[kWide]) {
    if (token >= 0) {
      LoadWide<Format, kWide>(x + token * shape.channels + channel, row);
    } else if (halo != nullptr) {
      LoadWide<Format, kWide>(halo + (token + kHalo) * shape.channels + channel, row);
    } else {
#pragma unroll
      for (float& value : row) value = 0.0f;
    }
  };
  for (int64_t begin = int64_t{blockIdx.y} * kRowsOfThread; begin < shape.tokens;
       begin += int64_t{gridDim.y} * kRowsOfThread) {
    float rows[kTaps][kWide];
#pragma unroll
    for (int j = 0; j < kHalo; ++j) load(begin - kHalo + j, rows[j]);
    const int64_t end = min(shape.tokens, begin + kRowsOfThread);
    // Unrolled by the taps, so that the ring of rows stays in registers.
    for (int64_t first = begin; first < end; first += kTaps) {
#pragma unroll
      for (int u = 0; u < kTaps; ++u) {
        if (first + u >= end) break;
        load(first + u, rows[(u + kHalo) % kTaps]);
        float sum[kWide] = {};
#pragma unroll
        for (int j = 0; j < kTaps; ++j) {
#pragma unroll
          for (int i = 0; i < kWide; ++i) {
            sum[i] = __fmaf_rn(taps[j][i], rows[(u + j) % kTaps][i], sum[i]);
          }
        }
        StoreWide<Format, kWide>(out + (first + u) * shape.channels + channel, sum);
      }
    }
  }
}

template <class Storage>
__global__ void __launch_bounds__(kThreads)
    NextHalo(int64_t channels, const Storage* halo, const Storage* rows, int64_t count,
             Storage* next) {
  const int64_t channel = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (channel >= channels) return;
  Storage values[kHalo];
#pragma unroll
  for (int j = 0; j < kHalo; ++j) {
    const int64_t token = count - kHalo + j;
    values[j] = token >= 0        ? rows[token * channels + channel]
                : halo != nullptr ? halo[(token + kHalo) * channels + channel]
                                  : Storage{};
  }
#pragma unroll
  for (int j = 0; j < kHalo; ++j) next[j * channels + channel] = values[j];
}

bool IsAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % sizeof(uint4) == 0;
}

template <class Format, class Weight>
absl::Status LaunchAs(const ShortConvParams& p, const void* halo, int64_t first, int64_t count,
                      CudaStream stream) {
  using Storage = typename Format::Storage;
  constexpr int kWide = 8;
  const Storage* x = static_cast<const Storage*>(p.x) + first * p.channels;
  Storage* out = static_cast<Storage*>(p.out) + first * p.channels;
  const auto* before = static_cast<const Storage*>(halo);
  const auto* weight = static_cast<const typename Weight::Storage*>(p.weight);
  const Shape shape = {count, p.channels};
  constexpr int64_t kMostRowBlocks = 65'535;
  const unsigned row_blocks =
      static_cast<unsigned>(std::min<int64_t>(DivideUp(count, kRowsOfThread), kMostRowBlocks));
  if (p.channels % kWide == 0 && IsAligned(x) && IsAligned(out) && IsAligned(before)) {
    const dim3 blocks(DivideUp(p.channels, kThreads * kWide), row_blocks);
    return Launch("short convolution", Convolve<Format, Weight, kWide>,
                  {blocks, kThreads, 0, stream}, shape, x, before, weight, out);
  }
  const dim3 blocks(DivideUp(p.channels, kThreads), row_blocks);
  return Launch("short convolution", Convolve<Format, Weight, 1>, {blocks, kThreads, 0, stream},
                shape, x, before, weight, out);
}

}  // namespace

absl::Status LaunchShortConv(const ShortConvParams& p, const void* halo, int64_t first,
                             int64_t count, CudaStream stream) {
  if (p.type == FloatType::kBf16) {
    return p.weight_type == FloatType::kBf16 ? LaunchAs<Bf16, Bf16>(p, halo, first, count, stream)
                                             : LaunchAs<Bf16, F32>(p, halo, first, count, stream);
  }
  return p.weight_type == FloatType::kBf16 ? LaunchAs<F32, Bf16>(p, halo, first, count, stream)
                                           : LaunchAs<F32, F32>(p, halo, first, count, stream);
}

absl::Status LaunchNextHalo(const ShortConvParams& p, const void* halo, const void* rows,
                            int64_t count, void* next, CudaStream stream) {
  const LaunchShape shape = {DivideUp(p.channels, kThreads), kThreads, 0, stream};
  if (p.type == FloatType::kBf16) {
    return Launch("short convolution's tail", NextHalo<uint16_t>, shape, p.channels,
                  static_cast<const uint16_t*>(halo), static_cast<const uint16_t*>(rows), count,
                  static_cast<uint16_t*>(next));
  }
  return Launch("short convolution's tail", NextHalo<uint32_t>, shape, p.channels,
                static_cast<const uint32_t*>(halo), static_cast<const uint32_t*>(rows), count,
                static_cast<uint32_t*>(next));
}

}  // namespace lockstep::kernels
