// Low-rank adapters: the active value path of an MLP, and the folded weight.

#include "absl/strings/str_cat.h"
#include "kernels/gate_table_cuda.h"
#include "kernels/lora_cuda.h"
#include "policy/status_macros.h"
#include "tools/cli/kernel_run.h"

namespace lockstep::tools {
namespace {

constexpr absl::string_view kFactor = "BF16 F32";

constexpr TensorRule kLoraMlpTensors[] = {
    {"x", "T,H", "BF16"},
    {"gate", "I,H", "BF16"},
    {"up", "I,H", "BF16"},
    {"down", "H,I", "BF16"},
    {"a_gate", "r,H", kFactor, 'f'},
    {"b_gate", "I,r", kFactor, 'f'},
    {"a_up", "r,H", kFactor, 'f'},
    {"b_up", "I,r", kFactor, 'f'},
    {"a_down", "r,I", kFactor, 'f'},
    {"b_down", "H,r", kFactor, 'f'},
};
constexpr absl::string_view kLoraMlpFlags[] = {"--scale", "--tp"};

absl::Status RunLoraMlp(KernelCall& call) {
  kernels::LoraMlpParams p;
  p.rows = call.Size("T"), p.hidden = call.Size("H");
  p.intermediate = call.Size("I"), p.rank = call.Size("r");
  p.tp = call.options().tp, p.scale = call.options().scale;
  p.x = call.In<uint16_t>("x");
  p.gate = call.In<uint16_t>("gate"), p.up = call.In<uint16_t>("up");
  p.down = call.In<uint16_t>("down");
  p.factor_type = call.TypeOf("a_gate");
  p.gate_adapter = {call.In<void>("a_gate"), call.In<void>("b_gate")};
  p.up_adapter = {call.In<void>("a_up"), call.In<void>("b_up")};
  p.down_adapter = {call.In<void>("a_down"), call.In<void>("b_down")};
  p.threads = call.threads();
  LOCKSTEP_ASSIGN_OR_RETURN(p.silu,
                            kernels::FindSiluTable(call.realisation(), kernels::FloatType::kBf16));
  if (p.tp < 1 || p.intermediate % p.tp != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("lora_mlp: expected a --tp that divides I=", p.intermediate, ", got ", p.tp));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(void* const out, call.Out("out", Dtype::kBF16, {p.rows, p.hidden}));
  p.out = static_cast<uint16_t*>(out);
  if (p.tp > 1) {
    LOCKSTEP_ASSIGN_OR_RETURN(void* const partials,
                              call.Out("partials", Dtype::kBF16, {p.tp, p.rows, p.hidden}));
    p.partials = static_cast<uint16_t*>(partials);
  }
  if (!call.on_cuda()) return kernels::LoraMlp(p);
  LOCKSTEP_ASSIGN_OR_RETURN(const kernels::DeviceGateTable silu,
                            kernels::DeviceGateTable::Upload(*p.silu, call.stream()));
  LOCKSTEP_ASSIGN_OR_RETURN(void* const workspace,
                            call.Workspace(kernels::LoraMlpCudaWorkspaceBytes(p)));
  LOCKSTEP_RETURN_IF_ERROR(kernels::LoraMlpCuda(p, &silu, workspace, call.stream()));
  return call.Finish();
}

constexpr TensorRule kLoraMergeTensors[] = {
    {"weight", "O,I", "BF16"}, {"a", "r,I", kFactor, 'f'}, {"b", "O,r", kFactor, 'f'}};
constexpr absl::string_view kLoraMergeFlags[] = {"--scale"};

absl::Status RunLoraMerge(KernelCall& call) {
  kernels::LoraMergeParams p;
  p.out_features = call.Size("O"), p.in_features = call.Size("I"), p.rank = call.Size("r");
  p.weight = call.In<uint16_t>("weight");
  p.factor_type = call.TypeOf("a");
  p.factors = {call.In<void>("a"), call.In<void>("b")};
  p.scale = call.options().scale;
  p.threads = call.threads();
  LOCKSTEP_ASSIGN_OR_RETURN(void* const out,
                            call.Out("out", Dtype::kBF16, {p.out_features, p.in_features}));
  p.out = static_cast<uint16_t*>(out);
  if (!call.on_cuda()) return kernels::LoraMerge(p);
  LOCKSTEP_ASSIGN_OR_RETURN(void* const workspace,
                            call.Workspace(kernels::LoraMergeCudaWorkspaceBytes(p)));
  return kernels::LoraMergeCuda(p, workspace, call.stream());
}

}  // namespace

std::vector<KernelOp> LoraOps() {
  return {
      {.name = "lora_mlp",
       .tensors = kLoraMlpTensors,
       .flags = kLoraMlpFlags,
       .takes_realisation = true,
       .run = RunLoraMlp},
      {.name = "lora_merge",
       .tensors = kLoraMergeTensors,
       .flags = kLoraMergeFlags,
       .run = RunLoraMerge},
  };
}

}  // namespace lockstep::tools
