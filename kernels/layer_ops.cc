#include "kernels/layer_ops.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/layer_steps.h"
#include "kernels/parallel.h"
#include "kernels/row_blocks.h"

namespace lockstep::kernels {
namespace {

// Element `at` of a BF16 or F32 array.
float LoadAt(FloatType type, const void* data, int64_t at) {
  return type == FloatType::kBf16 ? Bf16::Load(static_cast<const uint16_t*>(data)[at])
                                  : static_cast<const float*>(data)[at];
}

absl::Status CheckBf16OrF32(const char* op, const char* what, FloatType type) {
  if (type == FloatType::kBf16 || type == FloatType::kF32) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": expected '", what, "' as BF16 or F32, got ", Name(type)));
}

// Calls fn(row) for every row.
template <class Fn>
void ForEachRow(int64_t rows, int threads, Fn fn) {
  ParallelFor(static_cast<size_t>(rows), threads, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) fn(static_cast<int64_t>(row));
  });
}

// The array as float32; zeros where there is none.
std::vector<float> Widened(FloatType type, const void* data, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count), 0.0f);
  if (data == nullptr) return values;
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = LoadAt(type, data, i);
  return values;
}

// The last inputs as they came, halo included when the run is shorter. The tail may be the halo.
void CopyTail(const ShortConvParams& p) {
  const size_t row_bytes = static_cast<size_t>(p.channels) * SizeOf(p.type);
  std::vector<uint8_t> tail(kShortConvHalo * row_bytes, 0);
  for (int64_t j = 0; j < kShortConvHalo; ++j) {
    const int64_t token = p.tokens - kShortConvHalo + j;
    const void* rows = token < 0 ? p.halo : p.x;
    if (rows == nullptr) continue;
    const size_t row = static_cast<size_t>(token < 0 ? token + kShortConvHalo : token);
    memcpy(tail.data() + static_cast<size_t>(j) * row_bytes,
           static_cast<const uint8_t*>(rows) + row * row_bytes, row_bytes);
  }
  memcpy(p.tail, tail.data(), tail.size());
}

}  // namespace

absl::Status Embedding(const EmbeddingParams& p) {
  absl::Status status =
      CheckRowOperands("embedding", p.rows, p.columns,
                       {{"weight", p.weight, 0}, {"out", p.out, 0}, {"tokens", p.tokens, 0}});
  if (!status.ok()) return status;
  for (int64_t row = 0; row < p.rows; ++row) {
    if (p.tokens[row] < 0 || p.tokens[row] >= p.vocab) {
      return absl::InvalidArgumentError(absl::StrCat("embedding: token ", p.tokens[row], " of row ",
                                                     row, " is not in [0, ", p.vocab, ")"));
    }
  }
  ForEachRow(p.rows, p.threads, [&](int64_t row) {
    const uint16_t* from = p.weight + p.tokens[row] * p.columns;
    uint16_t* to = p.out + row * p.columns;
    for (int64_t i = 0; i < p.columns; ++i) to[i] = Bf16::Store(Bf16::Load(from[i]));
  });
  return absl::OkStatus();
}

absl::Status ResidualAdd(const ResidualAddParams& p) {
  absl::Status status =
      CheckRowOperands("residual_add", p.rows, p.columns,
                       {{"residual", p.residual, 0}, {"x", p.x, 0}, {"out", p.out, 0}});
  if (!status.ok()) return status;
  ForEachRow(p.rows, p.threads, [&](int64_t row) {
    for (int64_t i = row * p.columns; i < (row + 1) * p.columns; ++i) {
      p.out[i] = Bf16::Store(Bf16::Load(p.residual[i]) + Bf16::Load(p.x[i]));
    }
  });
  return absl::OkStatus();
}

absl::Status GdnGates(const GdnGatesParams& p) {
  absl::Status status = CheckRowOperands("gdn_gates", p.tokens, p.value_heads,
                                         {{"a", p.a, 0},
                                          {"b", p.b, 0},
                                          {"a_log", p.a_log, 0},
                                          {"dt_bias", p.dt_bias, 0},
                                          {"g", p.g, 0},
                                          {"beta", p.beta, 0}});
  if (!status.ok()) return status;
  status = CheckBf16OrF32("gdn_gates", "a_log and dt_bias", p.vector_type);
  if (!status.ok()) return status;
  ForEachRow(p.tokens, p.threads, [&](int64_t token) {
    for (int64_t head = 0; head < p.value_heads; ++head) {
      const int64_t at = token * p.value_heads + head;
      p.g[at] = GdnDecayStep(Bf16::Load(p.a[at]), LoadAt(p.vector_type, p.dt_bias, head),
                             LoadAt(p.vector_type, p.a_log, head));
      p.beta[at] = SigmoidIeee(Bf16::Load(p.b[at]));
    }
  });
  return absl::OkStatus();
}

absl::Status L2Norm(const L2NormParams& p) {
  constexpr float kEps = 1e-6f;
  absl::Status status =
      CheckRowOperands("l2norm", p.rows, p.columns, {{"x", p.x, 0}, {"out", p.out, 0}});
  if (!status.ok()) return status;
  status = CheckBf16OrF32("l2norm", "x", p.type);
  if (!status.ok()) return status;
  ForEachRow(p.rows, p.threads, [&](int64_t row) {
    float sum = 0.0f;
    for (int64_t i = row * p.columns; i < (row + 1) * p.columns; ++i) {
      const float x = LoadAt(p.type, p.x, i);
      sum = FusedMultiplyAdd(x, x, sum);
    }
    const float inv = 1.0f / SquareRoot(sum + kEps);
    for (int64_t i = row * p.columns; i < (row + 1) * p.columns; ++i) {
      p.out[i] = F32::Store(LoadAt(p.type, p.x, i) * inv);
    }
  });
  return absl::OkStatus();
}

absl::Status SigmoidGate(const SigmoidGateParams& p) {
  absl::Status status = CheckRowOperands("sigmoid_gate", p.rows, p.columns,
                                         {{"x", p.x, 0}, {"gate", p.gate, 0}, {"out", p.out, 0}});
  if (!status.ok()) return status;
  ForEachRow(p.rows, p.threads, [&](int64_t row) {
    for (int64_t i = row * p.columns; i < (row + 1) * p.columns; ++i) {
      const float gate = Bf16::Load(p.gate[p.gate_per_row ? row : i]);
      p.out[i] = Bf16::Store(SigmoidGateStep(Bf16::Load(p.x[i]), gate));
    }
  });
  return absl::OkStatus();
}

absl::Status GatedRmsNorm(const GatedRmsNormParams& p) {
  absl::Status status = CheckRowOperands(
      "gated_rmsnorm", p.rows, p.columns,
      {{"x", p.x, 0}, {"weight", p.weight, 0}, {"gate", p.gate, 0}, {"out", p.out, 0}});
  if (!status.ok()) return status;
  status = CheckBf16OrF32("gated_rmsnorm", "x", p.type);
  if (!status.ok()) return status;
  status = CheckBf16OrF32("gated_rmsnorm", "weight", p.weight_type);
  if (!status.ok()) return status;
  constexpr float kLargestFinite = 0x1.fffffep127f;
  if (!(p.eps >= 0.0f && p.eps <= kLargestFinite)) {
    return absl::InvalidArgumentError(
        absl::StrCat("gated_rmsnorm: expected eps finite and not negative, got ", p.eps));
  }
  ParallelFor(static_cast<size_t>(p.rows), p.threads, [&](size_t begin, size_t end) {
    std::vector<float> squares(static_cast<size_t>(p.columns));
    for (size_t row = begin; row < end; ++row) {
      const int64_t first = static_cast<int64_t>(row) * p.columns;
      for (int64_t i = 0; i < p.columns; ++i) {
        const float x = LoadAt(p.type, p.x, first + i);
        squares[static_cast<size_t>(i)] = x * x;
      }
      const float sum = PairTreeSumInPlace(squares.data(), p.columns);
      const float inv = InverseRms(sum, static_cast<float>(p.columns), p.eps);
      for (int64_t i = 0; i < p.columns; ++i) {
        p.out[first + i] = Bf16::Store(GatedNormStep(LoadAt(p.type, p.x, first + i), inv,
                                                     LoadAt(p.weight_type, p.weight, i),
                                                     Bf16::Load(p.gate[first + i])));
      }
    }
  });
  return absl::OkStatus();
}

absl::Status ShortConvSilu(const ShortConvParams& p) {
  absl::Status status =
      CheckRowOperands("short_conv_silu", p.tokens, p.channels,
                       {{"x", p.x, 0}, {"weight", p.weight, 0}, {"out", p.out, 0}});
  if (!status.ok()) return status;
  status = CheckBf16OrF32("short_conv_silu", "x", p.type);
  if (!status.ok()) return status;
  // A float32 run of the convolution stores its sums unchanged.
  const std::vector<float> x = Widened(p.type, p.x, p.tokens * p.channels);
  const std::vector<float> halo = Widened(p.type, p.halo, kShortConvHalo * p.channels);
  std::vector<float> sums(x.size());
  ShortConvParams wide = p;
  wide.type = FloatType::kF32;
  wide.x = x.data(), wide.halo = halo.data();
  wide.out = sums.data(), wide.tail = nullptr;
  status = ShortConv(wide);
  if (!status.ok()) return status;
  ParallelFor(sums.size(), p.threads, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const float value = SiluIeee(sums[i]);
      if (p.type == FloatType::kBf16) {
        static_cast<uint16_t*>(p.out)[i] = Bf16::Store(value);
      } else {
        static_cast<float*>(p.out)[i] = F32::Store(value);
      }
    }
  });
  if (p.tail != nullptr) CopyTail(p);
  return absl::OkStatus();
}

absl::Status MoeCombine(const MoeCombineParams& p) {
  absl::Status status = CheckRowOperands(
      "moe_combine", p.rows, p.columns,
      {{"ids", p.ids, 0}, {"weights", p.weights, 0}, {"outputs", p.outputs, 0}, {"out", p.out, 0}});
  if (!status.ok()) return status;
  if (p.topk < 1 || p.first_expert < 0 || p.end_expert < p.first_expert) {
    return absl::InvalidArgumentError(
        absl::StrCat("moe_combine: expected topk of at least 1 and experts in order, got topk ",
                     p.topk, " and experts [", p.first_expert, ", ", p.end_expert, ")"));
  }
  ForEachRow(p.rows, p.threads, [&](int64_t row) {
    for (int64_t i = 0; i < p.columns; ++i) {
      float sum = 0.0f;
      for (int64_t slot = row * p.topk; slot < (row + 1) * p.topk; ++slot) {
        if (p.ids[slot] < p.first_expert || p.ids[slot] >= p.end_expert) continue;
        sum = FusedMultiplyAdd(p.weights[slot], Bf16::Load(p.outputs[slot * p.columns + i]), sum);
      }
      p.out[row * p.columns + i] = Bf16::Store(sum);
    }
  });
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
