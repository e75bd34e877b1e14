#include <cstdint>

#include "kernels/cuda_launch.h"
#include "kernels/exact_math.h"
#include "kernels/router_order.h"
#include "kernels/router_topk_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 128;  // of a row's block
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;

// Experts whose choices stay in shared memory; a longer row computes them again for every pick.
constexpr int64_t kMaxKept = 8192;

// A softmax's two numbers; unused by sigmoid scores.
struct RowNorm {
  float max, sum;
};

__device__ inline float ScoreOf(const RouterTopkParams& p, const float* logits, int64_t i,
                                const RowNorm& norm) {
  if (p.score == RouterScore::kSigmoid) return 1.0f / (1.0f + ExpF32(-logits[i]));
  return ExpF32(logits[i] - norm.max) / norm.sum;
}

__device__ inline float ChoiceOf(const RouterTopkParams& p, const float* logits, int64_t i,
                                 const RowNorm& norm) {
  const float score = ScoreOf(p, logits, i, norm);
  return p.bias == nullptr ? score : score + p.bias[i];
}

// The largest logit. Which of equal zeros it is changes no exponential, and with a NaN in the row
// every score is NaN, so the order of comparisons is free.
__device__ float BlockMax(const float* logits, int64_t count, float* warps) {
  float max = logits[0];
  for (int64_t i = threadIdx.x; i < count; i += kThreads) max = logits[i] > max ? logits[i] : max;
  for (int step = kWarp / 2; step >= 1; step /= 2) {
    const float other = __shfl_xor_sync(0xFFFFFFFF, max, step);
    max = other > max ? other : max;
  }
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = max;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) max = warps[w] > max ? warps[w] : max;
  return max;
}

// The ascending sum of exponentials: a stretch of them at a time by all threads, added by one.
__device__ float BlockSum(const float* logits, int64_t count, float max, float* stretch,
                          float* result) {
  float sum = 0.0f;
  for (int64_t begin = 0; begin < count; begin += kThreads) {
    const int64_t i = begin + threadIdx.x;
    if (i < count) stretch[threadIdx.x] = ExpF32(logits[i] - max);
    __syncthreads();
    if (threadIdx.x == 0) {
      const int length = static_cast<int>(min(int64_t{kThreads}, count - begin));
      for (int j = 0; j < length; ++j) sum = sum + stretch[j];
      *result = sum;
    }
    __syncthreads();
  }
  return *result;
}

struct Pick {
  float choice;
  int32_t id;  // negative: none
};

__device__ inline Pick BetterOf(const Pick& a, const Pick& b) {
  if (a.id < 0) return b;
  if (b.id < 0) return a;
  return IsBetterChoice(a.choice, a.id, b.choice, b.id) ? a : b;
}

__device__ Pick BlockBest(Pick best, Pick* warps) {
  for (int step = kWarp / 2; step >= 1; step /= 2) {
    const Pick other = {__shfl_xor_sync(0xFFFFFFFF, best.choice, step),
                        __shfl_xor_sync(0xFFFFFFFF, best.id, step)};
    best = BetterOf(best, other);
  }
  __syncthreads();  // the last pick's readers are done
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = best;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) best = BetterOf(best, warps[w]);
  return best;
}

__device__ void WriteWeights(const RouterTopkParams& p, const float* logits, const RowNorm& norm,
                             const int32_t* ids, float* weights) {
  float sum = 0.0f;
  for (int64_t j = 0; j < p.topk; ++j) {
    weights[j] = ScoreOf(p, logits, ids[j], norm);
    sum = sum + weights[j];
  }
  if (p.score == RouterScore::kSigmoid) sum = sum + kSigmoidSumFloor;
  for (int64_t j = 0; j < p.topk; ++j) {
    const float weight = p.renormalise ? weights[j] / sum : weights[j];
    weights[j] = Canonicalise(weight * p.scale);
  }
}

__global__ void __launch_bounds__(kThreads) RouterKernel(RouterTopkParams p, bool keep) {
  extern __shared__ float kept[];
  __shared__ float stretch[kThreads];
  __shared__ float warp_maxima[kWarps];
  __shared__ Pick warp_picks[kWarps];
  __shared__ float sum;
  const int64_t row = blockIdx.x;
  const float* logits = p.logits + row * p.experts;
  RowNorm norm = {};
  if (p.score == RouterScore::kSoftmax) {
    norm.max = BlockMax(logits, p.experts, warp_maxima);
    norm.sum = BlockSum(logits, p.experts, norm.max, stretch, &sum);
  }
  if (keep) {
    for (int64_t i = threadIdx.x; i < p.experts; i += kThreads) {
      kept[i] = ChoiceOf(p, logits, i, norm);
    }
  }
  // Each thread reads back only what it wrote.
  int32_t* ids = p.ids + row * p.topk;
  Pick last = {0.0f, -1};
  for (int64_t j = 0; j < p.topk; ++j) {
    Pick best = {0.0f, -1};
    for (int64_t i = threadIdx.x; i < p.experts; i += kThreads) {
      const Pick pick = {keep ? kept[i] : ChoiceOf(p, logits, i, norm), static_cast<int32_t>(i)};
      const bool taken =
          last.id >= 0 && !IsBetterChoice(last.choice, last.id, pick.choice, pick.id);
      if (!taken) best = BetterOf(best, pick);
    }
    last = BlockBest(best, warp_picks);
    if (threadIdx.x == 0) ids[j] = last.id;
  }
  if (threadIdx.x == 0) WriteWeights(p, logits, norm, ids, p.weights + row * p.topk);
}

}  // namespace

absl::Status RouterTopkCuda(const RouterTopkParams& p, CudaStream stream) {
  if (absl::Status s = CheckRouterTopk(p); !s.ok()) return s;
  const bool keep = p.experts <= kMaxKept;
  const size_t shared_bytes = keep ? static_cast<size_t>(p.experts) * sizeof(float) : 0;
  return Launch("router", RouterKernel,
                {static_cast<unsigned>(p.rows), kThreads, shared_bytes, stream}, p, keep);
}

}  // namespace lockstep::kernels
