#include "kernels/gemm_engine.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm_engine.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/aligned_allocator.h"
#include "hwy/highway.h"
#include "kernels/exact_simd-inl.h"
#include "kernels/float_formats.h"
#include "kernels/half_simd-inl.h"
#include "kernels/parallel.h"

// How the product is walked (none of it changes a byte): blocks of kBlockM rows of a, held in
// float32; for each, strips of kStripN rows of b split over the threads; in a strip, blocks of
// kChainBlockK along K; in a block, panels of kPanelN rows of b, transposed and held in float32;
// in a panel, up to kMaxRows rows of a at a time, whose sums stay in registers.

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {

constexpr hn::ScalableTag<float> kFloats;
constexpr size_t kLanes = hn::MaxLanes(hn::ScalableTag<float>());
constexpr size_t kPanelN = 2 * kLanes;
constexpr size_t kMaxRows = 6;
constexpr size_t kStripN = 128;

// Row `row` of an operand from k0 on, as float32; row_stride and k_stride are elements.
template <class Format>
void LoadRow(const ChainOperand& operand, size_t row, size_t k0, size_t count, float* to,
             size_t to_stride) {
  const auto* from = static_cast<const typename Format::Storage*>(operand.data) +
                     row * operand.row_stride + k0 * operand.k_stride;
  for (size_t i = 0; i < count; ++i) to[i * to_stride] = Format::Load(from[i * operand.k_stride]);
}

void LoadAnyRow(const ChainOperand& operand, size_t row, size_t k0, size_t count, float* to,
                size_t to_stride) {
  switch (operand.type) {
    case FloatType::kBf16:
      return LoadRow<Bf16>(operand, row, k0, count, to, to_stride);
    case FloatType::kF16:
      return LoadRow<F16>(operand, row, k0, count, to, to_stride);
    default:
      return LoadRow<F32>(operand, row, k0, count, to, to_stride);
  }
}

#if HWY_TARGET != HWY_SCALAR
constexpr hn::ScalableTag<uint16_t> kHalves;
constexpr hn::ScalableTag<uint32_t> kWords;
constexpr size_t kBlocks = kLanes / 4;  // 128-bit blocks in a vector

// Joins 8 halves of each of kBlocks rows, `stride` rows apart, into one vector.
template <size_t kCount>
HWY_INLINE auto LoadBlocks(const uint16_t* const* rows, size_t k) {
  if constexpr (kCount == 1) {
    return hn::LoadU(hn::Full128<uint16_t>(), rows[0] + k);
  } else {
    constexpr size_t kHalf = kCount / 2;
    const hn::Simd<uint16_t, 8 * kCount, 0> d;
    return hn::Combine(d, LoadBlocks<kHalf>(rows + 4 * kHalf, k), LoadBlocks<kHalf>(rows, k));
  }
}

using Halves = hn::Vec<hn::ScalableTag<uint16_t>>;

// Writes the 2 * kLanes values of one k, given in the block order of TransposeStep, to the panel.
template <class Format>
HWY_INLINE void WidenInto(Halves halves, float* to) {
  const auto zero = hn::Zero(kHalves);
  const auto low = hn::BitCast(kWords, hn::InterleaveLower(kHalves, halves, zero));
  const auto high = hn::BitCast(kWords, hn::InterleaveUpper(kHalves, halves, zero));
  hn::Store(DecodeHalf<Format>(kFloats, low), kFloats, to);
  hn::Store(DecodeHalf<Format>(kFloats, high), kFloats, to + kLanes);
}

// Transposes kPanelN rows x 8 k into panel[8][kPanelN]. Vector i holds, in block j, row
// 4 * j + i for i < 4 and row kLanes + 4 * j + i - 4 otherwise, so that the blockwise interleaves
// leave the rows of a panel in their natural order.
template <class Format>
HWY_INLINE void TransposeStep(const uint16_t* const* rows, size_t k, float* panel) {
  const auto r0 = LoadBlocks<kBlocks>(rows + 0, k);
  const auto r1 = LoadBlocks<kBlocks>(rows + 1, k);
  const auto r2 = LoadBlocks<kBlocks>(rows + 2, k);
  const auto r3 = LoadBlocks<kBlocks>(rows + 3, k);
  const auto r4 = LoadBlocks<kBlocks>(rows + kLanes + 0, k);
  const auto r5 = LoadBlocks<kBlocks>(rows + kLanes + 1, k);
  const auto r6 = LoadBlocks<kBlocks>(rows + kLanes + 2, k);
  const auto r7 = LoadBlocks<kBlocks>(rows + kLanes + 3, k);
  const auto words = [](Halves v) HWY_ATTR { return hn::BitCast(kWords, v); };
  const hn::ScalableTag<uint64_t> kLongs;
  // Pairs of rows, k 0..3 and 4..7.
  const auto a0 = words(hn::InterleaveLower(kHalves, r0, r1));
  const auto a1 = words(hn::InterleaveUpper(kHalves, r0, r1));
  const auto a2 = words(hn::InterleaveLower(kHalves, r2, r3));
  const auto a3 = words(hn::InterleaveUpper(kHalves, r2, r3));
  const auto a4 = words(hn::InterleaveLower(kHalves, r4, r5));
  const auto a5 = words(hn::InterleaveUpper(kHalves, r4, r5));
  const auto a6 = words(hn::InterleaveLower(kHalves, r6, r7));
  const auto a7 = words(hn::InterleaveUpper(kHalves, r6, r7));
  // Fours of rows, two k each.
  const auto longs = [kLongs](hn::Vec<hn::ScalableTag<uint32_t>> v)
                         HWY_ATTR { return hn::BitCast(kLongs, v); };
  const auto b0 = longs(hn::InterleaveLower(kWords, a0, a2));
  const auto b1 = longs(hn::InterleaveUpper(kWords, a0, a2));
  const auto b2 = longs(hn::InterleaveLower(kWords, a1, a3));
  const auto b3 = longs(hn::InterleaveUpper(kWords, a1, a3));
  const auto b4 = longs(hn::InterleaveLower(kWords, a4, a6));
  const auto b5 = longs(hn::InterleaveUpper(kWords, a4, a6));
  const auto b6 = longs(hn::InterleaveLower(kWords, a5, a7));
  const auto b7 = longs(hn::InterleaveUpper(kWords, a5, a7));
  const auto halves = [](hn::Vec<hn::ScalableTag<uint64_t>> v)
                          HWY_ATTR { return hn::BitCast(kHalves, v); };
  WidenInto<Format>(halves(hn::InterleaveLower(kLongs, b0, b4)), panel + 0 * kPanelN);
  WidenInto<Format>(halves(hn::InterleaveUpper(kLongs, b0, b4)), panel + 1 * kPanelN);
  WidenInto<Format>(halves(hn::InterleaveLower(kLongs, b1, b5)), panel + 2 * kPanelN);
  WidenInto<Format>(halves(hn::InterleaveUpper(kLongs, b1, b5)), panel + 3 * kPanelN);
  WidenInto<Format>(halves(hn::InterleaveLower(kLongs, b2, b6)), panel + 4 * kPanelN);
  WidenInto<Format>(halves(hn::InterleaveUpper(kLongs, b2, b6)), panel + 5 * kPanelN);
  WidenInto<Format>(halves(hn::InterleaveLower(kLongs, b3, b7)), panel + 6 * kPanelN);
  WidenInto<Format>(halves(hn::InterleaveUpper(kLongs, b3, b7)), panel + 7 * kPanelN);
}

// The multiple-of-8 part of a panel of 16-bit rows contiguous along k; returns its length.
template <class Format>
size_t PackVector(const ChainOperand& b, size_t n0, size_t rows, size_t k0, size_t count,
                  float* panel) {
  const uint16_t* row_of[kPanelN];
  for (size_t i = 0; i < kPanelN; ++i) {
    const size_t row = n0 + std::min(i, rows - 1);  // past the last row: computed, never stored
    row_of[i] = static_cast<const uint16_t*>(b.data) + row * b.row_stride + k0;
  }
  size_t k = 0;
  for (; k + 8 <= count; k += 8) TransposeStep<Format>(row_of, k, panel + k * kPanelN);
  return k;
}
#endif  // HWY_TARGET != HWY_SCALAR

// A whole panel of 16-bit rows whose elements of one k lie side by side.
template <class Format>
void PackAdjacent(const ChainOperand& b, size_t n0, size_t k0, size_t count, float* panel) {
  const uint16_t* from = static_cast<const uint16_t*>(b.data) + n0 + k0 * b.k_stride;
  for (size_t k = 0; k < count; ++k, from += b.k_stride, panel += kPanelN) {
    hn::Store(LoadHalf<Format>(kFloats, from), kFloats, panel);
    hn::Store(LoadHalf<Format>(kFloats, from + kLanes), kFloats, panel + kLanes);
  }
}

// panel[k][i] = b(n0 + i, k0 + k) as float32 for `rows` rows; the other columns hold anything.
void PackPanel(const ChainOperand& b, size_t n0, size_t rows, size_t k0, size_t count,
               float* panel) {
  if (b.row_stride == 1 && rows == kPanelN && b.type != FloatType::kF32) {
    return b.type == FloatType::kBf16 ? PackAdjacent<Bf16>(b, n0, k0, count, panel)
                                      : PackAdjacent<F16>(b, n0, k0, count, panel);
  }
  size_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  if (b.k_stride == 1 && b.type == FloatType::kBf16) {
    done = PackVector<Bf16>(b, n0, rows, k0, count, panel);
  } else if (b.k_stride == 1 && b.type == FloatType::kF16) {
    done = PackVector<F16>(b, n0, rows, k0, count, panel);
  }
#endif
  if (done == count) return;
  for (size_t i = 0; i < rows; ++i) {
    LoadAnyRow(b, n0 + i, k0 + done, count - done, panel + done * kPanelN + i, kPanelN);
  }
  for (size_t i = rows; i < kPanelN; ++i) {
    for (size_t k = done; k < count; ++k) panel[k * kPanelN + i] = 0.0f;
  }
}

// kRows rows of a (`a_stride` floats apart) times a panel over `count` values of k. A chain goes
// on from the sums in c; a tile starts at +0 and is added to them. `first`: there are none yet.
template <size_t kRows, bool kTile>
HWY_INLINE void ProductRows(const float* HWY_RESTRICT a, size_t a_stride,
                            const float* HWY_RESTRICT panel, size_t count, float* HWY_RESTRICT c,
                            bool first) {
  using V = hn::Vec<hn::ScalableTag<float>>;
  V sum[kRows][2];
  HWY_UNROLL(6)  // all row loops: the sums must live in registers
  for (size_t r = 0; r < kRows; ++r) {
    const bool fresh = kTile || first;
    sum[r][0] = fresh ? hn::Zero(kFloats) : hn::Load(kFloats, c + r * kStripN);
    sum[r][1] = fresh ? hn::Zero(kFloats) : hn::Load(kFloats, c + r * kStripN + kLanes);
  }
  for (size_t k = 0; k < count; ++k) {
    const V b0 = hn::Load(kFloats, panel + k * kPanelN);
    const V b1 = hn::Load(kFloats, panel + k * kPanelN + kLanes);
    HWY_UNROLL(6)
    for (size_t r = 0; r < kRows; ++r) {
      const V x = hn::Set(kFloats, a[r * a_stride + k]);
      sum[r][0] = FusedMulAdd(kFloats, x, b0, sum[r][0]);
      sum[r][1] = FusedMulAdd(kFloats, x, b1, sum[r][1]);
    }
  }
  HWY_UNROLL(6)
  for (size_t r = 0; r < kRows; ++r) {
    float* to = c + r * kStripN;
    if (kTile && !first) {
      sum[r][0] = hn::Add(hn::Load(kFloats, to), sum[r][0]);
      sum[r][1] = hn::Add(hn::Load(kFloats, to + kLanes), sum[r][1]);
    }
    hn::Store(sum[r][0], kFloats, to);
    hn::Store(sum[r][1], kFloats, to + kLanes);
  }
}

template <bool kTile>
void ProductAnyRows(size_t rows, const float* a, size_t a_stride, const float* panel, size_t count,
                    float* c, bool first) {
  switch (rows) {
    case 1:
      return ProductRows<1, kTile>(a, a_stride, panel, count, c, first);
    case 2:
      return ProductRows<2, kTile>(a, a_stride, panel, count, c, first);
    case 3:
      return ProductRows<3, kTile>(a, a_stride, panel, count, c, first);
    case 4:
      return ProductRows<4, kTile>(a, a_stride, panel, count, c, first);
    case 5:
      return ProductRows<5, kTile>(a, a_stride, panel, count, c, first);
    default:
      return ProductRows<6, kTile>(a, a_stride, panel, count, c, first);
  }
}

// `m` rows of a against one panel; rows are dealt evenly so that no group is left too small to
// hide the latency of an addition.
void ProductPanel(const ChainProduct& p, const float* a, size_t m, const float* panel, size_t k0,
                  size_t count, float* c) {
  const size_t groups = (m + kMaxRows - 1) / kMaxRows;
  const bool fresh = !p.continues && k0 == 0;
  for (size_t g = 0; g < groups; ++g) {
    const size_t row = m * g / groups;
    const size_t rows = m * (g + 1) / groups - row;
    const float* a_rows = a + row * p.k + k0;
    if (p.tile_k == 0) {
      ProductAnyRows<false>(rows, a_rows, p.k, panel, count, c + row * kStripN, fresh);
      continue;
    }
    for (size_t k = 0; k < count; k += p.tile_k) {
      ProductAnyRows<true>(rows, a_rows + k, p.k, panel + k * kPanelN,
                           std::min(p.tile_k, count - k), c + row * kStripN, fresh && k == 0);
    }
  }
}

template <class Format>
void StoreSums(const ChainProduct& p, const float* c, size_t m0, size_t m, size_t n0, size_t n) {
  for (size_t r = 0; r < m; ++r) {
    auto* to = static_cast<typename Format::Storage*>(p.out) + (m0 + r) * p.out_row_stride + n0;
    for (size_t i = 0; i < n; ++i) to[i] = Format::Store(c[r * kStripN + i]);
  }
}

void LoadSums(const ChainProduct& p, float* c, size_t m0, size_t m, size_t n0, size_t n) {
  for (size_t r = 0; r < m; ++r) {
    const float* from = static_cast<const float*>(p.out) + (m0 + r) * p.out_row_stride + n0;
    std::copy_n(from, n, c + r * kStripN);
  }
}

// Columns [n_begin, n_end) of rows [m0, m0 + m); `a` is those rows in float32, [m, k].
void ProductColumns(const ChainProduct& p, const float* a, size_t m0, size_t m, size_t n_begin,
                    size_t n_end) {
  const auto sums = hwy::AllocateAligned<float>(m * kStripN);
  const auto panel = hwy::AllocateAligned<float>(kChainBlockK * kPanelN);
  for (size_t n0 = n_begin; n0 < n_end; n0 += kStripN) {
    const size_t n = std::min(kStripN, n_end - n0);
    if (p.continues) LoadSums(p, sums.get(), m0, m, n0, n);
    for (size_t k0 = 0; k0 < p.k; k0 += kChainBlockK) {
      const size_t count = std::min(kChainBlockK, p.k - k0);
      for (size_t i = 0; i < n; i += kPanelN) {
        PackPanel(p.b, n0 + i, std::min(kPanelN, n - i), k0, count, panel.get());
        ProductPanel(p, a, m, panel.get(), k0, count, sums.get() + i);
      }
    }
    switch (p.out_type) {
      case FloatType::kBf16:
        StoreSums<Bf16>(p, sums.get(), m0, m, n0, n);
        break;
      case FloatType::kF16:
        StoreSums<F16>(p, sums.get(), m0, m, n0, n);
        break;
      default:
        StoreSums<F32>(p, sums.get(), m0, m, n0, n);
    }
  }
}

void LoadRows(const ChainProduct& p, size_t m0, size_t m, float* to) {
  for (size_t r = 0; r < m; ++r) LoadAnyRow(p.a, m0 + r, 0, p.k, to + r * p.k, 1);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {

HWY_EXPORT(ProductColumns);
HWY_EXPORT(LoadRows);

constexpr size_t kBlockM = 120;
// Threads are dealt columns in units of the widest panel.
constexpr size_t kColumnUnit = 32;

}  // namespace

void RunChainProduct(const ChainProduct& p) {
  const auto a = hwy::AllocateAligned<float>(std::min(kBlockM, p.m) * p.k);
  const size_t units = (p.n + kColumnUnit - 1) / kColumnUnit;
  for (size_t m0 = 0; m0 < p.m; m0 += kBlockM) {
    const size_t m = std::min(kBlockM, p.m - m0);
    HWY_DYNAMIC_DISPATCH(LoadRows)(p, m0, m, a.get());
    ParallelFor(units, p.threads, [&](size_t begin, size_t end) {
      HWY_DYNAMIC_DISPATCH(ProductColumns)
      (p, a.get(), m0, m, begin * kColumnUnit, std::min(end * kColumnUnit, p.n));
    });
  }
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
