#include "tools/cli/kernel_programs.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep::tools {
namespace {

constexpr bool kCuda = true;

constexpr KernelProgram kPrograms[] = {
    {.id = "swiglu/two_round@v1",
     .op = "swiglu",
     .cuda = kCuda,
     .vectors = 4,
     .differing = 18'036,
     .outputs = 65'536},
    {.id = "swiglu/one_round_fp32@v1",
     .op = "swiglu",
     .cuda = kCuda,
     .vectors = 4,
     .differing = 18'036,
     .outputs = 65'536},
    {.id = "swiglu/one_round_fp32_clamped@v1", .op = "swiglu", .cuda = kCuda, .vectors = 1},
    {.id = "swiglu_vjp/analytic@v1", .op = "swiglu_vjp", .cuda = kCuda, .vectors = 1},
    {.id = "lora/active@v2", .op = "lora_mlp", .cuda = kCuda, .vectors = 2},
    {.id = "lora/merged@v1", .op = "lora_merge", .cuda = kCuda},
    {.id = "lora_vjp/straight_through@v1", .cuda = kCuda},
    {.id = "moe_leaf/bf16_add@v1", .op = "moe_leaf", .cuda = kCuda, .vectors = 1},
    {.id = "moe_leaf/fp32_fma@v1", .op = "moe_leaf", .cuda = kCuda, .vectors = 1},
    {.id = "moe_fold/bf16_tree@v1", .op = "moe_fold", .cuda = kCuda, .vectors = 3},
    {.id = "moe_fold/fp32_tree@v2", .op = "moe_fold", .cuda = kCuda, .vectors = 3},
    {.id = "moe_fold/fp64_tree@v3", .op = "moe_fold", .cuda = kCuda, .vectors = 3},
    {.id = "rmsnorm/pair_tree@v2", .op = "rmsnorm", .cuda = kCuda, .vectors = 2},
    {.id = "gemm/k_chain@v1", .op = "gemm", .cuda = kCuda, .vectors = 1},
    {.id = "gemm/k_tile@v1", .op = "gemm", .cuda = kCuda, .vectors = 1},
    {.id = "lm_head/selected_logprob@v1", .op = "lm_head", .cuda = kCuda, .vectors = 1},
    {.id = "rope/neox@v1", .cuda = kCuda},
    {.id = "softmax_attention/k_ascending@v1", .cuda = kCuda},
    {.id = "router_topk/stable@v1", .cuda = kCuda},
    {.id = "gdn/recurrent@v1", .op = "gdn", .cuda = kCuda, .near_reference = true},
    {.id = "gdn/chunk64@v1", .op = "gdn", .cuda = kCuda, .near_reference = true},
    {.id = "gdn_cp/relay@v1", .op = "gdn", .cuda = kCuda, .near_reference = true},
    {.id = "gdn_cp/canonical_fold@v1", .op = "gdn", .cuda = kCuda, .near_reference = true},
    {.id = "short_conv/causal4@v1", .cuda = kCuda},
    {.id = "short_conv_silu/causal4@v1"},
    {.id = "gdn_decay/exp_softplus@v1"},
    {.id = "gdn_beta/sigmoid@v1"},
    {.id = "l2norm/chain@v1"},
    {.id = "sigmoid_gate/one_round@v1"},
    {.id = "gated_rmsnorm/pair_tree_silu@v1"},
    {.id = "embedding/row@v1"},
    {.id = "residual_add/bf16@v1"},
    {.id = "moe_combine/slot_chain@v1"},
    {.id = "digest/paged@v1", .cuda = kCuda},
    {.id = "digest/content@v1"},
    {.id = "delta/overwrite@v1", .cuda = kCuda},
};

// 18036 is "18,036".
std::string Thousands(int number) {
  std::string digits = absl::StrCat(number);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ',');
  }
  return digits;
}

}  // namespace

absl::Span<const KernelProgram> KernelPrograms() { return kPrograms; }

std::vector<std::string> ProgramsOf(absl::string_view op) {
  std::vector<std::string> ids;
  for (const KernelProgram& program : kPrograms) {
    if (program.op == op) ids.emplace_back(program.id);
  }
  return ids;
}

std::string GoldenStatus(const KernelProgram& program) {
  std::vector<std::string> parts;
  if (program.vectors > 0) {
    parts.push_back(absl::StrCat(program.vectors, " recorded vector",
                                 program.vectors == 1 ? "" : "s", " equal"));
  }
  if (program.outputs > 0) {
    parts.push_back(absl::StrCat(Thousands(program.differing), " of ", Thousands(program.outputs),
                                 " (one round against two), as recorded"));
  }
  if (program.near_reference) parts.push_back("within 1e-5 of the recorded reference");
  return parts.empty() ? "no recording" : absl::StrJoin(parts, "; ");
}

}  // namespace lockstep::tools
