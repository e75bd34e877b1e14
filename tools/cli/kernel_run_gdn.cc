// The gated delta net, whole or over simulated ranks.

#include "absl/strings/str_cat.h"
#include "kernels/gdn_cp_cuda.h"
#include "kernels/gdn_cuda.h"
#include "policy/status_macros.h"
#include "tools/cli/kernel_run.h"

namespace lockstep::tools {
namespace {

constexpr absl::string_view kSingle = "F32 BF16";
constexpr bool kBatchOfOne = true;

constexpr TensorRule kGdnTensors[] = {
    {"q", "T,Hk,K", kSingle, 'q', TensorNeed::kRequired, kBatchOfOne},
    {"k", "T,Hk,K", kSingle, 'q', TensorNeed::kRequired, kBatchOfOne},
    {"v", "T,Hv,V", kSingle, 'q', TensorNeed::kRequired, kBatchOfOne},
    {"g", "T,Hv", kSingle, 'g', TensorNeed::kRequired, kBatchOfOne},
    {"beta", "T,Hv", kSingle, 'g', TensorNeed::kRequired, kBatchOfOne},
    {"s0", "Hv,K,V", "F32", 0, TensorNeed::kOptional, kBatchOfOne},
};
constexpr absl::string_view kGdnFlags[] = {"--cp"};

// The outputs have a batch of 1 when v has.
absl::Status TakeGdnOutputs(KernelCall& call, kernels::GdnParams& p) {
  std::vector<int64_t> o_shape = {p.tokens, p.value_heads, p.value_dim};
  std::vector<int64_t> state_shape = {p.value_heads, p.key_dim, p.value_dim};
  if (call.HasBatch("v")) {
    o_shape.insert(o_shape.begin(), 1);
    state_shape.insert(state_shape.begin(), 1);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(p.o, call.Out("o", call.DtypeOf("v"), o_shape));
  LOCKSTEP_ASSIGN_OR_RETURN(void* const state, call.Out("state", Dtype::kF32, state_shape));
  p.state = static_cast<float*>(state);
  return absl::OkStatus();
}

absl::Status RunWhole(KernelCall& call, kernels::GdnParams& p) {
  if (call.options().cp != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gdn: ", call.program(), " runs on one rank, got --cp ", call.options().cp,
        "; over ranks use --program ", kernels::kGdnRelayId, " or ", kernels::kGdnCanonicalFoldId));
  }
  p.program = call.program() == kernels::kGdnRecurrentId ? kernels::GdnProgram::kRecurrent
                                                         : kernels::GdnProgram::kChunk64;
  if (!call.on_cuda()) return kernels::Gdn(p);
  LOCKSTEP_ASSIGN_OR_RETURN(void* const workspace,
                            call.Workspace(kernels::GdnCudaWorkspaceBytes(p)));
  return kernels::GdnCuda(p, workspace, call.stream());
}

absl::Status RunOverRanks(KernelCall& call, const kernels::GdnParams& p) {
  constexpr int kDevice = 0;
  const auto program = call.program() == kernels::kGdnRelayId
                           ? kernels::GdnCpProgram::kRelay
                           : kernels::GdnCpProgram::kCanonicalFold;
  if (call.options().cp > kernels::kMaxCp) {
    return absl::InvalidArgumentError(
        absl::StrCat("gdn: expected --cp of 1 to ", kernels::kMaxCp, ", got ", call.options().cp));
  }
  const int cp = static_cast<int>(call.options().cp);
  return call.on_cuda() ? kernels::GdnCpSimulatedCuda(p, program, cp, kDevice, call.stream())
                        : kernels::GdnCpSimulated(p, program, cp);
}

absl::Status RunGdn(KernelCall& call) {
  kernels::GdnParams p;
  p.tokens = call.Size("T");
  p.key_heads = call.Size("Hk"), p.value_heads = call.Size("Hv");
  p.key_dim = call.Size("K"), p.value_dim = call.Size("V");
  p.input_type = p.out_type = call.TypeOf("v");
  p.gate_type = call.TypeOf("g");
  p.q = call.In<void>("q"), p.k = call.In<void>("k"), p.v = call.In<void>("v");
  p.g = call.In<void>("g"), p.beta = call.In<void>("beta");
  p.s0 = call.In<float>("s0");
  p.threads = call.threads();
  LOCKSTEP_RETURN_IF_ERROR(TakeGdnOutputs(call, p));
  const bool over_ranks =
      call.program() == kernels::kGdnRelayId || call.program() == kernels::kGdnCanonicalFoldId;
  return over_ranks ? RunOverRanks(call, p) : RunWhole(call, p);
}

}  // namespace

std::vector<KernelOp> GdnOps() {
  return {{.name = "gdn", .tensors = kGdnTensors, .flags = kGdnFlags, .run = RunGdn}};
}

}  // namespace lockstep::tools
