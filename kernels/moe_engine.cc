#include "kernels/moe_engine.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/moe_engine.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/exact_simd-inl.h"
#include "kernels/float_formats.h"
#include "kernels/half_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {

using Floats = hn::ScalableTag<float>;
constexpr size_t kLanes = hn::MaxLanes(Floats());

template <MoeLeafProgram kProgram>
HWY_INLINE void LeafStep(hn::Vec<Floats> scale, const uint16_t* routed, const uint16_t* shared,
                         uint16_t* out) {
  const Floats d;
  const auto r = LoadHalf<Bf16>(d, routed);
  const auto s = LoadHalf<Bf16>(d, shared);
  if constexpr (kProgram == MoeLeafProgram::kBf16Add) {
    StoreHalf<Bf16>(d, hn::Add(RoundHalf<Bf16>(d, hn::Mul(r, scale)), s), out);
  } else {
    StoreHalf<Bf16>(d, FusedMulAdd(d, r, scale, s), out);
  }
}

template <MoeLeafProgram kProgram>
void Leaf(const MoeLeafStretch& p) {
  const Floats d;
  const auto scale = hn::Set(d, p.scale);
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= p.count; i += lanes) {
    LeafStep<kProgram>(scale, p.routed + i, p.shared + i, p.out + i);
  }
  const size_t rest = p.count - i;
  if (rest == 0) return;
  HWY_ALIGN uint16_t routed[kLanes] = {};
  HWY_ALIGN uint16_t shared[kLanes] = {};
  HWY_ALIGN uint16_t out[kLanes];
  memcpy(routed, p.routed + i, rest * sizeof(*routed));
  memcpy(shared, p.shared + i, rest * sizeof(*shared));
  LeafStep<kProgram>(scale, routed, shared, out);
  memcpy(p.out + i, out, rest * sizeof(*out));
}

void LeafEntry(const MoeLeafStretch& p) {
  p.program == MoeLeafProgram::kBf16Add ? Leaf<MoeLeafProgram::kBf16Add>(p)
                                        : Leaf<MoeLeafProgram::kFp32Fma>(p);
}

// Columns folded together: two cache lines of each contributor.
constexpr size_t kFoldColumns = 64;
// A tree over up to 2^20 leaves never holds more pending sums than this.
constexpr size_t kFoldLevels = 21;
static_assert(kMoeFoldMaxContributors <= int64_t{1} << (kFoldLevels - 1));

// The nodes of each program: what a leaf becomes, what a parent of two is, how the root is stored.
// kFoldColumns values at a time.
struct Bf16Nodes {
  using Node = float;

  static void Promote(const uint16_t* leaf, float* node) {
    const Floats d;
    for (size_t i = 0; i < kFoldColumns; i += hn::Lanes(d)) {
      hn::Store(LoadHalf<Bf16>(d, leaf + i), d, node + i);
    }
  }
  static void AddTo(float* left, const float* right) {
    const Floats d;
    for (size_t i = 0; i < kFoldColumns; i += hn::Lanes(d)) {
      const auto sum = hn::Add(hn::Load(d, left + i), hn::Load(d, right + i));
      hn::Store(RoundHalf<Bf16>(d, sum), d, left + i);
    }
  }
  static void StoreRoot(const float* node, uint16_t* out) {
    const Floats d;
    for (size_t i = 0; i < kFoldColumns; i += hn::Lanes(d)) {
      StoreHalf<Bf16>(d, hn::Load(d, node + i), out + i);
    }
  }
};

struct F32Nodes : Bf16Nodes {
  static void AddTo(float* left, const float* right) {
    const Floats d;
    for (size_t i = 0; i < kFoldColumns; i += hn::Lanes(d)) {
      hn::Store(hn::Add(hn::Load(d, left + i), hn::Load(d, right + i)), d, left + i);
    }
  }
};

struct F64Nodes {
  using Node = double;
  using Doubles = hn::ScalableTag<double>;

  static void Promote(const uint16_t* leaf, double* node) {
    const Doubles d;
    const hn::Rebind<float, Doubles> df;
    for (size_t i = 0; i < kFoldColumns; i += hn::Lanes(d)) {
      hn::Store(hn::PromoteTo(d, LoadHalf<Bf16>(df, leaf + i)), d, node + i);
    }
  }
  static void AddTo(double* left, const double* right) {
    const Doubles d;
    for (size_t i = 0; i < kFoldColumns; i += hn::Lanes(d)) {
      hn::Store(hn::Add(hn::Load(d, left + i), hn::Load(d, right + i)), d, left + i);
    }
  }
  static void StoreRoot(const double* node, uint16_t* out) {
    for (size_t i = 0; i < kFoldColumns; ++i) out[i] = Bf16::StoreF64(node[i]);
  }
};

// Leaf `e` of kFoldColumns columns starting at `column`; a short last block is padded with zeros.
HWY_INLINE const uint16_t* LeafAt(const MoeFoldStretch& p, size_t e, size_t column, size_t count,
                                  uint16_t* padded) {
  const uint16_t* leaf = p.first + e * p.contributor_stride + column;
  if (count == kFoldColumns) return leaf;
  memcpy(padded, leaf, count * sizeof(*leaf));
  return padded;
}

// Adjacent pairs with the odd tail passed up: pending[] holds complete subtrees of falling sizes,
// powers of two; a new leaf closes every pair it completes, and the subtrees left at the end, the
// passed-up tails, join from the right.
template <class Nodes>
void Fold(const MoeFoldStretch& p) {
  HWY_ALIGN typename Nodes::Node pending[kFoldLevels][kFoldColumns];
  HWY_ALIGN uint16_t padded[kFoldColumns] = {};
  HWY_ALIGN uint16_t out[kFoldColumns];
  for (size_t column = 0; column < p.count; column += kFoldColumns) {
    const size_t count = std::min(kFoldColumns, p.count - column);
    size_t depth = 0;
    const auto join_last_two = [&]() HWY_ATTR {
      --depth;
      Nodes::AddTo(pending[depth - 1], pending[depth]);
    };
    for (size_t e = 0; e < p.contributors; ++e) {
      Nodes::Promote(LeafAt(p, e, column, count, padded), pending[depth++]);
      for (size_t complete = e + 1; complete % 2 == 0; complete /= 2) join_last_two();
    }
    while (depth > 1) join_last_two();
    Nodes::StoreRoot(pending[0], out);
    memcpy(p.out + column, out, count * sizeof(*out));
  }
}

void FoldEntry(const MoeFoldStretch& p) {
  switch (p.program) {
    case MoeFoldProgram::kBf16Tree:
      return Fold<Bf16Nodes>(p);
    case MoeFoldProgram::kFp32Tree:
      return Fold<F32Nodes>(p);
    case MoeFoldProgram::kFp64Tree:
      return Fold<F64Nodes>(p);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {

HWY_EXPORT(LeafEntry);
HWY_EXPORT(FoldEntry);

void RunMoeLeafStretch(const MoeLeafStretch& stretch) { HWY_DYNAMIC_DISPATCH(LeafEntry)(stretch); }

void RunMoeFoldStretch(const MoeFoldStretch& stretch) { HWY_DYNAMIC_DISPATCH(FoldEntry)(stretch); }

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
