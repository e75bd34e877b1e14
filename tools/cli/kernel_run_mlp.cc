// SwiGLU, its derivative, MoE leaves and folds.

#include "absl/status/statusor.h"
#include "kernels/gate_table_cuda.h"
#include "kernels/moe_cuda.h"
#include "kernels/swiglu_cuda.h"
#include "policy/status_macros.h"
#include "tools/cli/kernel_run.h"

namespace lockstep::tools {
namespace {

constexpr TensorRule kSwigluTensors[] = {
    {"gate_up", "T,2N", kHalf, 'h', TensorNeed::kPacked},
    {"gate", "T,N", kHalf, 'h', TensorNeed::kSeparate},
    {"up", "T,N", kHalf, 'h', TensorNeed::kSeparate},
};
constexpr absl::string_view kSwigluFlags[] = {"--limit"};

// Works on either params: both have rows, columns, gate, up and threads.
template <class Params>
void SetGateUp(const KernelCall& call, Params& p) {
  const bool packed = call.Has("gate_up");
  p.type = call.TypeOf(packed ? "gate_up" : "gate");
  p.rows = call.Size("T"), p.columns = call.Size("N");
  p.threads = call.threads();
  if (packed) {
    p.SetPackedGateUp(call.In<void>("gate_up"));
  } else {
    p.gate = call.In<void>("gate"), p.up = call.In<void>("up");
  }
}

absl::Status RunSwiglu(KernelCall& call) {
  kernels::SwigluParams p;
  SetGateUp(call, p);
  p.limit = call.options().limit;
  p.program = kernels::SwigluProgram::kOneRoundFp32;
  if (call.program() == kernels::kSwigluTwoRoundId) p.program = kernels::SwigluProgram::kTwoRound;
  if (call.program() == kernels::kSwigluClampedId) {
    p.program = kernels::SwigluProgram::kOneRoundFp32Clamped;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(p.silu, kernels::FindSiluTable(call.realisation(), p.type));
  const Dtype dtype = call.DtypeOf(call.Has("gate_up") ? "gate_up" : "gate");
  LOCKSTEP_ASSIGN_OR_RETURN(p.out, call.Out("out", dtype, {p.rows, p.columns}));
  if (!call.on_cuda()) return kernels::Swiglu(p);
  LOCKSTEP_ASSIGN_OR_RETURN(const kernels::DeviceGateTable silu,
                            kernels::DeviceGateTable::Upload(*p.silu, call.stream()));
  LOCKSTEP_RETURN_IF_ERROR(kernels::SwigluCuda(p, &silu, call.stream()));
  return call.Finish();
}

constexpr TensorRule kSwigluVjpTensors[] = {
    {"gate_up", "T,2N", kHalf, 'h', TensorNeed::kPacked},
    {"gate", "T,N", kHalf, 'h', TensorNeed::kSeparate},
    {"up", "T,N", kHalf, 'h', TensorNeed::kSeparate},
    {"dout", "T,N", kHalf, 'h'},
};

absl::Status RunSwigluVjp(KernelCall& call) {
  kernels::SwigluVjpParams p;
  SetGateUp(call, p);
  p.dout = call.In<void>("dout");
  LOCKSTEP_ASSIGN_OR_RETURN(p.sigmoid, kernels::FindSigmoidTable(p.type));
  const Dtype dtype = call.DtypeOf("dout");
  LOCKSTEP_ASSIGN_OR_RETURN(p.dgate, call.Out("dgate", dtype, {p.rows, p.columns}));
  LOCKSTEP_ASSIGN_OR_RETURN(p.dup, call.Out("dup", dtype, {p.rows, p.columns}));
  if (!call.on_cuda()) return kernels::SwigluVjp(p);
  LOCKSTEP_ASSIGN_OR_RETURN(const kernels::DeviceGateTable sigmoid,
                            kernels::DeviceGateTable::Upload(*p.sigmoid, call.stream()));
  LOCKSTEP_RETURN_IF_ERROR(kernels::SwigluVjpCuda(p, &sigmoid, call.stream()));
  return call.Finish();
}

constexpr TensorRule kMoeLeafTensors[] = {{"routed", "T,H", "BF16"}, {"shared", "T,H", "BF16"}};
constexpr absl::string_view kScaleFlag[] = {"--scale"};

absl::Status RunMoeLeaf(KernelCall& call) {
  kernels::MoeLeafParams p;
  p.program = call.program() == kernels::kMoeLeafBf16AddId ? kernels::MoeLeafProgram::kBf16Add
                                                           : kernels::MoeLeafProgram::kFp32Fma;
  p.rows = call.Size("T"), p.columns = call.Size("H");
  p.routed = call.In<void>("routed"), p.shared = call.In<void>("shared");
  p.scale = call.options().scale;
  p.threads = call.threads();
  LOCKSTEP_ASSIGN_OR_RETURN(p.out, call.Out("out", Dtype::kBF16, {p.rows, p.columns}));
  return call.on_cuda() ? kernels::MoeLeafCuda(p, call.stream()) : kernels::MoeLeaf(p);
}

constexpr TensorRule kMoeFoldTensors[] = {{"partials", "E,T,H", "BF16"}};

absl::Status RunMoeFold(KernelCall& call) {
  kernels::MoeFoldParams p;
  p.program = kernels::MoeFoldProgram::kFp64Tree;
  if (call.program() == kernels::kMoeFoldBf16TreeId) p.program = kernels::MoeFoldProgram::kBf16Tree;
  if (call.program() == kernels::kMoeFoldFp32TreeId) p.program = kernels::MoeFoldProgram::kFp32Tree;
  p.contributors = call.Size("E"), p.rows = call.Size("T"), p.columns = call.Size("H");
  p.partials = call.In<void>("partials");
  p.threads = call.threads();
  LOCKSTEP_ASSIGN_OR_RETURN(p.out, call.Out("out", Dtype::kBF16, {p.rows, p.columns}));
  return call.on_cuda() ? kernels::MoeFoldCuda(p, call.stream()) : kernels::MoeFold(p);
}

}  // namespace

std::vector<KernelOp> MlpOps() {
  return {
      {.name = "swiglu",
       .tensors = kSwigluTensors,
       .flags = kSwigluFlags,
       .takes_realisation = true,
       .run = RunSwiglu},
      {.name = "swiglu_vjp", .tensors = kSwigluVjpTensors, .run = RunSwigluVjp},
      {.name = "moe_leaf", .tensors = kMoeLeafTensors, .flags = kScaleFlag, .run = RunMoeLeaf},
      {.name = "moe_fold", .tensors = kMoeFoldTensors, .run = RunMoeFold},
  };
}

}  // namespace lockstep::tools
