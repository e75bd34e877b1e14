#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/cuda_half.h"
#include "kernels/cuda_launch.h"
#include "kernels/cuda_rows.h"
#include "kernels/silu_ieee.h"
#include "kernels/swiglu_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kUnroll = 2;
constexpr int kTile = kThreads * kUnroll;

// Below this many elements, filling shared memory costs more than it saves.
constexpr int64_t kWindowElements = int64_t{1} << 20;

// The part of a gate table that is kept in shared memory: magnitudes of kCount consecutive bit
// patterns from kFirst on, of both signs. Gates outside it (tiny, huge, not finite) are read from
// device memory.
template <class Format>
struct Window {
  static constexpr uint32_t kFirst = (127 - 24) << 7;  // 2^-24 up to 2^8
  static constexpr uint32_t kCount = 32 << 7;
  static constexpr int kBlocksPerMultiprocessor = 2;
};

template <>
struct Window<F16> {
  static constexpr uint32_t kFirst = (15 - 10) << 10;  // 2^-10 up to 2^4
  static constexpr uint32_t kCount = 14 << 10;
  static constexpr int kBlocksPerMultiprocessor = 1;
};

template <class Format>
constexpr size_t kWindowBytes = 2 * Window<Format>::kCount * sizeof(float);

// Fills the block's window.
template <class Format>
__device__ void FillWindow(const float* table, float* window) {
  constexpr uint32_t kCount = Window<Format>::kCount;
  for (uint32_t i = threadIdx.x; i < kCount / 4; i += kThreads) {
    const float4* positive = reinterpret_cast<const float4*>(table + Window<Format>::kFirst);
    const float4* negative =
        reinterpret_cast<const float4*>(table + 0x8000 + Window<Format>::kFirst);
    reinterpret_cast<float4*>(window)[i] = __ldg(positive + i);
    reinterpret_cast<float4*>(window + kCount)[i] = __ldg(negative + i);
  }
  __syncthreads();
}

// table[bits of each gate].
template <class Format>
__device__ inline void LookUp(const float* table, const float* window, uint32_t window_count,
                              const uint4& gates, float (&values)[kEight]) {
  constexpr uint32_t kCount = Window<Format>::kCount;
  bool all_inside = true;
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    const uint32_t bits = Element(gates, i);
    const uint32_t at = (bits & 0x7FFF) - Window<Format>::kFirst;
    const bool inside = at < window_count;
    all_inside = all_inside && inside;
    values[i] = window[inside ? at + (bits >> 15) * kCount : 0];
  }
  if (all_inside) return;
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    const uint32_t bits = Element(gates, i);
    if ((bits & 0x7FFF) - Window<Format>::kFirst >= window_count) values[i] = __ldg(table + bits);
  }
}

struct ForwardOperands {
  InRows gate, up;
  OutRows out;
  const float* silu;
  uint32_t window_count;
  float limit;          // +inf unless clamped
  float silu_of_limit;  // silu/ieee@v1 of it
};

struct TwoEights {
  uint4 gate, up;
};

template <class Format, SwigluProgram kProgram, bool kTable>
struct ForwardBody {
  const ForwardOperands& p;
  const float* window;

  __device__ TwoEights Load(int64_t row, int64_t column, int count) const {
    return {p.gate.Load(row, column, count), p.up.Load(row, column, count)};
  }

  __device__ void Run(int64_t row, int64_t column, int count, const TwoEights& in) const {
    constexpr bool kClamped = kProgram == SwigluProgram::kOneRoundFp32Clamped;
    float s[kEight], u[kEight];
    if constexpr (kTable) {
      LookUp<Format>(p.silu, window, p.window_count, in.gate, s);
    }
    Unpack<Format>(in.up, u);
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      if constexpr (kClamped || !kTable) {
        const float g = LoadHalf<Format>(Element(in.gate, i));
        // Comparisons with a NaN are false, so it stays.
        if constexpr (!kTable) s[i] = SiluIeee(g > p.limit ? p.limit : g);
        if constexpr (kTable) s[i] = g > p.limit ? p.silu_of_limit : s[i];
      }
      if constexpr (kClamped) {
        u[i] = u[i] > p.limit ? p.limit : u[i];
        u[i] = u[i] < -p.limit ? -p.limit : u[i];
      }
      if constexpr (kProgram == SwigluProgram::kTwoRound) {
        s[i] = LoadHalf<Format>(StoreHalf<Format>(s[i]));
      }
      u[i] = s[i] * u[i];
    }
    p.out.Store(row, column, count, Pack<Format>(u));
  }
};

template <class Format, SwigluProgram kProgram, bool kTable>
__global__ void __launch_bounds__(kThreads, kTable ? Window<Format>::kBlocksPerMultiprocessor : 2)
    ForwardKernel(EightGrid grid, ForwardOperands operands) {
  extern __shared__ float4 shared[];
  float* window = reinterpret_cast<float*>(shared);
  if (kTable && operands.window_count > 0) FillWindow<Format>(operands.silu, window);
  ForEachEight<kThreads, kUnroll>(grid, ForwardBody<Format, kProgram, kTable>{operands, window});
}

struct BackwardOperands {
  InRows gate, up, dout;
  OutRows dgate, dup;
  const float* sigmoid;
  uint32_t window_count;
};

struct ThreeEights {
  uint4 gate, up, dout;
};

template <class Format, bool kTable>
struct BackwardBody {
  const BackwardOperands& p;
  const float* window;

  __device__ ThreeEights Load(int64_t row, int64_t column, int count) const {
    return {p.gate.Load(row, column, count), p.up.Load(row, column, count),
            p.dout.Load(row, column, count)};
  }

  __device__ void Run(int64_t row, int64_t column, int count, const ThreeEights& in) const {
    float s[kEight], g[kEight], u[kEight], d[kEight];
    if constexpr (kTable) {
      LookUp<Format>(p.sigmoid, window, p.window_count, in.gate, s);
    }
    Unpack<Format>(in.gate, g);
    Unpack<Format>(in.up, u);
    Unpack<Format>(in.dout, d);
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      if constexpr (!kTable) s[i] = SigmoidIeee(g[i]);
      const float gs = g[i] * s[i];
      const float slope = s[i] + gs * (1.0f - s[i]);
      u[i] = (d[i] * u[i]) * slope;
      d[i] = d[i] * gs;
    }
    p.dgate.Store(row, column, count, Pack<Format>(u));
    p.dup.Store(row, column, count, Pack<Format>(d));
  }
};

template <class Format, bool kTable>
__global__ void __launch_bounds__(kThreads, kTable ? Window<Format>::kBlocksPerMultiprocessor : 2)
    BackwardKernel(EightGrid grid, BackwardOperands operands) {
  extern __shared__ float4 shared[];
  float* window = reinterpret_cast<float*>(shared);
  if (kTable && operands.window_count > 0) FillWindow<Format>(operands.sigmoid, window);
  ForEachEight<kThreads, kUnroll>(grid, BackwardBody<Format, kTable>{operands, window});
}

template <class Format, class Operands>
absl::Status LaunchWalk(const char* what, void (*kernel)(EightGrid, Operands), bool table,
                        const EightGrid& grid, Operands operands, CudaStream stream) {
  const absl::StatusOr<int> multiprocessors = Multiprocessors();
  if (!multiprocessors.ok()) return multiprocessors.status();
  const bool window = table && grid.rows * grid.columns >= kWindowElements;
  operands.window_count = window ? Window<Format>::kCount : 0;
  const int resident = window ? Window<Format>::kBlocksPerMultiprocessor : 2;
  // The lookup always reads one entry of shared memory.
  const size_t shared_bytes = window ? kWindowBytes<Format> : sizeof(float4);
  return Launch(
      what, kernel,
      {grid.Blocks(kTile, int64_t{*multiprocessors} * resident), kThreads, shared_bytes, stream},
      grid, operands);
}

template <class Format, SwigluProgram kProgram>
absl::Status Forward(const EightGrid& grid, const ForwardOperands& operands, CudaStream stream) {
  if (operands.silu != nullptr) {
    return LaunchWalk<Format>("swiglu", ForwardKernel<Format, kProgram, true>, true, grid, operands,
                              stream);
  }
  return LaunchWalk<Format>("swiglu", ForwardKernel<Format, kProgram, false>, false, grid, operands,
                            stream);
}

template <class Format>
absl::Status ForwardOfFormat(SwigluProgram program, const EightGrid& grid,
                             const ForwardOperands& operands, CudaStream stream) {
  switch (program) {
    case SwigluProgram::kOneRoundFp32:
      return Forward<Format, SwigluProgram::kOneRoundFp32>(grid, operands, stream);
    case SwigluProgram::kTwoRound:
      return Forward<Format, SwigluProgram::kTwoRound>(grid, operands, stream);
    case SwigluProgram::kOneRoundFp32Clamped:
      return Forward<Format, SwigluProgram::kOneRoundFp32Clamped>(grid, operands, stream);
  }
  return absl::InternalError("swiglu: unknown program");
}

template <class Format>
absl::Status Backward(const EightGrid& grid, const BackwardOperands& operands, CudaStream stream) {
  if (operands.sigmoid != nullptr) {
    return LaunchWalk<Format>("swiglu_vjp", BackwardKernel<Format, true>, true, grid, operands,
                              stream);
  }
  return LaunchWalk<Format>("swiglu_vjp", BackwardKernel<Format, false>, false, grid, operands,
                            stream);
}

// The table that the checks see is the one whose copy is used.
absl::Status CheckSameTable(const char* op, const GateTable* named, const DeviceGateTable* used) {
  if (named == nullptr || (used != nullptr && named == &used->table())) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(op, ": expected the device's copy of table ",
                                                 named->id(), ", which the parameters name, got ",
                                                 used == nullptr ? "none" : "another"));
}

const uint16_t* Half(const void* data) { return static_cast<const uint16_t*>(data); }
uint16_t* Half(void* data) { return static_cast<uint16_t*>(data); }

int64_t Stride(int64_t stride, int64_t columns) { return stride == 0 ? columns : stride; }

}  // namespace

absl::Status SwigluCuda(const SwigluParams& params, const DeviceGateTable* silu,
                        CudaStream stream) {
  SwigluParams p = params;
  if (absl::Status s = CheckSameTable("swiglu", p.silu, silu); !s.ok()) return s;
  p.silu = silu == nullptr ? nullptr : &silu->table();
  if (absl::Status s = CheckSwiglu(p); !s.ok()) return s;
  if (absl::Status s = CheckWalkColumns("swiglu", p.columns); !s.ok()) return s;
  const bool clamped = p.program == SwigluProgram::kOneRoundFp32Clamped;
  const ForwardOperands operands = {
      .gate = InRows(Half(p.gate), Stride(p.gate_row_stride, p.columns), p.rows),
      .up = InRows(Half(p.up), Stride(p.up_row_stride, p.columns), p.rows),
      .out = OutRows(Half(p.out), Stride(p.out_row_stride, p.columns), p.rows),
      .silu = silu == nullptr ? nullptr : silu->values(),
      .window_count = 0,
      .limit = clamped ? p.limit : std::numeric_limits<float>::infinity(),
      .silu_of_limit = clamped ? SiluIeee(p.limit) : 0,
  };
  const EightGrid grid(p.rows, p.columns);
  return p.type == FloatType::kBf16 ? ForwardOfFormat<Bf16>(p.program, grid, operands, stream)
                                    : ForwardOfFormat<F16>(p.program, grid, operands, stream);
}

absl::Status SwigluVjpCuda(const SwigluVjpParams& params, const DeviceGateTable* sigmoid,
                           CudaStream stream) {
  SwigluVjpParams p = params;
  if (absl::Status s = CheckSameTable("swiglu_vjp", p.sigmoid, sigmoid); !s.ok()) return s;
  p.sigmoid = sigmoid == nullptr ? nullptr : &sigmoid->table();
  if (absl::Status s = CheckSwigluVjp(p); !s.ok()) return s;
  if (absl::Status s = CheckWalkColumns("swiglu_vjp", p.columns); !s.ok()) return s;
  const BackwardOperands operands = {
      .gate = InRows(Half(p.gate), Stride(p.gate_row_stride, p.columns), p.rows),
      .up = InRows(Half(p.up), Stride(p.up_row_stride, p.columns), p.rows),
      .dout = InRows(Half(p.dout), Stride(p.dout_row_stride, p.columns), p.rows),
      .dgate = OutRows(Half(p.dgate), Stride(p.dgate_row_stride, p.columns), p.rows),
      .dup = OutRows(Half(p.dup), Stride(p.dup_row_stride, p.columns), p.rows),
      .sigmoid = sigmoid == nullptr ? nullptr : sigmoid->values(),
      .window_count = 0,
  };
  const EightGrid grid(p.rows, p.columns);
  return p.type == FloatType::kBf16 ? Backward<Bf16>(grid, operands, stream)
                                    : Backward<F16>(grid, operands, stream);
}

}  // namespace lockstep::kernels
