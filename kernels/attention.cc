#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/exact_math.h"
#include "kernels/float_formats.h"
#include "kernels/fp_environment.h"
#include "kernels/gemm_engine.h"
#include "kernels/parallel.h"

namespace lockstep::kernels {
namespace {

// Queries of one head that share the work on their common keys; changes no byte.
constexpr size_t kBlockQueries = 32;

size_t StrideOr(int64_t stride, int64_t columns) {
  return static_cast<size_t>(stride == 0 ? columns : stride);
}

// Turns a row of dots into exp(scale * dot - max), ascending; returns their sum.
float Exponentials(float scale, size_t count, float* row) {
  for (size_t j = 0; j < count; ++j) row[j] = scale * row[j];
  float max = row[0];
  for (size_t j = 1; j < count; ++j) max = row[j] > max ? row[j] : max;
  float sum = 0.0f;
  for (size_t j = 0; j < count; ++j) {
    row[j] = ExpF32(row[j] - max);
    sum = sum + row[j];
  }
  return sum;
}

// One query head's block of queries after another, on one thread.
class HeadBlock {
 public:
  explicit HeadBlock(const AttentionParams& params)
      : p_(params),
        keys_(static_cast<size_t>(p_.keys)),
        head_dim_(static_cast<size_t>(p_.head_dim)),
        value_dim_(static_cast<size_t>(p_.value_dim)),
        q_stride_(StrideOr(p_.q_row_stride, p_.query_heads * p_.head_dim)),
        k_stride_(StrideOr(p_.k_row_stride, p_.kv_heads * p_.head_dim)),
        v_stride_(StrideOr(p_.v_row_stride, p_.kv_heads * p_.value_dim)),
        out_stride_(StrideOr(p_.out_row_stride, p_.query_heads * p_.value_dim)),
        weights_(kBlockQueries * keys_),
        values_(kBlockQueries * value_dim_),
        sums_(kBlockQueries) {}

  void Run(size_t head, size_t query, size_t count) {
    const size_t kv_head =
        head * static_cast<size_t>(p_.kv_heads) / static_cast<size_t>(p_.query_heads);
    // Keys that the block's first query sees; each further query sees one more.
    const size_t common = keys_ - static_cast<size_t>(p_.queries) + query + 1;
    Scores(head, kv_head, query, count, common + count - 1);
    for (size_t r = 0; r < count; ++r) {
      sums_[r] = Exponentials(p_.scale, common + r, &weights_[r * keys_]);
    }
    Values(kv_head, 0, count, 0, common, false);
    for (size_t r = 1; r < count; ++r) Values(kv_head, r, 1, common, r, true);
    for (size_t r = 0; r < count; ++r) Store(head, query + r, r);
  }

 private:
  const uint16_t* At(const void* tensor, size_t offset) const {
    return static_cast<const uint16_t*>(tensor) + offset;
  }

  void Scores(size_t head, size_t kv_head, size_t query, size_t count, size_t keys) {
    ChainProduct dots;
    dots.a = {At(p_.q, query * q_stride_ + head * head_dim_), p_.type, q_stride_, 1};
    dots.b = {At(p_.k, kv_head * head_dim_), p_.type, k_stride_, 1};
    dots.m = count, dots.n = keys, dots.k = head_dim_;
    dots.out = weights_.data(), dots.out_row_stride = keys_;
    RunChainProduct(dots);
  }

  // Adds keys [key, key + keys) to the value sums of block rows [row, row + rows).
  void Values(size_t kv_head, size_t row, size_t rows, size_t key, size_t keys, bool continues) {
    ChainProduct sum;
    sum.a = {&weights_[row * keys_ + key], FloatType::kF32, keys_, 1};
    sum.b = {At(p_.v, key * v_stride_ + kv_head * value_dim_), p_.type, 1, v_stride_};
    sum.m = rows, sum.n = value_dim_, sum.k = keys;
    sum.out = &values_[row * value_dim_], sum.out_row_stride = value_dim_;
    sum.continues = continues;
    RunChainProduct(sum);
  }

  void Store(size_t head, size_t query, size_t row) const {
    uint16_t* out = static_cast<uint16_t*>(p_.out) + query * out_stride_ + head * value_dim_;
    for (size_t i = 0; i < value_dim_; ++i) {
      const float value = values_[row * value_dim_ + i] / sums_[row];
      out[i] = p_.type == FloatType::kBf16 ? Bf16::Store(value) : F16::Store(value);
    }
  }

  const AttentionParams& p_;
  const size_t keys_, head_dim_, value_dim_, q_stride_, k_stride_, v_stride_, out_stride_;
  std::vector<float> weights_;  // [kBlockQueries, keys]
  std::vector<float> values_;   // [kBlockQueries, value_dim]
  std::vector<float> sums_;     // [kBlockQueries]
};

}  // namespace

absl::Status CheckAttention(const AttentionParams& p) {
  if (p.type != FloatType::kBf16 && p.type != FloatType::kF16) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention: expected q, k and v as BF16 or F16, got ", Name(p.type)));
  }
  if (p.queries < 1 || p.keys < p.queries || p.head_dim < 1 || p.value_dim < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attention: expected q [T,Hq,D], k [S,Hkv,D] and v [S,Hkv,Dv] with T, D and Dv of at least "
        "1 and S of at least T, got T=",
        p.queries, " S=", p.keys, " D=", p.head_dim, " Dv=", p.value_dim));
  }
  if (p.kv_heads < 1 || p.query_heads < 1 || p.query_heads % p.kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention: expected query heads in a multiple of the kv heads, got ",
                     p.query_heads, " and ", p.kv_heads));
  }
  const auto fits = [](int64_t stride, int64_t row) { return stride == 0 || stride >= row; };
  if (!fits(p.q_row_stride, p.query_heads * p.head_dim) ||
      !fits(p.k_row_stride, p.kv_heads * p.head_dim) ||
      !fits(p.v_row_stride, p.kv_heads * p.value_dim) ||
      !fits(p.out_row_stride, p.query_heads * p.value_dim)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attention: expected row strides of 0 or at least a token's heads, got q ", p.q_row_stride,
        ", k ", p.k_row_stride, ", v ", p.v_row_stride, ", out ", p.out_row_stride));
  }
  if (!(p.scale > 0.0f) || std::isinf(p.scale)) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention: expected a finite scale above 0, got ", p.scale));
  }
  if (p.q == nullptr || p.k == nullptr || p.v == nullptr || p.out == nullptr) {
    return absl::InvalidArgumentError("attention: expected non-null q, k, v and out");
  }
  return CheckFpEnvironment();
}

float AttentionScale(int64_t head_dim) { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }

absl::Status SoftmaxAttention(const AttentionParams& p) {
  if (absl::Status status = CheckAttention(p); !status.ok()) return status;
  const size_t queries = static_cast<size_t>(p.queries);
  const size_t blocks = (queries + kBlockQueries - 1) / kBlockQueries;
  ParallelFor(static_cast<size_t>(p.query_heads) * blocks, p.threads,
              [&](size_t begin, size_t end) {
                HeadBlock block(p);
                for (size_t i = begin; i < end; ++i) {
                  const size_t query = i % blocks * kBlockQueries;
                  block.Run(i / blocks, query, std::min(kBlockQueries, queries - query));
                }
              });
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
