#include "kernels/rmsnorm.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rmsnorm.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/aligned_allocator.h"
#include "hwy/highway.h"
#include "kernels/float_formats.h"
#include "kernels/fp_environment.h"
#include "kernels/half_simd-inl.h"
#include "kernels/pair_tree-inl.h"
#include "kernels/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {

// out[i] = round(x[i] + residual[i]). float32 has more than 2 * 8 + 2 significant bits, so
// rounding the float32 sum again rounds the exact sum once.
void AddRows(const uint16_t* x, const uint16_t* residual, size_t count, uint16_t* out) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    StoreHalf<Bf16>(d, hn::Add(LoadHalf<Bf16>(d, residual + i), LoadHalf<Bf16>(d, x + i)), out + i);
  }
  for (; i < count; ++i) out[i] = Bf16::Store(Bf16::Load(residual[i]) + Bf16::Load(x[i]));
}

// The first level of the tree over the squares; returns its node count.
size_t SquarePairs(const uint16_t* row, size_t count, float* nodes) {
  const size_t pairs = count / 2;
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<uint32_t> d32;
  const hn::ScalableTag<uint16_t> d16;
  const size_t lanes = hn::Lanes(d);
  for (; i + lanes <= pairs; i += lanes) {
    // Little-endian: the even element of a pair is the low half of its word.
    const auto words = hn::BitCast(d32, hn::LoadU(d16, row + 2 * i));
    const auto even = hn::BitCast(d, hn::ShiftLeft<16>(words));
    const auto odd = hn::BitCast(d, hn::And(words, hn::Set(d32, 0xFFFF0000u)));
    hn::StoreU(hn::Add(hn::Mul(even, even), hn::Mul(odd, odd)), d, nodes + i);
  }
#endif
  for (; i < pairs; ++i) {
    const float even = Bf16::Load(row[2 * i]);
    const float odd = Bf16::Load(row[2 * i + 1]);
    nodes[i] = even * even + odd * odd;
  }
  if (count % 2 == 1) {
    const float last = Bf16::Load(row[count - 1]);
    nodes[pairs] = last * last;
  }
  return pairs + count % 2;
}

// A power-of-two segment is one node of its level of the tree, so segments change no byte.
float SumOfSquares(const uint16_t* row, size_t count, size_t split, float* nodes) {
  if (split == 0 || split >= count) return PairTreeSum(nodes, SquarePairs(row, count, nodes));
  const size_t segments = (count + split - 1) / split;
  float* sums = nodes + (split + 1) / 2;
  for (size_t s = 0; s < segments; ++s) {
    const size_t begin = s * split;
    const size_t length = std::min(split, count - begin);
    sums[s] = PairTreeSum(nodes, SquarePairs(row + begin, length, nodes));
  }
  return PairTreeSum(sums, segments);
}

// How y is made from x * inv.
enum class Weight { kNone, kBf16, kF32 };

template <Weight kWeight>
HWY_INLINE float WeightAt(const void* weight, size_t i, float offset) {
  if constexpr (kWeight == Weight::kBf16) {
    return Bf16::Load(static_cast<const uint16_t*>(weight)[i]) + offset;
  } else {
    return static_cast<const float*>(weight)[i] + offset;
  }
}

template <Weight kWeight, class D>
HWY_INLINE hn::Vec<D> WeightsAt(D d, const void* weight, size_t i, float offset) {
  if constexpr (kWeight == Weight::kBf16) {
    return hn::Add(LoadHalf<Bf16>(d, static_cast<const uint16_t*>(weight) + i), hn::Set(d, offset));
  } else {
    return hn::Add(hn::LoadU(d, static_cast<const float*>(weight) + i), hn::Set(d, offset));
  }
}

// `offset` is 1 for a zero-centered weight and -0 otherwise: adding -0 changes no value.
template <Weight kWeight>
void Apply(const uint16_t* row, size_t count, float inv, const void* weight, float offset,
           uint16_t* out) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    auto y = hn::Mul(LoadHalf<Bf16>(d, row + i), hn::Set(d, inv));
    if constexpr (kWeight != Weight::kNone) {
      y = hn::Mul(y, WeightsAt<kWeight>(d, weight, i, offset));
    }
    StoreHalf<Bf16>(d, y, out + i);
  }
  for (; i < count; ++i) {
    float y = Bf16::Load(row[i]) * inv;
    if constexpr (kWeight != Weight::kNone) y = y * WeightAt<kWeight>(weight, i, offset);
    out[i] = Bf16::Store(y);
  }
}

void NormRows(const RmsNormParams& p, size_t begin, size_t end) {
  const size_t columns = static_cast<size_t>(p.columns);
  const size_t stride = p.row_stride == 0 ? columns : static_cast<size_t>(p.row_stride);
  const size_t split = static_cast<size_t>(p.split_columns);
  const size_t segments = split == 0 ? 0 : (columns + split - 1) / split;
  const auto nodes =
      hwy::AllocateAligned<float>((columns + 1) / 2 + std::min(split, columns) / 2 + segments + 1);
  const auto sum_row = hwy::AllocateAligned<uint16_t>(columns);
  for (size_t r = begin; r < end; ++r) {
    const uint16_t* row = p.x + r * stride;
    if (p.residual != nullptr) {
      uint16_t* to = p.residual_out != nullptr ? p.residual_out + r * stride : sum_row.get();
      AddRows(row, p.residual + r * stride, columns, to);
      row = to;
    }
    const float mean = SumOfSquares(row, columns, split, nodes.get()) / static_cast<float>(columns);
    const float inv = 1.0f / std::sqrt(mean + p.eps);
    uint16_t* out = p.out + r * stride;
    const float offset = p.zero_centered ? 1.0f : -0.0f;
    if (p.weight == nullptr) {
      Apply<Weight::kNone>(row, columns, inv, p.weight, offset, out);
    } else if (p.weight_type == FloatType::kBf16) {
      Apply<Weight::kBf16>(row, columns, inv, p.weight, offset, out);
    } else {
      Apply<Weight::kF32>(row, columns, inv, p.weight, offset, out);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(NormRows);
}  // namespace

absl::Status CheckRmsNorm(const RmsNormParams& p) {
  if (p.rows < 1 || p.columns < 1 || p.columns > kRmsNormMaxColumns) {
    return absl::InvalidArgumentError(
        absl::StrCat("rmsnorm: expected x [T,H] with T of at least 1 and H from 1 to ",
                     kRmsNormMaxColumns, ", got T=", p.rows, " H=", p.columns));
  }
  if (p.x == nullptr || p.out == nullptr) {
    return absl::InvalidArgumentError("rmsnorm: expected non-null x and out");
  }
  if (p.residual_out != nullptr && p.residual == nullptr) {
    return absl::InvalidArgumentError("rmsnorm: residual_out needs a residual, got none");
  }
  if (p.weight != nullptr && p.weight_type != FloatType::kBf16 &&
      p.weight_type != FloatType::kF32) {
    return absl::InvalidArgumentError(
        absl::StrCat("rmsnorm: expected weight as BF16 or F32, got ", Name(p.weight_type)));
  }
  if (p.zero_centered && p.weight == nullptr) {
    return absl::InvalidArgumentError(
        "rmsnorm: zero-centered means 1 + weight and needs a weight, got none");
  }
  if (!(p.eps >= 0.0f) || std::isinf(p.eps)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rmsnorm: expected eps finite and not negative, got ", p.eps));
  }
  if (p.row_stride != 0 && p.row_stride < p.columns) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rmsnorm: expected row stride 0 or at least H=", p.columns, ", got ", p.row_stride));
  }
  const int64_t split = p.split_columns;
  if (split < 0 || split == 1 || (split & (split - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rmsnorm: expected split_columns 0 or a power of two from 2 on, got ", split));
  }
  return CheckFpEnvironment();
}

absl::Status RmsNorm(const RmsNormParams& p) {
  if (absl::Status status = CheckRmsNorm(p); !status.ok()) return status;
  ParallelFor(static_cast<size_t>(p.rows), p.threads, [&](size_t begin, size_t end) {
    HWY_DYNAMIC_DISPATCH(NormRows)(p, begin, end);
  });
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
