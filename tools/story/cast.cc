#include "tools/story/cast.h"

#include "absl/strings/str_cat.h"

namespace lockstep::tools {

absl::StatusOr<StoryOptions> CastFor(absl::string_view trace) {
  StoryOptions options;
  if (trace == "qwen3_5_dense") {
    options.title =
        "Qwen3.5 dense, 1.07 M parameters, tied embeddings: five checkpoints of a GRPO run";
    options.odd_flags = {"--swiglu", "two_round"};
    options.odd_program = "swiglu/two_round@v1";
    // One token of one rollout of version 1 differs by 1.19e-7 in the recorded run.
    options.expected_refused_rollouts = 1;
    return options;
  }
  if (trace == "glm_moe_dsa") {
    options.title = "GLM MoE DSA, 1.00 M parameters: five checkpoints of a GRPO run";
    options.contract_flags = {"--exact"};
    options.odd_flags = {"--exact", "--local-partial", "v3"};
    options.odd_program = "local-partial v3";
    return options;
  }
  return absl::NotFoundError(
      absl::StrCat("no recorded run '", trace, "'; there are qwen3_5_dense and glm_moe_dsa"));
}

}  // namespace lockstep::tools
