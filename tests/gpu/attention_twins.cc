#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/attention_cuda.h"
#include "kernels/rope_cuda.h"
#include "kernels/router_topk_cuda.h"
#include "tests/gpu/twins.h"

namespace lockstep::kernels {
namespace {

struct AttentionCase {
  int64_t queries, keys, query_heads, kv_heads, head_dim, value_dim;
  int64_t gap = 0;
};

void CompareAttention(TwinCheck& check, const AttentionCase& c, FloatType type, Mix mix) {
  AttentionParams p;
  p.type = type, p.threads = 2;
  p.queries = c.queries, p.keys = c.keys;
  p.query_heads = c.query_heads, p.kv_heads = c.kv_heads;
  p.head_dim = c.head_dim, p.value_dim = c.value_dim;
  p.scale = AttentionScale(c.head_dim);
  p.q_row_stride = c.query_heads * c.head_dim + c.gap;
  p.k_row_stride = c.kv_heads * c.head_dim + c.gap;
  p.v_row_stride = c.kv_heads * c.value_dim + c.gap;
  p.out_row_stride = c.query_heads * c.value_dim + c.gap;
  const auto halves = [&](int64_t rows, int64_t stride) {
    return check.Halves(static_cast<size_t>(rows * stride), type, mix);
  };
  const std::vector<uint16_t> q = halves(c.queries, p.q_row_stride);
  const std::vector<uint16_t> k = halves(c.keys, p.k_row_stride);
  const std::vector<uint16_t> v = halves(c.keys, p.v_row_stride);
  std::vector<uint16_t> want =
      Poisoned<uint16_t>(static_cast<size_t>(c.queries * p.out_row_stride));
  const DeviceArray<uint16_t> q_d = check.Upload(q), k_d = check.Upload(k), v_d = check.Upload(v);
  const auto got = check.UploadPoison<uint16_t>(want.size());
  const std::string label = absl::StrCat(
      Name(type), " T ", c.queries, " S ", c.keys, " heads ", c.query_heads, "/", c.kv_heads, " D ",
      c.head_dim, "/", c.value_dim, " gap ", c.gap, " mix ", static_cast<int>(mix));
  p.q = q.data(), p.k = k.data(), p.v = v.data(), p.out = want.data();
  check.Ran(kAttentionId, label, SoftmaxAttention(p));
  p.q = q_d.get(), p.k = k_d.get(), p.v = v_d.get(), p.out = got.get();
  const DeviceBuffer workspace =
      OrDie(DeviceBuffer::Allocate(SoftmaxAttentionCudaWorkspaceBytes(p)));
  check.Ran(kAttentionId, label, SoftmaxAttentionCuda(p, workspace.data(), check.stream()));
  check.Equal(kAttentionId, label, want, got);
}

void CompareRope(TwinCheck& check, int64_t rows, int64_t heads, int64_t head_dim,
                 int64_t rotary_dim, FloatType type, Mix mix, int64_t gap) {
  constexpr int64_t kPositions = 777;
  std::vector<float> cos(static_cast<size_t>(kPositions * rotary_dim / 2)), sin = cos;
  RopeTableParams t;
  t.theta = 1e6f, t.rotary_dim = rotary_dim, t.positions = kPositions;
  t.cos = cos.data(), t.sin = sin.data(), t.threads = 2;
  check.Ran(kRopeNeoxId, "table", MakeRopeTable(t));
  const int64_t stride = heads * head_dim + gap;
  const std::vector<uint16_t> x = check.Halves(static_cast<size_t>(rows * stride), type, mix);
  std::vector<int64_t> positions(static_cast<size_t>(rows));
  for (int64_t& position : positions) position = check.Between(0, kPositions - 1);
  std::vector<uint16_t> want = Poisoned<uint16_t>(x.size());
  const DeviceArray<uint16_t> x_d = check.Upload(x);
  const DeviceArray<float> cos_d = check.Upload(cos), sin_d = check.Upload(sin);
  const DeviceArray<int64_t> positions_d = check.Upload(positions);
  const auto got = check.UploadPoison<uint16_t>(want.size());
  RopeParams p;
  p.type = type, p.rows = rows, p.heads = heads, p.head_dim = head_dim, p.rotary_dim = rotary_dim;
  p.table_positions = kPositions, p.x_row_stride = p.out_row_stride = stride;
  p.x = x.data(), p.positions = positions.data(), p.out = want.data();
  p.cos = cos.data(), p.sin = sin.data();
  const std::string label =
      absl::StrCat(Name(type), " [", rows, ", ", heads, ", ", head_dim, "] rotary ", rotary_dim,
                   " gap ", gap, " mix ", static_cast<int>(mix));
  check.Ran(kRopeNeoxId, label, RopeNeox(p));
  p.x = x_d.get(), p.positions = positions_d.get(), p.out = got.get();
  p.cos = cos_d.get(), p.sin = sin_d.get();
  check.Ran(kRopeNeoxId, label, RopeNeoxCuda(p, check.stream()));
  check.Equal(kRopeNeoxId, label, want, got);
}

struct RouterCase {
  int64_t rows, experts, topk;
};

void CompareRouter(TwinCheck& check, const RouterCase& c, RouterScore score, bool biased,
                   bool renormalise, Mix mix) {
  const size_t cells = static_cast<size_t>(c.rows * c.experts);
  std::vector<float> logits = check.Floats(cells, mix);
  // Ties everywhere: a few values only in every other row.
  for (size_t i = 0; i < cells; ++i) {
    const size_t row = i / static_cast<size_t>(c.experts);
    if (row % 2 == 1 && std::isfinite(logits[i])) logits[i] = std::round(logits[i]);
  }
  const std::vector<float> bias = check.Floats(static_cast<size_t>(c.experts), mix);
  const size_t picks = static_cast<size_t>(c.rows * c.topk);
  std::vector<int32_t> want_ids = Poisoned<int32_t>(picks);
  std::vector<float> want_weights = Poisoned<float>(picks);
  const DeviceArray<float> logits_d = check.Upload(logits), bias_d = check.Upload(bias);
  const auto got_ids = check.UploadPoison<int32_t>(picks);
  const auto got_weights = check.UploadPoison<float>(picks);
  RouterTopkParams p;
  p.score = score, p.rows = c.rows, p.experts = c.experts, p.topk = c.topk;
  p.renormalise = renormalise, p.scale = 2.5f;
  p.logits = logits.data(), p.bias = biased ? bias.data() : nullptr;
  p.ids = want_ids.data(), p.weights = want_weights.data();
  const std::string label = absl::StrCat("T ", c.rows, " E ", c.experts, " k ", c.topk, " score ",
                                         static_cast<int>(score), " bias ", biased, " renormalise ",
                                         renormalise, " mix ", static_cast<int>(mix));
  check.Ran(kRouterTopkId, label, RouterTopk(p));
  p.logits = logits_d.get(), p.bias = biased ? bias_d.get() : nullptr;
  p.ids = got_ids.get(), p.weights = got_weights.get();
  check.Ran(kRouterTopkId, label, RouterTopkCuda(p, check.stream()));
  check.Equal(kRouterTopkId, label + " ids", want_ids, got_ids);
  check.Equal(kRouterTopkId, label + " weights", want_weights, got_weights);
}

}  // namespace

void CheckAttentionTwins(TwinCheck& check) {
  for (const FloatType type : {FloatType::kBf16, FloatType::kF16}) {
    for (const Mix mix : {Mix::kNormal, Mix::kAdversarial}) {
      if (check.Wants(kAttentionId)) {
        for (const AttentionCase& c : std::vector<AttentionCase>{{1, 1, 1, 1, 8, 8},
                                                                 {1, 100, 16, 4, 128, 128},
                                                                 {7, 7, 2, 1, 33, 17, 3},
                                                                 {65, 130, 4, 2, 64, 64},
                                                                 {64, 64, 1, 1, 16, 80},
                                                                 {3, 1500, 2, 2, 128, 64},
                                                                 {100, 260, 6, 2, 40, 48, 8},
                                                                 {200, 200, 2, 1, 256, 256}}) {
          CompareAttention(check, c, type, mix);
        }
        for (int i = 0; i < kRandomShapes; ++i) {
          const int64_t queries = check.Between(1, 90);
          const int64_t kv_heads = check.Between(1, 3);
          CompareAttention(
              check,
              {queries, queries + check.Between(0, 200), kv_heads * check.Between(1, 4), kv_heads,
               check.Between(1, 140), check.Between(1, 140), check.Between(0, 9)},
              type, mix);
        }
      }
      if (check.Wants(kRopeNeoxId)) {
        CompareRope(check, 1, 1, 2, 2, type, mix, 0);
        CompareRope(check, 9, 3, 128, 128, type, mix, 0);
        CompareRope(check, 33, 5, 256, 64, type, mix, 0);
        CompareRope(check, 7, 2, 65, 30, type, mix, 3);
        const int64_t rotary = 2 * check.Between(1, 40);
        CompareRope(check, check.Between(1, 60), check.Between(1, 9), rotary + check.Between(0, 70),
                    rotary, type, mix, check.Between(0, 9));
      }
    }
  }
  if (!check.Wants(kRouterTopkId)) return;
  const int64_t experts = check.Between(1, 600);
  for (const RouterCase& c :
       std::vector<RouterCase>{{check.Between(1, 50), experts, check.Between(1, experts)},
                               {1, 1, 1},
                               {5, 7, 7},
                               {33, 64, 6},
                               {20, 256, 8},
                               {10, 512, 10},
                               {3, 1000, 1000},
                               {2, 9000, 4}}) {
    for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
      for (const Mix mix : {Mix::kNormal, Mix::kAdversarial}) {
        CompareRouter(check, c, score, false, true, mix);
        CompareRouter(check, c, score, true, false, mix);
        CompareRouter(check, c, score, true, true, mix);
      }
    }
  }
}

}  // namespace lockstep::kernels
