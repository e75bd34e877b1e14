#ifndef LOCKSTEP_TOOLS_CLI_KERNEL_RUN_H_
#define LOCKSTEP_TOOLS_CLI_KERNEL_RUN_H_

// The ops, by family; KernelOps joins them.

#include <vector>

#include "absl/strings/string_view.h"
#include "tools/cli/kernel_op.h"

namespace lockstep::tools {

inline constexpr absl::string_view kHalf = "BF16 F16";

std::vector<KernelOp> MlpOps();     // swiglu, swiglu_vjp, moe_leaf, moe_fold
std::vector<KernelOp> LoraOps();    // lora_mlp, lora_merge
std::vector<KernelOp> MatrixOps();  // rmsnorm, gemm, lm_head
std::vector<KernelOp> GdnOps();     // gdn

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_KERNEL_RUN_H_
