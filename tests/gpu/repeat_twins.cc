#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/attention_cuda.h"
#include "kernels/gemm_cuda.h"
#include "kernels/moe_cuda.h"
#include "kernels/rmsnorm_cuda.h"
#include "kernels/swiglu_cuda.h"
#include "tests/gpu/twins.h"

namespace lockstep::kernels {
namespace {

constexpr int kRepeats = 100;
constexpr FloatType kBf16 = FloatType::kBf16;

using Halves = DeviceArray<uint16_t>;

Halves Operand(TwinCheck& check, int64_t count) {
  return check.Upload(check.Halves(static_cast<size_t>(count), kBf16, Mix::kNormal));
}

void Repeat(TwinCheck& check, const char* program, size_t out_size,
            const std::function<absl::Status(uint16_t* out)>& run) {
  if (!check.Wants(program)) return;
  const Halves first = check.UploadPoison<uint16_t>(out_size);
  check.Ran(program, "repeats", run(first.get()));
  const std::vector<uint16_t> want = check.Download(first);
  for (int i = 1; i < kRepeats; ++i) {
    const Halves again = check.UploadPoison<uint16_t>(out_size);
    check.Ran(program, "repeats", run(again.get()));
    check.Equal(program, absl::StrCat("repeat ", i), want, again);
  }
}

void RepeatProduct(TwinCheck& check, GemmProgram program, int64_t m, int64_t n, int64_t k) {
  const Halves a = Operand(check, m * k), b = Operand(check, n * k);
  GemmParams p;
  p.program = program, p.m = m, p.n = n, p.k = k;
  p.a = a.get(), p.b = b.get();
  Repeat(check, program == GemmProgram::kChain ? kGemmChainId : kGemmTileId,
         static_cast<size_t>(m * n), [&](uint16_t* out) {
           p.out = out;
           return GemmCuda(p, check.stream());
         });
}

}  // namespace

void CheckRepeats(TwinCheck& check) {
  constexpr int64_t kRows = 301, kColumns = 2056;
  const size_t size = static_cast<size_t>(kRows * kColumns);
  const Halves x = Operand(check, kRows * kColumns), y = Operand(check, kRows * kColumns);
  SwigluParams swiglu;
  swiglu.rows = kRows, swiglu.columns = kColumns, swiglu.gate = x.get(), swiglu.up = y.get();
  Repeat(check, kSwigluOneRoundId, size, [&](uint16_t* out) {
    swiglu.out = out;
    return SwigluCuda(swiglu, nullptr, check.stream());
  });
  RmsNormParams norm;
  norm.rows = kRows, norm.columns = kColumns, norm.x = x.get(), norm.residual = y.get();
  Repeat(check, kRmsNormId, size, [&](uint16_t* out) {
    norm.out = out;
    return RmsNormCuda(norm, check.stream());
  });
  MoeFoldParams fold;
  fold.contributors = 7, fold.rows = kRows / 7, fold.columns = kColumns, fold.partials = x.get();
  Repeat(check, kMoeFoldFp64TreeId, static_cast<size_t>(kRows / 7 * kColumns), [&](uint16_t* out) {
    fold.out = out;
    return MoeFoldCuda(fold, check.stream());
  });
  RepeatProduct(check, GemmProgram::kChain, 3, 700, 1100);
  RepeatProduct(check, GemmProgram::kChain, 300, 200, 1100);
  RepeatProduct(check, GemmProgram::kTile, 300, 200, 1100);
  AttentionParams attention;
  attention.queries = 70, attention.keys = 200, attention.query_heads = 4, attention.kv_heads = 2;
  attention.head_dim = attention.value_dim = 64, attention.scale = AttentionScale(64);
  attention.q = x.get(), attention.k = y.get(), attention.v = x.get() + 40000;
  const DeviceBuffer workspace =
      OrDie(DeviceBuffer::Allocate(SoftmaxAttentionCudaWorkspaceBytes(attention)));
  Repeat(check, kAttentionId, 70 * 4 * 64, [&](uint16_t* out) {
    attention.out = out;
    return SoftmaxAttentionCuda(attention, workspace.data(), check.stream());
  });
}

}  // namespace lockstep::kernels
