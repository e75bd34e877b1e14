// The mixers of layer_qwen3_5.h.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/attention.h"
#include "kernels/layer_ops.h"
#include "kernels/layer_qwen3_5.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"

namespace lockstep::kernels {
namespace {

using Rows = std::vector<uint16_t>;  // BF16, dense

size_t Elements(int64_t rows, int64_t columns) { return static_cast<size_t>(rows * columns); }

absl::Status ProjectTo(const LayerRun& run, absl::string_view component, const LayerWeight& weight,
                       int64_t n, int64_t k, const uint16_t* x, uint16_t* out) {
  Projection p;
  p.rows = run.rows(), p.n = n, p.k = k;
  p.x = x, p.weight = weight.bf16(), p.out = out;
  p.threads = run.threads;
  absl::Status status = Project(p);
  if (status.ok()) run.Observe(component, FloatType::kBf16, p.rows, n, out);
  return status;
}

// Columns [first, first + count) of each row of `from`, dense.
Rows Columns(const Rows& from, int64_t row_elements, int64_t first, int64_t count) {
  const size_t rows = from.size() / static_cast<size_t>(row_elements);
  Rows to(rows * static_cast<size_t>(count));
  for (size_t row = 0; row < rows; ++row) {
    std::copy_n(from.data() + row * static_cast<size_t>(row_elements) + static_cast<size_t>(first),
                static_cast<size_t>(count), to.data() + row * static_cast<size_t>(count));
  }
  return to;
}

// Calls fn(first row, tokens) for each document.
template <class Fn>
absl::Status ForEachDocument(const LayerRun& run, Fn fn) {
  int64_t first = 0;
  for (const int64_t tokens : run.document_tokens) {
    if (absl::Status status = fn(first, tokens); !status.ok()) return status;
    first += tokens;
  }
  return absl::OkStatus();
}

absl::Status CheckGdnMixer(const Qwen35Sizes& s, const GdnMixerWeights& w, const LayerRun& run) {
  constexpr char kOp[] = "gdn_mixer";
  if (absl::Status status = CheckLayerRun(run); !status.ok()) return status;
  const int64_t values = s.value_heads * s.value_dim;
  const struct {
    const char* role;
    const LayerWeight& weight;
    int64_t elements;
    bool f32_too;
  } expected[] = {
      {"in_proj_qkv", w.in_proj_qkv, s.conv_channels() * s.hidden, false},
      {"in_proj_z", w.in_proj_z, values * s.hidden, false},
      {"in_proj_a", w.in_proj_a, s.value_heads * s.hidden, false},
      {"in_proj_b", w.in_proj_b, s.value_heads * s.hidden, false},
      {"conv1d", w.conv1d, s.conv_channels() * kShortConvWidth, true},
      {"A_log", w.a_log, s.value_heads, true},
      {"dt_bias", w.dt_bias, s.value_heads, true},
      {"norm", w.norm, s.value_dim, true},
      {"out_proj", w.out_proj, values * s.hidden, false},
  };
  for (const auto& e : expected) {
    absl::Status status = CheckLayerWeight(kOp, e.role, e.weight, e.elements, e.f32_too);
    if (!status.ok()) return status;
  }
  if (w.a_log.type != w.dt_bias.type) {
    return absl::InvalidArgumentError(
        absl::StrCat("gdn_mixer: expected 'A_log' and 'dt_bias' of one type, got ",
                     Name(w.a_log.type), " and ", Name(w.dt_bias.type)));
  }
  return absl::OkStatus();
}

// The gates, from the projections of x; [rows, Hv] each.
absl::Status RunGates(const Qwen35Sizes& s, const GdnMixerWeights& w, const LayerRun& run,
                      const uint16_t* x, std::vector<float>& g, std::vector<float>& beta) {
  const int64_t rows = run.rows();
  Rows a(Elements(rows, s.value_heads)), b(a.size());
  g.resize(a.size()), beta.resize(a.size());
  absl::Status status =
      ProjectTo(run, "in_proj_a", w.in_proj_a, s.value_heads, s.hidden, x, a.data());
  if (!status.ok()) return status;
  status = ProjectTo(run, "in_proj_b", w.in_proj_b, s.value_heads, s.hidden, x, b.data());
  if (!status.ok()) return status;
  GdnGatesParams p;
  p.tokens = rows, p.value_heads = s.value_heads;
  p.a = a.data(), p.b = b.data();
  p.vector_type = w.a_log.type, p.a_log = w.a_log.data, p.dt_bias = w.dt_bias.data;
  p.g = g.data(), p.beta = beta.data();
  p.threads = run.threads;
  status = GdnGates(p);
  if (!status.ok()) return status;
  run.Observe("gdn_decay", FloatType::kF32, rows, s.value_heads, g.data());
  run.Observe("gdn_beta", FloatType::kF32, rows, s.value_heads, beta.data());
  return absl::OkStatus();
}

// q|k|v after convolution and SiLU, [rows, conv_channels].
absl::Status RunConv(const Qwen35Sizes& s, const GdnMixerWeights& w, const LayerRun& run,
                     const uint16_t* x, Rows& mixed) {
  const int64_t channels = s.conv_channels();
  Rows qkv(Elements(run.rows(), channels));
  mixed.resize(qkv.size());
  absl::Status status =
      ProjectTo(run, "in_proj_qkv", w.in_proj_qkv, channels, s.hidden, x, qkv.data());
  if (!status.ok()) return status;
  status = ForEachDocument(run, [&](int64_t first, int64_t tokens) {
    ShortConvParams p;
    p.tokens = tokens, p.channels = channels;
    p.x = qkv.data() + first * channels, p.out = mixed.data() + first * channels;
    p.weight = w.conv1d.data, p.weight_type = w.conv1d.type;
    p.threads = run.threads;
    return ShortConvSilu(p);
  });
  if (status.ok()) {
    run.Observe("short_conv_silu", FloatType::kBf16, run.rows(), channels, mixed.data());
  }
  return status;
}

// The delta rule of each document, [rows, Hv * V].
absl::Status RunDelta(const Qwen35Sizes& s, const LayerRun& run,
                      const std::optional<GdnSplit>& split, const Rows& mixed,
                      const std::vector<float>& g, const std::vector<float>& beta, Rows& o) {
  const int64_t keys = s.key_heads * s.key_dim;
  const int64_t values = s.value_heads * s.value_dim;
  const Rows q = Columns(mixed, s.conv_channels(), 0, keys);
  const Rows k = Columns(mixed, s.conv_channels(), keys, keys);
  const Rows v = Columns(mixed, s.conv_channels(), 2 * keys, values);
  o.resize(v.size());
  std::vector<float> state(Elements(s.value_heads, s.key_dim * s.value_dim));
  absl::Status status = ForEachDocument(run, [&](int64_t first, int64_t tokens) {
    GdnParams p;
    p.tokens = tokens, p.key_heads = s.key_heads, p.value_heads = s.value_heads;
    p.key_dim = s.key_dim, p.value_dim = s.value_dim;
    p.input_type = FloatType::kBf16, p.out_type = FloatType::kBf16;
    p.q = q.data() + first * keys, p.k = k.data() + first * keys;
    p.v = v.data() + first * values, p.o = o.data() + first * values;
    p.g = g.data() + first * s.value_heads, p.beta = beta.data() + first * s.value_heads;
    p.state = state.data();
    p.threads = run.threads;
    return split.has_value() ? GdnCpSimulated(p, split->program, split->cp) : Gdn(p);
  });
  if (status.ok()) run.Observe("gdn", FloatType::kBf16, run.rows(), values, o.data());
  return status;
}

absl::Status CheckAttentionMixer(const Qwen35Sizes& s, const AttentionMixerWeights& w,
                                 const LayerRun& run, const RopeTable& rope) {
  constexpr char kOp[] = "attention_mixer";
  if (absl::Status status = CheckLayerRun(run); !status.ok()) return status;
  const int64_t queries = s.heads * s.head_dim;
  const int64_t keys = s.kv_heads * s.head_dim;
  const struct {
    const char* role;
    const LayerWeight& weight;
    int64_t elements;
    bool f32_too;
  } expected[] = {
      {"q_proj", w.q_proj, 2 * queries * s.hidden, false},
      {"k_proj", w.k_proj, keys * s.hidden, false},
      {"v_proj", w.v_proj, keys * s.hidden, false},
      {"q_norm", w.q_norm, s.head_dim, true},
      {"k_norm", w.k_norm, s.head_dim, true},
      {"o_proj", w.o_proj, queries * s.hidden, false},
  };
  for (const auto& e : expected) {
    absl::Status status = CheckLayerWeight(kOp, e.role, e.weight, e.elements, e.f32_too);
    if (!status.ok()) return status;
  }
  const int64_t longest = *std::max_element(run.document_tokens.begin(), run.document_tokens.end());
  if (rope.positions < longest) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention_mixer: expected a rope table of at least ", longest,
                     " positions, got ", rope.positions));
  }
  return absl::OkStatus();
}

// Norm and rotation of each head, in place; [rows, heads, head_dim].
absl::Status NormAndRotate(const Qwen35Sizes& s, const LayerRun& run, const RopeTable& rope,
                           const std::vector<int64_t>& positions, const LayerWeight& norm,
                           int64_t heads, Rows& x) {
  RmsNormParams n;
  n.rows = run.rows() * heads, n.columns = s.head_dim;
  n.x = x.data(), n.out = x.data();
  n.weight = norm.data, n.weight_type = norm.type;
  n.zero_centered = true, n.eps = s.eps;
  n.threads = run.threads;
  if (absl::Status status = RmsNorm(n); !status.ok()) return status;
  RopeParams r;
  r.rows = run.rows(), r.heads = heads, r.head_dim = s.head_dim, r.rotary_dim = s.rotary_dim;
  r.x = x.data(), r.out = x.data(), r.positions = positions.data();
  r.cos = rope.cos.data(), r.sin = rope.sin.data(), r.table_positions = rope.positions;
  r.threads = run.threads;
  return RopeNeox(r);
}

// Each document's attention; `out` [rows, heads * head_dim].
absl::Status Attend(const Qwen35Sizes& s, const LayerRun& run, const Rows& q, const Rows& k,
                    const Rows& v, Rows& out) {
  const int64_t queries = s.heads * s.head_dim;
  const int64_t keys = s.kv_heads * s.head_dim;
  out.resize(q.size());
  absl::Status status = ForEachDocument(run, [&](int64_t first, int64_t tokens) {
    AttentionParams p;
    p.queries = tokens, p.keys = tokens;
    p.query_heads = s.heads, p.kv_heads = s.kv_heads;
    p.head_dim = s.head_dim, p.value_dim = s.head_dim;
    p.scale = AttentionScale(s.head_dim);
    p.q = q.data() + first * queries, p.out = out.data() + first * queries;
    p.k = k.data() + first * keys, p.v = v.data() + first * keys;
    p.threads = run.threads;
    return SoftmaxAttention(p);
  });
  if (status.ok()) run.Observe("attention", FloatType::kBf16, run.rows(), queries, out.data());
  return status;
}

// Of each head's 2 * head_dim elements the first half (part 0) or the second (part 1).
Rows HeadHalves(const Qwen35Sizes& s, const Rows& q_and_gate, int64_t part) {
  return Columns(q_and_gate, 2 * s.head_dim, part * s.head_dim, s.head_dim);
}

}  // namespace

absl::StatusOr<RopeTable> MakeRope(const Qwen35Sizes& sizes, int64_t positions, int threads) {
  RopeTable table;
  table.positions = positions;
  if (positions > 0 && positions <= kRopeMaxPositions && sizes.rotary_dim > 0) {
    table.cos.resize(Elements(positions, sizes.rotary_dim / 2));
    table.sin.resize(table.cos.size());
  }
  RopeTableParams p;
  p.theta = sizes.rope_theta, p.rotary_dim = sizes.rotary_dim, p.positions = positions;
  p.cos = table.cos.data(), p.sin = table.sin.data();
  p.threads = threads;
  if (absl::Status status = MakeRopeTable(p); !status.ok()) return status;
  return table;
}

absl::Status RunGdnMixer(const Qwen35Sizes& sizes, const GdnMixerWeights& weights,
                         const LayerRun& run, const std::optional<GdnSplit>& split,
                         const uint16_t* x, uint16_t* out) {
  if (absl::Status s = CheckGdnMixer(sizes, weights, run); !s.ok()) return s;
  const int64_t values = sizes.value_heads * sizes.value_dim;
  Rows mixed, o;
  std::vector<float> g, beta;
  if (absl::Status s = RunConv(sizes, weights, run, x, mixed); !s.ok()) return s;
  if (absl::Status s = RunGates(sizes, weights, run, x, g, beta); !s.ok()) return s;
  if (absl::Status s = RunDelta(sizes, run, split, mixed, g, beta, o); !s.ok()) return s;
  Rows z(o.size()), normed(o.size());
  absl::Status status =
      ProjectTo(run, "in_proj_z", weights.in_proj_z, values, sizes.hidden, x, z.data());
  if (!status.ok()) return status;
  GatedRmsNormParams p;
  p.rows = run.rows() * sizes.value_heads, p.columns = sizes.value_dim;
  p.x = o.data(), p.gate = z.data(), p.out = normed.data();
  p.weight = weights.norm.data, p.weight_type = weights.norm.type;
  p.eps = sizes.eps, p.threads = run.threads;
  status = GatedRmsNorm(p);
  if (!status.ok()) return status;
  run.Observe("gated_rmsnorm", FloatType::kBf16, run.rows(), values, normed.data());
  return ProjectTo(run, "out_proj", weights.out_proj, sizes.hidden, values, normed.data(), out);
}

absl::Status RunAttentionMixer(const Qwen35Sizes& sizes, const AttentionMixerWeights& weights,
                               const LayerRun& run, const RopeTable& rope, const uint16_t* x,
                               uint16_t* out) {
  if (absl::Status s = CheckAttentionMixer(sizes, weights, run, rope); !s.ok()) return s;
  const int64_t queries = sizes.heads * sizes.head_dim;
  const int64_t keys = sizes.kv_heads * sizes.head_dim;
  const int64_t h = sizes.hidden;
  Rows q_and_gate(Elements(run.rows(), 2 * queries));
  Rows k(Elements(run.rows(), keys)), v(k.size()), attended;
  absl::Status s = ProjectTo(run, "q_proj", weights.q_proj, 2 * queries, h, x, q_and_gate.data());
  if (!s.ok()) return s;
  s = ProjectTo(run, "k_proj", weights.k_proj, keys, h, x, k.data());
  if (!s.ok()) return s;
  s = ProjectTo(run, "v_proj", weights.v_proj, keys, h, x, v.data());
  if (!s.ok()) return s;
  Rows q = HeadHalves(sizes, q_and_gate, 0);
  const Rows gate = HeadHalves(sizes, q_and_gate, 1);
  std::vector<int64_t> positions;
  for (const int64_t tokens : run.document_tokens) {
    for (int64_t t = 0; t < tokens; ++t) positions.push_back(t);
  }
  s = NormAndRotate(sizes, run, rope, positions, weights.q_norm, sizes.heads, q);
  if (!s.ok()) return s;
  s = NormAndRotate(sizes, run, rope, positions, weights.k_norm, sizes.kv_heads, k);
  if (!s.ok()) return s;
  run.Observe("rope.q", FloatType::kBf16, run.rows(), queries, q.data());
  run.Observe("rope.k", FloatType::kBf16, run.rows(), keys, k.data());
  s = Attend(sizes, run, q, k, v, attended);
  if (!s.ok()) return s;
  SigmoidGateParams p;
  p.rows = run.rows(), p.columns = queries;
  p.x = attended.data(), p.gate = gate.data(), p.out = attended.data();
  p.threads = run.threads;
  s = SigmoidGate(p);
  if (!s.ok()) return s;
  run.Observe("attention_gate", FloatType::kBf16, run.rows(), queries, attended.data());
  return ProjectTo(run, "o_proj", weights.o_proj, h, queries, attended.data(), out);
}

}  // namespace lockstep::kernels
