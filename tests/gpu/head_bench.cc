#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/attention_cuda.h"
#include "kernels/lm_head_cuda.h"
#include "kernels/lora_cuda.h"
#include "kernels/rope_cuda.h"
#include "kernels/router_topk_cuda.h"
#include "tests/gpu/benches.h"
#include "tests/gpu/twin_check.h"

namespace lockstep::kernels {
namespace {

// Zeros: every id and every position may be 0.
DeviceBuffer Zeros(GpuBench& bench, int64_t bytes) {
  DeviceBuffer buffer = bench.Allocate(static_cast<size_t>(bytes));
  const absl::Status status =
      FillDevice(buffer.data(), 0, static_cast<size_t>(bytes), bench.stream());
  if (!status.ok()) Die(status);
  return buffer;
}

void BenchHead(GpuBench& bench, int64_t rows) {
  constexpr int64_t kHidden = 4096, kVocab = 151936;
  const DeviceBuffer hidden = bench.RandomHalves(static_cast<size_t>(rows * kHidden));
  const DeviceBuffer weight = bench.RandomHalves(kVocab * kHidden, 0.02f);
  const DeviceBuffer tokens = Zeros(bench, rows * 8), logprob = Zeros(bench, rows * 4);
  LmHeadParams p;
  p.rows = rows, p.hidden_size = kHidden, p.vocab = kVocab;
  p.hidden = hidden.data(), p.weight = weight.data(), p.tokens = tokens.As<int64_t>();
  p.logprob = logprob.As<float>();
  const DeviceBuffer workspace = bench.Allocate(SelectedLogprobCudaWorkspaceBytes(p));
  const std::string shape = absl::StrCat("T ", rows, " H ", kHidden, " V ", kVocab);
  const auto run = [&](int) { return SelectedLogprobCuda(p, workspace.data(), bench.stream()); };
  if (rows <= 8) {
    bench.Memory("lm_head", shape, 2.0 * kVocab * kHidden, Limit::kRead, run);
  } else {
    bench.Arithmetic("lm_head", shape, static_cast<double>(rows) * kVocab * kHidden, run);
  }
}

void BenchAttention(GpuBench& bench, int64_t queries, int64_t keys) {
  constexpr int64_t kHeads = 32, kKvHeads = 8, kDim = 128;
  const DeviceBuffer q = bench.RandomHalves(static_cast<size_t>(queries * kHeads * kDim));
  const DeviceBuffer k = bench.RandomHalves(static_cast<size_t>(keys * kKvHeads * kDim));
  const DeviceBuffer v = bench.RandomHalves(static_cast<size_t>(keys * kKvHeads * kDim));
  const DeviceBuffer out = bench.Allocate(static_cast<size_t>(2 * queries * kHeads * kDim));
  AttentionParams p;
  p.queries = queries, p.keys = keys, p.query_heads = kHeads, p.kv_heads = kKvHeads;
  p.head_dim = p.value_dim = kDim, p.scale = AttentionScale(kDim);
  p.q = q.data(), p.k = k.data(), p.v = v.data(), p.out = out.data();
  const DeviceBuffer workspace = bench.Allocate(SoftmaxAttentionCudaWorkspaceBytes(p));
  bench.Time("softmax_attention", absl::StrCat("T ", queries, " S ", keys, " heads 32/8 D 128"),
             [&](int) { return SoftmaxAttentionCuda(p, workspace.data(), bench.stream()); });
}

void BenchRope(GpuBench& bench) {
  constexpr int64_t kRows = 8192, kHeads = 32, kDim = 128;
  const DeviceBuffer x = bench.RandomHalves(kRows * kHeads * kDim);
  const DeviceBuffer out = bench.Allocate(2 * kRows * kHeads * kDim);
  const DeviceBuffer table = bench.RandomFloats(kDim), positions = Zeros(bench, kRows * 8);
  RopeParams p;
  p.rows = kRows, p.heads = kHeads, p.head_dim = p.rotary_dim = kDim;
  p.x = x.data(), p.out = out.data(), p.positions = positions.As<int64_t>();
  p.cos = p.sin = table.As<float>(), p.table_positions = 1;
  bench.Memory("rope", "[8192, 32, 128] BF16", 4.0 * kRows * kHeads * kDim, Limit::kCopy,
               [&](int) { return RopeNeoxCuda(p, bench.stream()); });
}

void BenchRouter(GpuBench& bench) {
  constexpr int64_t kRows = 8192, kExperts = 256, kTopk = 8;
  const DeviceBuffer logits = bench.RandomFloats(kRows * kExperts);
  const DeviceBuffer ids = bench.Allocate(4 * kRows * kTopk);
  const DeviceBuffer weights = bench.Allocate(4 * kRows * kTopk);
  RouterTopkParams p;
  p.rows = kRows, p.experts = kExperts, p.topk = kTopk, p.renormalise = true;
  p.logits = logits.As<float>(), p.ids = ids.As<int32_t>(), p.weights = weights.As<float>();
  bench.Time("router_topk", "T 8192 E 256 k 8",
             [&](int) { return RouterTopkCuda(p, bench.stream()); });
}

void BenchLora(GpuBench& bench) {
  constexpr int64_t kRows = 2048, kIn = 4096, kOut = 4096, kRank = 16;
  const DeviceBuffer x = bench.RandomHalves(kRows * kIn), weight = bench.RandomHalves(kOut * kIn);
  const DeviceBuffer a = bench.RandomHalves(kRank * kIn), b = bench.RandomHalves(kOut * kRank);
  const DeviceBuffer out = bench.Allocate(2 * kRows * kOut);
  LoraLinearParams p;
  p.rows = kRows, p.in_features = kIn, p.out_features = kOut, p.rank = kRank;
  p.x = x.As<uint16_t>(), p.weight = weight.As<uint16_t>();
  p.a = a.As<uint16_t>(), p.b = b.As<uint16_t>(), p.out = out.As<uint16_t>();
  const DeviceBuffer workspace = bench.Allocate(LoraLinearCudaWorkspaceBytes(p));
  bench.Arithmetic("lora linear", "T 2048 K 4096 N 4096 r 16",
                   static_cast<double>(kRows) * (kOut * kIn + kRank * (kIn + kOut)),
                   [&](int) { return LoraLinearCuda(p, workspace.data(), bench.stream()); });
}

}  // namespace

void BenchHeads(GpuBench& bench) {
  if (bench.Wants("lm_head")) {
    for (const int64_t rows : {1, 8, 64, 1024}) BenchHead(bench, rows);
  }
  if (bench.Wants("softmax_attention")) {
    BenchAttention(bench, 2048, 2048);
    BenchAttention(bench, 1, 8192);
  }
  if (bench.Wants("rope")) BenchRope(bench);
  if (bench.Wants("router_topk")) BenchRouter(bench);
  if (bench.Wants("lora linear")) BenchLora(bench);
}

}  // namespace lockstep::kernels
