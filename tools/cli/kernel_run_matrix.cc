// Norm, matrix product, head.

#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/gemm_cuda.h"
#include "kernels/lm_head_cuda.h"
#include "kernels/rmsnorm_cuda.h"
#include "policy/status_macros.h"
#include "tools/cli/kernel_run.h"

namespace lockstep::tools {
namespace {

constexpr TensorRule kRmsNormTensors[] = {
    {"x", "T,H", "BF16"},
    {"residual", "T,H", "BF16", 0, TensorNeed::kOptional},
    {"weight", "H", "BF16 F32", 0, TensorNeed::kOptional},
};
constexpr absl::string_view kRmsNormFlags[] = {"--eps", "--zero-centered"};

absl::Status RunRmsNorm(KernelCall& call) {
  kernels::RmsNormParams p;
  p.rows = call.Size("T"), p.columns = call.Size("H");
  p.x = call.In<uint16_t>("x"), p.residual = call.In<uint16_t>("residual");
  p.weight = call.In<void>("weight"), p.weight_type = call.TypeOf("weight");
  p.zero_centered = call.options().zero_centered;
  p.eps = call.options().eps;
  p.threads = call.threads();
  LOCKSTEP_ASSIGN_OR_RETURN(void* const out, call.Out("out", Dtype::kBF16, {p.rows, p.columns}));
  p.out = static_cast<uint16_t*>(out);
  return call.on_cuda() ? kernels::RmsNormCuda(p, call.stream()) : kernels::RmsNorm(p);
}

constexpr TensorRule kGemmTensors[] = {{"a", "M,K", kHalf, 'h'}, {"b", "N,K", kHalf, 'h'}};

absl::Status RunGemm(KernelCall& call) {
  kernels::GemmParams p;
  p.program = call.program() == kernels::kGemmTileId ? kernels::GemmProgram::kTile
                                                     : kernels::GemmProgram::kChain;
  p.operand_type = p.out_type = call.TypeOf("a");
  p.m = call.Size("M"), p.n = call.Size("N"), p.k = call.Size("K");
  p.a = call.In<void>("a"), p.b = call.In<void>("b");
  p.threads = call.threads();
  LOCKSTEP_ASSIGN_OR_RETURN(p.out, call.Out("out", call.DtypeOf("a"), {p.m, p.n}));
  return call.on_cuda() ? kernels::GemmCuda(p, call.stream()) : kernels::Gemm(p);
}

constexpr TensorRule kLmHeadTensors[] = {
    {"hidden", "T,H", kHalf, 'h'}, {"weight", "V,H", kHalf, 'h'}, {"tokens", "T", "I64"}};

// A device cannot refuse a token before it runs, so both devices refuse it here.
absl::Status CheckTokens(absl::Span<const uint8_t> tokens, int64_t vocab) {
  for (size_t i = 0; i * sizeof(int64_t) < tokens.size(); ++i) {
    int64_t token = 0;
    memcpy(&token, tokens.data() + i * sizeof token, sizeof token);
    if (token < 0 || token >= vocab) {
      return absl::InvalidArgumentError(
          absl::StrCat("lm_head: expected tokens in [0, ", vocab, "), got ", token, " at row ", i));
    }
  }
  return absl::OkStatus();
}

absl::Status RunLmHead(KernelCall& call) {
  kernels::LmHeadParams p;
  p.operand_type = call.TypeOf("hidden");
  p.rows = call.Size("T"), p.hidden_size = call.Size("H"), p.vocab = call.Size("V");
  p.hidden = call.In<void>("hidden"), p.weight = call.In<void>("weight");
  p.tokens = call.In<int64_t>("tokens");
  p.threads = call.threads();
  LOCKSTEP_RETURN_IF_ERROR(CheckTokens(call.HostBytes("tokens"), p.vocab));
  LOCKSTEP_ASSIGN_OR_RETURN(void* const out, call.Out("logprob", Dtype::kF32, {p.rows}));
  p.logprob = static_cast<float*>(out);
  if (!call.on_cuda()) return kernels::SelectedLogprob(p);
  LOCKSTEP_ASSIGN_OR_RETURN(void* const workspace,
                            call.Workspace(kernels::SelectedLogprobCudaWorkspaceBytes(p)));
  return kernels::SelectedLogprobCuda(p, workspace, call.stream());
}

}  // namespace

std::vector<KernelOp> MatrixOps() {
  return {
      {.name = "rmsnorm", .tensors = kRmsNormTensors, .flags = kRmsNormFlags, .run = RunRmsNorm},
      {.name = "gemm", .tensors = kGemmTensors, .run = RunGemm},
      {.name = "lm_head", .tensors = kLmHeadTensors, .run = RunLmHead},
  };
}

}  // namespace lockstep::tools
