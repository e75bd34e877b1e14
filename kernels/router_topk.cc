#include "kernels/router_topk.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/exact_math.h"
#include "kernels/float_formats.h"
#include "kernels/fp_environment.h"
#include "kernels/parallel.h"
#include "kernels/router_order.h"

namespace lockstep::kernels {
namespace {

void Softmax(const float* logits, size_t count, float* score) {
  float max = logits[0];
  for (size_t i = 1; i < count; ++i) max = logits[i] > max ? logits[i] : max;
  float sum = 0.0f;
  for (size_t i = 0; i < count; ++i) {
    score[i] = ExpF32(logits[i] - max);
    sum = sum + score[i];
  }
  for (size_t i = 0; i < count; ++i) score[i] = score[i] / sum;
}

void Sigmoid(const float* logits, size_t count, float* score) {
  for (size_t i = 0; i < count; ++i) score[i] = 1.0f / (1.0f + ExpF32(-logits[i]));
}

// Buffers of one thread.
struct Row {
  explicit Row(size_t experts) : score(experts), choice(experts), order(experts) {}

  std::vector<float> score, choice;
  std::vector<int32_t> order;
};

void RouteRow(const RouterTopkParams& p, size_t r, Row& row) {
  const size_t experts = static_cast<size_t>(p.experts);
  const size_t topk = static_cast<size_t>(p.topk);
  const float* logits = p.logits + r * experts;
  if (p.score == RouterScore::kSoftmax) {
    Softmax(logits, experts, row.score.data());
  } else {
    Sigmoid(logits, experts, row.score.data());
  }
  row.choice = row.score;
  if (p.bias != nullptr) {
    for (size_t i = 0; i < experts; ++i) row.choice[i] = row.score[i] + p.bias[i];
  }
  std::iota(row.order.begin(), row.order.end(), 0);
  std::partial_sort(row.order.begin(), row.order.begin() + static_cast<ptrdiff_t>(topk),
                    row.order.end(), [&](int32_t left, int32_t right) {
                      return IsBetterChoice(row.choice[static_cast<size_t>(left)], left,
                                            row.choice[static_cast<size_t>(right)], right);
                    });
  float* weights = p.weights + r * topk;
  float sum = 0.0f;
  for (size_t i = 0; i < topk; ++i) {
    p.ids[r * topk + i] = row.order[i];
    weights[i] = row.score[static_cast<size_t>(row.order[i])];
    sum = sum + weights[i];
  }
  if (p.score == RouterScore::kSigmoid) sum = sum + kSigmoidSumFloor;
  for (size_t i = 0; i < topk; ++i) {
    const float weight = p.renormalise ? weights[i] / sum : weights[i];
    weights[i] = Canonicalise(weight * p.scale);
  }
}

}  // namespace

absl::Status CheckRouterTopk(const RouterTopkParams& p) {
  if (p.rows < 1 || p.experts < 1 || p.experts > std::numeric_limits<int32_t>::max() ||
      p.topk < 1 || p.topk > p.experts) {
    return absl::InvalidArgumentError(absl::StrCat(
        "router: expected logits [T,E] with T and E of at least 1 and a top-k from 1 to E, got T=",
        p.rows, " E=", p.experts, " k=", p.topk));
  }
  if (p.logits == nullptr || p.ids == nullptr || p.weights == nullptr) {
    return absl::InvalidArgumentError("router: expected non-null logits, ids and weights");
  }
  if (!std::isfinite(p.scale)) {
    return absl::InvalidArgumentError(
        absl::StrCat("router: expected a finite scale, got ", p.scale));
  }
  return CheckFpEnvironment();
}

absl::Status RouterTopk(const RouterTopkParams& p) {
  if (absl::Status status = CheckRouterTopk(p); !status.ok()) return status;
  ParallelFor(static_cast<size_t>(p.rows), p.threads, [&](size_t begin, size_t end) {
    Row row(static_cast<size_t>(p.experts));
    for (size_t r = begin; r < end; ++r) RouteRow(p, r, row);
  });
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
