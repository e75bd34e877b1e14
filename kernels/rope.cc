#include "kernels/rope.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/exact_trig.h"
#include "kernels/float_formats.h"
#include "kernels/fp_environment.h"
#include "kernels/half_simd-inl.h"
#include "kernels/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {

// One head: element i and its partner i + half are rotated by the angle of entry i.
template <class Format>
void RotateHead(const uint16_t* x, const float* cos, const float* sin, size_t half, size_t head_dim,
                uint16_t* out) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    const auto left = LoadHalf<Format>(d, x + i);
    const auto right = LoadHalf<Format>(d, x + half + i);
    const auto c = hn::LoadU(d, cos + i);
    const auto s = hn::LoadU(d, sin + i);
    const auto left_out = hn::Add(hn::Mul(left, c), hn::Mul(hn::Neg(right), s));
    const auto right_out = hn::Add(hn::Mul(right, c), hn::Mul(left, s));
    StoreHalf<Format>(d, left_out, out + i);
    StoreHalf<Format>(d, right_out, out + half + i);
  }
  for (; i < half; ++i) {
    const float left = Format::Load(x[i]);
    const float right = Format::Load(x[half + i]);
    const float left_out = left * cos[i] + -right * sin[i];
    const float right_out = right * cos[i] + left * sin[i];
    out[i] = Format::Store(left_out);
    out[half + i] = Format::Store(right_out);
  }
  for (i = 2 * half; i < head_dim; ++i) out[i] = Format::Store(Format::Load(x[i]));
}

void RotateRows(const RopeParams& p, size_t begin, size_t end) {
  const size_t heads = static_cast<size_t>(p.heads);
  const size_t head_dim = static_cast<size_t>(p.head_dim);
  const size_t half = static_cast<size_t>(p.rotary_dim) / 2;
  const size_t row = heads * head_dim;
  const size_t x_stride = p.x_row_stride == 0 ? row : static_cast<size_t>(p.x_row_stride);
  const size_t out_stride = p.out_row_stride == 0 ? row : static_cast<size_t>(p.out_row_stride);
  for (size_t r = begin; r < end; ++r) {
    const size_t entry = static_cast<size_t>(p.positions[r]) * half;
    for (size_t h = 0; h < heads; ++h) {
      const uint16_t* x = static_cast<const uint16_t*>(p.x) + r * x_stride + h * head_dim;
      uint16_t* out = static_cast<uint16_t*>(p.out) + r * out_stride + h * head_dim;
      if (p.type == FloatType::kBf16) {
        RotateHead<Bf16>(x, p.cos + entry, p.sin + entry, half, head_dim, out);
      } else {
        RotateHead<F16>(x, p.cos + entry, p.sin + entry, half, head_dim, out);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {

HWY_EXPORT(RotateRows);

absl::Status CheckTable(const RopeTableParams& p) {
  if (!(p.theta >= 1.0f) || std::isinf(p.theta)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rope: expected theta finite and at least 1, got ", p.theta));
  }
  if (p.rotary_dim < 2 || p.rotary_dim % 2 != 0 || p.rotary_dim > kRopeMaxRotaryDim) {
    return absl::InvalidArgumentError(
        absl::StrCat("rope: expected an even rotary dimension from 2 to ", kRopeMaxRotaryDim,
                     ", got ", p.rotary_dim));
  }
  if (p.positions < 1 || p.positions > kRopeMaxPositions) {
    return absl::InvalidArgumentError(
        absl::StrCat("rope: expected 1 to ", kRopeMaxPositions, " positions, got ", p.positions));
  }
  if (p.cos == nullptr || p.sin == nullptr) {
    return absl::InvalidArgumentError("rope: expected non-null cos and sin");
  }
  return CheckFpEnvironment();
}

absl::Status CheckPositions(const RopeParams& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    if (p.positions[r] < 0 || p.positions[r] >= p.table_positions) {
      return absl::InvalidArgumentError(absl::StrCat("rope: expected positions in [0, ",
                                                     p.table_positions, ") of the table, got ",
                                                     p.positions[r], " at row ", r));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRopeNeox(const RopeParams& p) {
  if (p.type != FloatType::kBf16 && p.type != FloatType::kF16) {
    return absl::InvalidArgumentError(
        absl::StrCat("rope: expected x as BF16 or F16, got ", Name(p.type)));
  }
  if (p.rows < 1 || p.heads < 1 || p.head_dim < 1 || p.rotary_dim < 2 || p.rotary_dim % 2 != 0 ||
      p.rotary_dim > p.head_dim) {
    return absl::InvalidArgumentError(
        absl::StrCat("rope: expected x [T,heads,D] with sizes of at least 1 and an even rotary "
                     "dimension from 2 to D, got T=",
                     p.rows, " heads=", p.heads, " D=", p.head_dim, " rotary=", p.rotary_dim));
  }
  if (p.x == nullptr || p.positions == nullptr || p.cos == nullptr || p.sin == nullptr ||
      p.out == nullptr) {
    return absl::InvalidArgumentError("rope: expected non-null x, positions, cos, sin and out");
  }
  const int64_t row = p.heads * p.head_dim;
  if ((p.x_row_stride != 0 && p.x_row_stride < row) ||
      (p.out_row_stride != 0 && p.out_row_stride < row)) {
    return absl::InvalidArgumentError(absl::StrCat("rope: expected row strides of 0 or at least ",
                                                   row, ", got ", p.x_row_stride, " and ",
                                                   p.out_row_stride));
  }
  return CheckFpEnvironment();
}

absl::Status MakeRopeTable(const RopeTableParams& p) {
  if (absl::Status status = CheckTable(p); !status.ok()) return status;
  const size_t half = static_cast<size_t>(p.rotary_dim) / 2;
  std::vector<float> inverse_frequency(half);
  for (size_t i = 0; i < half; ++i) {
    inverse_frequency[i] = ExactInversePower(p.theta, static_cast<int64_t>(2 * i), p.rotary_dim);
  }
  ParallelFor(static_cast<size_t>(p.positions), p.threads, [&](size_t begin, size_t end) {
    for (size_t position = begin; position < end; ++position) {
      for (size_t i = 0; i < half; ++i) {
        const float angle = static_cast<float>(position) * inverse_frequency[i];
        const SinCosF32 entry = ExactSinCos(angle);
        p.cos[position * half + i] = entry.cos;
        p.sin[position * half + i] = entry.sin;
      }
    }
  });
  return absl::OkStatus();
}

absl::Status RopeNeox(const RopeParams& p) {
  if (absl::Status status = CheckRopeNeox(p); !status.ok()) return status;
  if (absl::Status status = CheckPositions(p); !status.ok()) return status;
  ParallelFor(static_cast<size_t>(p.rows), p.threads, [&](size_t begin, size_t end) {
    HWY_DYNAMIC_DISPATCH(RotateRows)(p, begin, end);
  });
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
