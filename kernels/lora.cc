#include "kernels/lora.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/float_formats.h"
#include "kernels/fp_environment.h"
#include "kernels/gemm_engine.h"
#include "kernels/lora_factors.h"
#include "kernels/moe.h"
#include "kernels/scaled_add.h"
#include "kernels/swiglu.h"

namespace lockstep::kernels {
namespace {

// Rows of the weight that LoraMerge folds at a time; changes no byte.
constexpr size_t kMergeRows = 64;

size_t StrideOr(int64_t stride, int64_t columns) {
  return static_cast<size_t>(stride == 0 ? columns : stride);
}

bool Fits(int64_t stride, int64_t columns) { return stride == 0 || stride >= columns; }

// The ordinal's slice of the MLP, as one partial [rows, hidden].
class MlpOrdinal {
 public:
  MlpOrdinal(const LoraMlpParams& params, const LoraMlpFactors& factors)
      : p_(params), factors_(factors), shard_(params.intermediate / params.tp) {}

  absl::Status Run(int64_t ordinal, uint16_t* partial) {
    const int64_t begin = ordinal * shard_;
    const size_t cells = static_cast<size_t>(p_.rows * shard_);
    gate_.resize(cells), up_.resize(cells), activated_.resize(cells);
    absl::Status status = Project(p_.gate, factors_.gate, begin, gate_.data());
    if (status.ok()) status = Project(p_.up, factors_.up, begin, up_.data());
    if (status.ok()) status = Activate();
    if (status.ok()) status = Down(begin, partial);
    if (!status.ok()) return status;
    Save(gate_, begin, p_.saved_gate);
    Save(up_, begin, p_.saved_up);
    Save(activated_, begin, p_.saved_activated);
    return absl::OkStatus();
  }

 private:
  absl::Status Project(const uint16_t* weight, const Bf16Factors& factors, int64_t begin,
                       uint16_t* out) const {
    LoraLinearParams linear;
    linear.rows = p_.rows, linear.in_features = p_.hidden, linear.out_features = shard_;
    linear.rank = p_.rank, linear.scale = p_.scale, linear.threads = p_.threads;
    linear.x = p_.x, linear.weight = weight + begin * p_.hidden;
    linear.a = factors.a, linear.b = factors.b + begin * p_.rank;
    linear.out = out;
    return LoraLinear(linear);
  }

  absl::Status Activate() {
    SwigluParams swiglu;
    swiglu.program = SwigluProgram::kOneRoundFp32;
    swiglu.rows = p_.rows, swiglu.columns = shard_;
    swiglu.gate = gate_.data(), swiglu.up = up_.data(), swiglu.out = activated_.data();
    swiglu.silu = p_.silu, swiglu.threads = p_.threads;
    return Swiglu(swiglu);
  }

  absl::Status Down(int64_t begin, uint16_t* partial) const {
    LoraLinearParams linear;
    linear.rows = p_.rows, linear.in_features = shard_, linear.out_features = p_.hidden;
    linear.rank = p_.rank, linear.scale = p_.scale, linear.threads = p_.threads;
    linear.x = activated_.data();
    linear.weight = p_.down + begin, linear.weight_row_stride = p_.intermediate;
    linear.a = factors_.down.a + begin, linear.a_row_stride = p_.intermediate;
    linear.b = factors_.down.b;
    linear.out = partial;
    return LoraLinear(linear);
  }

  void Save(const std::vector<uint16_t>& from, int64_t begin, uint16_t* to) const {
    if (to == nullptr) return;
    for (int64_t r = 0; r < p_.rows; ++r) {
      std::copy_n(from.data() + r * shard_, shard_, to + r * p_.intermediate + begin);
    }
  }

  const LoraMlpParams& p_;
  const LoraMlpFactors& factors_;
  const int64_t shard_;
  std::vector<uint16_t> gate_, up_, activated_;
};

}  // namespace

absl::Status CheckLoraLinear(const LoraLinearParams& p) {
  if (p.rows < 1 || p.in_features < 1 || p.out_features < 1 || p.rank < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "lora: expected x [T,K], weight [N,K], a [r,K] and b [N,r] with T, K, N and r of at least "
        "1, got T=",
        p.rows, " K=", p.in_features, " N=", p.out_features, " r=", p.rank));
  }
  if (p.x == nullptr || p.weight == nullptr || p.a == nullptr || p.b == nullptr ||
      p.out == nullptr) {
    return absl::InvalidArgumentError("lora: expected non-null x, weight, a, b and out");
  }
  if (!Fits(p.x_row_stride, p.in_features) || !Fits(p.weight_row_stride, p.in_features) ||
      !Fits(p.a_row_stride, p.in_features) || !Fits(p.out_row_stride, p.out_features)) {
    return absl::InvalidArgumentError(
        absl::StrCat("lora: expected row strides of 0 or at least K=", p.in_features,
                     " (x, weight, a) and N=", p.out_features, " (out), got ", p.x_row_stride, ", ",
                     p.weight_row_stride, ", ", p.a_row_stride, " and ", p.out_row_stride));
  }
  if (absl::Status status = CheckLoraScale(p.scale); !status.ok()) return status;
  return CheckFpEnvironment();
}

absl::Status CheckLoraMerge(const LoraMergeParams& p) {
  if (p.out_features < 1 || p.in_features < 1 || p.rank < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "lora merge: expected weight [N,K], a [r,K] and b [N,r] with N, K and r of at least 1, "
        "got N=",
        p.out_features, " K=", p.in_features, " r=", p.rank));
  }
  if (p.weight == nullptr || p.out == nullptr || p.factors.a == nullptr || p.factors.b == nullptr) {
    return absl::InvalidArgumentError("lora merge: expected non-null weight, a, b and out");
  }
  if (absl::Status status = CheckLoraFactorType(p.factor_type); !status.ok()) return status;
  if (absl::Status status = CheckLoraScale(p.scale); !status.ok()) return status;
  return CheckFpEnvironment();
}

void ViewAsBf16(const float* masters, size_t count, uint16_t* view) {
  for (size_t i = 0; i < count; ++i) view[i] = Bf16::Store(masters[i]);
}

absl::Status LoraLinear(const LoraLinearParams& p) {
  if (absl::Status status = CheckLoraLinear(p); !status.ok()) return status;
  const size_t rows = static_cast<size_t>(p.rows);
  const size_t rank = static_cast<size_t>(p.rank);
  const size_t outputs = static_cast<size_t>(p.out_features);
  const size_t out_stride = StrideOr(p.out_row_stride, p.out_features);

  ChainProduct base;  // b0, written to out
  base.a = {p.x, FloatType::kBf16, StrideOr(p.x_row_stride, p.in_features), 1};
  base.b = {p.weight, FloatType::kBf16, StrideOr(p.weight_row_stride, p.in_features), 1};
  base.m = rows, base.n = outputs, base.k = static_cast<size_t>(p.in_features);
  base.out = p.out, base.out_type = FloatType::kBf16, base.out_row_stride = out_stride;
  base.threads = p.threads;
  RunChainProduct(base);

  std::vector<uint16_t> a0(rows * rank);
  ChainProduct down = base;
  down.b = {p.a, FloatType::kBf16, StrideOr(p.a_row_stride, p.in_features), 1};
  down.n = rank, down.out = a0.data(), down.out_row_stride = rank;
  RunChainProduct(down);

  std::vector<float> delta(rows * outputs);
  ChainProduct up;
  up.a = {a0.data(), FloatType::kBf16, rank, 1};
  up.b = {p.b, FloatType::kBf16, rank, 1};
  up.m = rows, up.n = outputs, up.k = rank;
  up.out = delta.data(), up.out_row_stride = outputs, up.threads = p.threads;
  RunChainProduct(up);

  for (size_t r = 0; r < rows; ++r) {
    uint16_t* row = p.out + r * out_stride;
    ScaledAddBf16(row, delta.data() + r * outputs, p.scale, outputs, row);
  }
  return absl::OkStatus();
}

absl::Status LoraMlp(const LoraMlpParams& p) {
  if (absl::Status status = CheckLoraMlp(p); !status.ok()) return status;
  if (p.out == nullptr) return absl::InvalidArgumentError("lora_mlp: expected a non-null out");
  const LoraMlpFactors factors(p);
  const size_t partial_cells = static_cast<size_t>(p.rows * p.hidden);
  std::vector<uint16_t> own_partials;
  uint16_t* partials = p.partials;
  if (partials == nullptr) {
    own_partials.resize(static_cast<size_t>(p.tp) * partial_cells);
    partials = own_partials.data();
  }
  MlpOrdinal mlp(p, factors);
  for (int64_t o = 0; o < p.tp; ++o) {
    absl::Status status = mlp.Run(o, partials + static_cast<size_t>(o) * partial_cells);
    if (!status.ok()) return status;
  }
  MoeFoldParams fold;
  fold.program = MoeFoldProgram::kBf16Tree;
  fold.contributors = p.tp, fold.rows = p.rows, fold.columns = p.hidden;
  fold.partials = partials, fold.out = p.out, fold.threads = p.threads;
  return MoeFold(fold);
}

absl::Status LoraMerge(const LoraMergeParams& p) {
  if (absl::Status status = CheckLoraMerge(p); !status.ok()) return status;
  const size_t outputs = static_cast<size_t>(p.out_features);
  const size_t inputs = static_cast<size_t>(p.in_features);
  const size_t rank = static_cast<size_t>(p.rank);
  const Bf16Factors factors(p.factors, p.factor_type, rank * inputs, outputs * rank);
  std::vector<float> delta(std::min(kMergeRows, outputs) * inputs);
  for (size_t row = 0; row < outputs; row += kMergeRows) {
    const size_t rows = std::min(kMergeRows, outputs - row);
    ChainProduct product;
    product.a = {factors.b + row * rank, FloatType::kBf16, rank, 1};
    product.b = {factors.a, FloatType::kBf16, 1, inputs};  // A transposed
    product.m = rows, product.n = inputs, product.k = rank;
    product.out = delta.data(), product.out_row_stride = inputs, product.threads = p.threads;
    RunChainProduct(product);
    ScaledAddBf16(p.weight + row * inputs, delta.data(), p.scale, rows * inputs,
                  p.out + row * inputs);
  }
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
