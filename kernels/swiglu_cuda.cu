#include <initializer_list>
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
constexpr int kForwardUnroll = 2;
constexpr int kBackwardUnroll = 1;

// Below this many elements, filling shared memory costs more than it saves.
constexpr int64_t kWindowElements = int64_t{1} << 20;

// The part of a gate table that is kept in shared memory: 2^kBits magnitudes of consecutive bit
// patterns from kFirst on, of both signs. Gates outside it (tiny, huge, not finite) are read from
// device memory.
template <class Format>
struct Window {
  static constexpr uint32_t kFirst = (127 - 24) << 7;  // 2^-24 up to 2^8
  static constexpr uint32_t kBits = 12;
  static constexpr int kBlocksPerMultiprocessor = 2;
};

template <>
struct Window<F16> {
  static constexpr uint32_t kFirst = (15 - 10) << 10;  // 2^-10 up to 2^6
  static constexpr uint32_t kBits = 14;
  static constexpr int kBlocksPerMultiprocessor = 1;
};

template <class Format>
constexpr uint32_t kWindowCount = uint32_t{1} << Window<Format>::kBits;

template <class Format>
constexpr size_t kWindowBytes = 2 * kWindowCount<Format> * sizeof(float);

// Fills the block's window.
template <class Format>
__device__ void FillWindow(const float* table, float* window) {
  constexpr uint32_t kCount = kWindowCount<Format>;
  const float4* positive = reinterpret_cast<const float4*>(table + Window<Format>::kFirst);
  const float4* negative = reinterpret_cast<const float4*>(table + 0x8000 + Window<Format>::kFirst);
  for (uint32_t i = threadIdx.x; i < kCount / 4; i += kThreads) {
    reinterpret_cast<float4*>(window)[i] = __ldg(positive + i);
    reinterpret_cast<float4*>(window + kCount)[i] = __ldg(negative + i);
  }
  __syncthreads();
}

// Whether all gates lie inside the window; if so, writes their values. Two gates share a word and
// most of the arithmetic on it.
template <class Format>
__device__ inline bool LookUpInWindow(const float* window, const uint4& gates,
                                      float (&values)[kEight]) {
  constexpr uint32_t kBits = Window<Format>::kBits;
  constexpr uint32_t kBoth = 0x00010001;
  constexpr uint32_t kIndex = (kWindowCount<Format> - 1) * kBoth;
  constexpr uint32_t kByteMask = (2 * kWindowCount<Format> - 1) * sizeof(float);
  const uint32_t words[4] = {gates.x, gates.y, gates.z, gates.w};
  const char* bytes = reinterpret_cast<const char*>(window);
  uint32_t outside = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // A borrow spoils the upper gate, but needs a lower one outside the window.
    const uint32_t from_first = words[i] - Window<Format>::kFirst * kBoth;
    outside |= from_first & (0x7FFF * kBoth & ~kIndex);
    // The sign becomes the bit above the index; what else the shift brings is masked below.
    const uint32_t index = (from_first & kIndex) | ((from_first >> (15 - kBits)) & ~kIndex);
    values[2 * i] = *reinterpret_cast<const float*>(bytes + ((index << 2) & kByteMask));
    values[2 * i + 1] = *reinterpret_cast<const float*>(bytes + ((index >> 14) & kByteMask));
  }
  return outside == 0;
}

// table[bits of each gate].
template <class Format>
__device__ inline void LookUp(const float* table, const float* window, bool has_window,
                              const uint4& gates, float (&values)[kEight]) {
  if (has_window && LookUpInWindow<Format>(window, gates, values)) return;
#pragma unroll
  for (int i = 0; i < kEight; ++i) values[i] = __ldg(table + Element(gates, i));
}

struct ForwardOperands {
  InRows gate, up;
  OutRows out;
  const float* silu;
  bool has_window;
  float limit;          // +inf unless clamped
  float silu_of_limit;  // silu/ieee@v1 of it

  ForwardOperands From(int64_t row) const {
    ForwardOperands rest = *this;
    rest.gate = gate.From(row), rest.up = up.From(row), rest.out = out.From(row);
    return rest;
  }
};

struct TwoEights {
  uint4 gate, up;
};

template <class Format, SwigluProgram kProgram, bool kTable>
struct ForwardBody {
  const ForwardOperands& p;
  const float* window;

  __device__ TwoEights Load(const EightPlace& place) const {
    return {p.gate.Load(place), p.up.Load(place)};
  }

  __device__ void Run(const EightPlace& place, const TwoEights& in) const {
    constexpr bool kClamped = kProgram == SwigluProgram::kOneRoundFp32Clamped;
    float s[kEight], u[kEight];
    if constexpr (kTable) {
      LookUp<Format>(p.silu, window, p.has_window, in.gate, s);
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
        s[i] = Rounded<Format>(s[i]);
      }
      u[i] = s[i] * u[i];
    }
    p.out.Store(place, Pack<Format>(u));
  }
};

template <class Format, SwigluProgram kProgram, bool kTable>
__global__ void __launch_bounds__(kThreads, kTable ? Window<Format>::kBlocksPerMultiprocessor : 2)
    ForwardKernel(EightGrid grid, ForwardOperands operands) {
  extern __shared__ float4 shared[];
  float* window = reinterpret_cast<float*>(shared);
  if (kTable && operands.has_window) FillWindow<Format>(operands.silu, window);
  ForEachEight<kThreads, kForwardUnroll>(grid,
                                         ForwardBody<Format, kProgram, kTable>{operands, window});
}

struct BackwardOperands {
  InRows gate, up, dout;
  OutRows dgate, dup;
  const float* sigmoid;
  bool has_window;

  BackwardOperands From(int64_t row) const {
    BackwardOperands rest = *this;
    rest.gate = gate.From(row), rest.up = up.From(row), rest.dout = dout.From(row);
    rest.dgate = dgate.From(row), rest.dup = dup.From(row);
    return rest;
  }
};

struct ThreeEights {
  uint4 gate, up, dout;
};

template <class Format, bool kTable>
struct BackwardBody {
  const BackwardOperands& p;
  const float* window;

  __device__ ThreeEights Load(const EightPlace& place) const {
    return {p.gate.Load(place), p.up.Load(place), p.dout.Load(place)};
  }

  __device__ void Run(const EightPlace& place, const ThreeEights& in) const {
    float s[kEight], g[kEight], u[kEight], d[kEight];
    if constexpr (kTable) {
      LookUp<Format>(p.sigmoid, window, p.has_window, in.gate, s);
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
    p.dgate.Store(place, Pack<Format>(u));
    p.dup.Store(place, Pack<Format>(d));
  }
};

template <class Format, bool kTable>
__global__ void __launch_bounds__(kThreads, kTable ? Window<Format>::kBlocksPerMultiprocessor : 2)
    BackwardKernel(EightGrid grid, BackwardOperands operands) {
  extern __shared__ float4 shared[];
  float* window = reinterpret_cast<float*>(shared);
  if (kTable && operands.has_window) FillWindow<Format>(operands.sigmoid, window);
  ForEachEight<kThreads, kBackwardUnroll>(grid, BackwardBody<Format, kTable>{operands, window});
}

template <class Format, class Operands>
absl::Status LaunchWalk(const char* what, void (*kernel)(EightGrid, Operands), int unroll,
                        bool table, int64_t rows, int64_t columns,
                        std::initializer_list<int64_t> strides, Operands operands,
                        CudaStream stream) {
  const absl::StatusOr<int> multiprocessors = Multiprocessors();
  if (!multiprocessors.ok()) return multiprocessors.status();
  const absl::StatusOr<int> block_shared = BlockSharedBytes();
  if (!block_shared.ok()) return block_shared.status();
  operands.has_window = table && rows * columns >= kWindowElements &&
                        kWindowBytes<Format> <= static_cast<size_t>(*block_shared);
  const int resident = operands.has_window ? Window<Format>::kBlocksPerMultiprocessor : 2;
  const size_t shared_bytes = operands.has_window ? kWindowBytes<Format> : 0;
  return ForEachRowChunk(what, rows, columns, strides, [&](int64_t row, int64_t count) {
    const EightGrid grid(count, columns);
    const unsigned blocks = grid.Blocks(kThreads * unroll, int64_t{*multiprocessors} * resident);
    return Launch(what, kernel, {blocks, kThreads, shared_bytes, stream}, grid, operands.From(row));
  });
}

struct Extent {
  int64_t rows, columns;
};

template <class Format, SwigluProgram kProgram>
absl::Status Forward(const Extent& extent, const ForwardOperands& operands, CudaStream stream) {
  const bool table = operands.silu != nullptr;
  return LaunchWalk<Format>(
      "swiglu",
      table ? ForwardKernel<Format, kProgram, true> : ForwardKernel<Format, kProgram, false>,
      kForwardUnroll, table, extent.rows, extent.columns,
      {operands.gate.stride, operands.up.stride, operands.out.stride}, operands, stream);
}

template <class Format>
absl::Status ForwardOfFormat(SwigluProgram program, const Extent& extent,
                             const ForwardOperands& operands, CudaStream stream) {
  switch (program) {
    case SwigluProgram::kOneRoundFp32:
      return Forward<Format, SwigluProgram::kOneRoundFp32>(extent, operands, stream);
    case SwigluProgram::kTwoRound:
      return Forward<Format, SwigluProgram::kTwoRound>(extent, operands, stream);
    case SwigluProgram::kOneRoundFp32Clamped:
      return Forward<Format, SwigluProgram::kOneRoundFp32Clamped>(extent, operands, stream);
  }
  return absl::InternalError("swiglu: unknown program");
}

template <class Format>
absl::Status Backward(const Extent& extent, const BackwardOperands& operands, CudaStream stream) {
  const bool table = operands.sigmoid != nullptr;
  return LaunchWalk<Format>("swiglu_vjp",
                            table ? BackwardKernel<Format, true> : BackwardKernel<Format, false>,
                            kBackwardUnroll, table, extent.rows, extent.columns,
                            {operands.gate.stride, operands.up.stride, operands.dout.stride,
                             operands.dgate.stride, operands.dup.stride},
                            operands, stream);
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
  const bool clamped = p.program == SwigluProgram::kOneRoundFp32Clamped;
  const ForwardOperands operands = {
      .gate = InRows(Half(p.gate), Stride(p.gate_row_stride, p.columns), p.rows),
      .up = InRows(Half(p.up), Stride(p.up_row_stride, p.columns), p.rows),
      .out = OutRows(Half(p.out), Stride(p.out_row_stride, p.columns), p.rows),
      .silu = silu == nullptr ? nullptr : silu->values(),
      .has_window = false,
      .limit = clamped ? p.limit : std::numeric_limits<float>::infinity(),
      .silu_of_limit = clamped ? SiluIeee(p.limit) : 0,
  };
  const Extent extent = {p.rows, p.columns};
  return p.type == FloatType::kBf16 ? ForwardOfFormat<Bf16>(p.program, extent, operands, stream)
                                    : ForwardOfFormat<F16>(p.program, extent, operands, stream);
}

absl::Status SwigluVjpCuda(const SwigluVjpParams& params, const DeviceGateTable* sigmoid,
                           CudaStream stream) {
  SwigluVjpParams p = params;
  if (absl::Status s = CheckSameTable("swiglu_vjp", p.sigmoid, sigmoid); !s.ok()) return s;
  p.sigmoid = sigmoid == nullptr ? nullptr : &sigmoid->table();
  if (absl::Status s = CheckSwigluVjp(p); !s.ok()) return s;
  const BackwardOperands operands = {
      .gate = InRows(Half(p.gate), Stride(p.gate_row_stride, p.columns), p.rows),
      .up = InRows(Half(p.up), Stride(p.up_row_stride, p.columns), p.rows),
      .dout = InRows(Half(p.dout), Stride(p.dout_row_stride, p.columns), p.rows),
      .dgate = OutRows(Half(p.dgate), Stride(p.dgate_row_stride, p.columns), p.rows),
      .dup = OutRows(Half(p.dup), Stride(p.dup_row_stride, p.columns), p.rows),
      .sigmoid = sigmoid == nullptr ? nullptr : sigmoid->values(),
      .has_window = false,
  };
  const Extent extent = {p.rows, p.columns};
  return p.type == FloatType::kBf16 ? Backward<Bf16>(extent, operands, stream)
                                    : Backward<F16>(extent, operands, stream);
}

}  // namespace lockstep::kernels
