// Products whose every element is an ascending chain of fused multiply-adds from +0, for small
// matrices already in float32; a Highway "-inl" header, included once per target.
//
// Example: out[64, n] = a[64, k] * b[k, n]
//   ChainRows<Limit::kAll>({a, k}, {b, n}, 64, k, n, {out, n});

#if defined(LOCKSTEP_KERNELS_GDN_CHAIN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_GDN_CHAIN_INL_H_
#undef LOCKSTEP_KERNELS_GDN_CHAIN_INL_H_
#else
#define LOCKSTEP_KERNELS_GDN_CHAIN_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "kernels/exact_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {

// Columns are padded to this many, whatever the vector length, so that scratch has one layout.
constexpr size_t kChainColumns = 16;

struct Rows {
  float* data;
  size_t stride;

  float* operator[](size_t row) const { return data + row * stride; }
};

// Which terms row i sums: all k, or the first i + 1.
enum class Limit { kAll, kTriangle };

template <Limit kLimit, size_t kRows>
HWY_INLINE void ChainBlock(Rows a, Rows b, size_t row, size_t k, size_t column, Rows out) {
  constexpr hn::ScalableTag<float> d;
  constexpr size_t kLanes = hn::MaxLanes(hn::ScalableTag<float>());
  constexpr size_t kVectors = kChainColumns / kLanes;
  using V = hn::Vec<hn::ScalableTag<float>>;
  V sums[kRows][kVectors];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  const size_t common = kLimit == Limit::kTriangle ? row + 1 : k;
  for (size_t i = 0; i < common; ++i) {
    for (size_t v = 0; v < kVectors; ++v) {
      const V right = hn::Load(d, b[i] + column + v * kLanes);
      for (size_t r = 0; r < kRows; ++r) {
        sums[r][v] = FusedMulAdd(d, hn::Set(d, a[row + r][i]), right, sums[r][v]);
      }
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    if constexpr (kLimit == Limit::kTriangle) {
      for (size_t i = common; i <= row + r; ++i) {
        for (size_t v = 0; v < kVectors; ++v) {
          const V right = hn::Load(d, b[i] + column + v * kLanes);
          sums[r][v] = FusedMulAdd(d, hn::Set(d, a[row + r][i]), right, sums[r][v]);
        }
      }
    }
    for (size_t v = 0; v < kVectors; ++v) {
      hn::Store(sums[r][v], d, out[row + r] + column + v * kLanes);
    }
  }
}

// out[i, j] = sum over c < limit(i), ascending, of a[i, c] * b[c, j]; `columns` is a multiple of
// kChainColumns and rows of b and out are aligned.
template <Limit kLimit>
void ChainRows(Rows a, Rows b, size_t rows, size_t k, size_t columns, Rows out) {
  constexpr size_t kBlock = 4;
  for (size_t column = 0; column < columns; column += kChainColumns) {
    size_t row = 0;
    for (; row + kBlock <= rows; row += kBlock) {
      ChainBlock<kLimit, kBlock>(a, b, row, k, column, out);
    }
    for (; row < rows; ++row) ChainBlock<kLimit, 1>(a, b, row, k, column, out);
  }
}

// Calls fn(d, pointer offset) over `count` floats in whole vectors; count is a multiple of
// kChainColumns.
template <class Fn>
HWY_INLINE void ForVectors(size_t count, Fn fn) {
  constexpr hn::ScalableTag<float> d;
  for (size_t i = 0; i < count; i += hn::Lanes(d)) fn(d, i);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
