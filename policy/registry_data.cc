// The registry's tables. One row is one fact; kernels/SPECIFICATION.md has the arithmetic.

#include "policy/registry.h"

namespace lockstep {
namespace {

constexpr absl::string_view kMlpSites = "dense_mlp shared_expert routed_experts";

constexpr ProgramInfo kPrograms[] = {
    {"swiglu/two_round@v1", ProgramKind::kForward, kMlpSites,
     "SwiGLU, SiLU(gate) rounded to bf16 before the product (two roundings)",
     "the historical bytes; 27.5 % of outputs differ from one_round_fp32 on N(0,1) inputs"},
    {"swiglu/one_round_fp32@v1", ProgramKind::kForward, kMlpSites,
     "SwiGLU, SiLU(gate) kept in float32, one rounding at the store",
     "27.5 % of outputs differ from two_round on N(0,1) inputs"},
    {"swiglu/one_round_fp32_clamped@v1", ProgramKind::kForward, kMlpSites,
     "SwiGLU with gate and up clamped to a limit in float32, then one rounding",
     "differs from one_round_fp32 wherever the clamp acts"},
    {"swiglu_vjp/analytic@v1", ProgramKind::kVjp, "", "backward of both SwiGLU programs, float32",
     "gradients only: no forward byte"},
    {"lora/active@v1", ProgramKind::kRetired, "lora",
     "adapters feeding the two-round SwiGLU, as builds ran it before one-round",
     "27.5 % of the MLP's activations differ from active@v2"},
    {"lora/active@v2", ProgramKind::kForward, "lora",
     "y = round(float(b0) + scale * (a0 Bt)), factors as bf16 views, feeding one-round SwiGLU",
     "adapter added after the base product is rounded"},
    {"lora/merged@v1", ProgramKind::kForward, "lora",
     "W' = round(float(W) + scale * (B A)): the synchronised weight is the folded weight",
     "one rounding a weight instead of one an activation: nearly every output differs from active"},
    {"moe_leaf/bf16_add@v1", ProgramKind::kForward, "moe_leaf",
     "round(round(routed * scale) + shared), two bf16 stores", "one rounding more than fp32_fma"},
    {"moe_leaf/fp32_fma@v1", ProgramKind::kForward, "moe_leaf",
     "round(fma(routed, scale, shared)), one store", "one rounding fewer than bf16_add"},
    {"moe_fold/bf16_tree@v1", ProgramKind::kForward, "moe_fold",
     "adjacent-pair tree over contributors, rounded to bf16 at every node",
     "about 56 % of outputs differ from fp64_tree with 16 N(0,1) leaves"},
    {"moe_fold/fp32_tree@v2", ProgramKind::kForward, "moe_fold",
     "adjacent-pair tree over contributors in float32, one final store",
     "random leaves almost never separate it from fp64_tree"},
    {"moe_fold/fp64_tree@v3", ProgramKind::kForward, "moe_fold",
     "adjacent-pair tree over contributors in float64, one final cast",
     "about 56 % of outputs differ from bf16_tree with 16 N(0,1) leaves"},
    {"rmsnorm/pair_tree@v2", ProgramKind::kForward, "norm",
     "RMS norm, squares in float32 summed by an adjacent-pair tree, weight w or 1 + w",
     "the order of the sum decides the last bit of the row's scale"},
    {"gemm/k_chain@v1", ProgramKind::kForward, "gemm",
     "one ascending chain of float32 FMAs over k, one store",
     "the order of the sum decides the last bits"},
    {"gemm/k_tile@v1", ProgramKind::kForward, "gemm",
     "chains over tiles of 64 in k, tile sums added in ascending order, one store",
     "the order of the sum decides the last bits"},
    {"lm_head/selected_logprob@v1", ProgramKind::kForward, "lm_head",
     "float32 logits, log-softmax over 128-wide vocabulary tiles merged by a pair tree",
     "the log-probability of every sampled token"},
    {"rope/neox@v1", ProgramKind::kForward, "rope",
     "rotary embedding, table entries correctly rounded, two products, one add, one store",
     "queries and keys of every attention layer"},
    {"softmax_attention/k_ascending@v1", ProgramKind::kForward, "attention",
     "causal attention in two passes, keys in ascending order, no online rescaling",
     "every attention output"},
    {"router_topk/stable@v1", ProgramKind::kForward, "router",
     "stable top-k over experts, lowest id first on a tie", "which experts see a token"},
    {"gdn/recurrent@v1", ProgramKind::kForward, "gdn_prefill gdn_decode",
     "gated delta net, one token after the other, float32 state",
     "other bytes than chunk64 (within about 1e-5)"},
    {"gdn/chunk64@v1", ProgramKind::kForward, "gdn_prefill gdn_decode",
     "gated delta net in chunks of 64 tokens, float32 state",
     "other bytes than recurrent (within about 1e-5)"},
    {"gdn_cp/relay@v1", ProgramKind::kForward, "gdn_prefill",
     "chunk64 over a zigzag split, float32 boundary states handed on with receipts",
     "the bytes of gdn/chunk64@v1 unsplit, for every cp"},
    {"gdn_cp/canonical_fold@v1", ProgramKind::kForward, "gdn_prefill",
     "chunk64 over segments of 1024 tokens, start states by an affine fold",
     "other bytes than relay; equal for cp 1, 2, 4 and 8"},
    {"digest/paged@v1", ProgramKind::kDigest, "", "keyed digest of installed bytes, 64 KiB pages",
     "proves bytes; changes none"},
    {"digest/content@v1", ProgramKind::kDigest, "", "BLAKE2b-256 of a tensor's logical stream",
     "proves bytes; changes none"},
    {"delta/overwrite@v1", ProgramKind::kDelta, "", "changed elements between two versions",
     "lossless: the full installed bytes are digested after it"},
};

constexpr RealisationInfo kRealisations[] = {
    {"silu/ieee@v1", "bf16", "274ebf0ac6bccfe960ce26de023946959df3384ebdc1dd08b1643ae8f05d9cd1",
     "g / (1 + exp(-g)) in float32, exp correctly rounded; computed, no stored table"},
    {"silu/ieee@v1", "fp16", "2e14d77bb5a081a710eac9572751acf0add09981f16292b9f86935720e94fb6f",
     "the same for fp16 gates"},
    {"silu/sm90_triton@v1", "bf16",
     "e1b2e9e64ae5bb65c19bb118940f3b0ada7684124a0413b5d977acff7f7f663f",
     "what Triton's x * sigmoid(x) gives on sm_90"},
    {"silu/torch_cuda@v1", "bf16",
     "ad9dc434bb1acf2f1b5f13417d107e5f64c0c70619988c0419439382b21adf94",
     "what PyTorch's silu gives on CUDA"},
    {"silu/torch_cpu@v1", "bf16",
     "aad4b7a5fc11114c6fb348753112530ef0d412dbc1b38dcba7ee35242cdff6eb",
     "what PyTorch's silu gives on CPU"},
};

constexpr LocalPartialInfo kLocalPartials[] = {
    {"local-partial v2", "local-partial@v2", "v2", "moe_leaf/bf16_add@v1", "moe_fold/bf16_tree@v1"},
    {"local-partial v3", "local-partial@v3", "v3", "moe_leaf/fp32_fma@v1", "moe_fold/fp64_tree@v3"},
};

constexpr AdapterLaneInfo kAdapterLanes[] = {
    {"glm52_exact_tp16_shared_expert_rank1_qlora_v1", "glm52", "shared_expert", "lora/active@v1",
     kTwoRound, 16, 1, false},
    {"glm52_exact_tp16_shared_expert_rank1_qlora_v2", "glm52", "shared_expert", "lora/active@v2",
     kOneRound, 16, 1, true},
    {"glm52_exact_tp1_dense_mlp_rank1_qlora_v1", "glm52", "dense_mlp", "lora/active@v1", kTwoRound,
     1, 1, false},
    {"glm52_exact_tp1_dense_mlp_rank1_qlora_v2", "glm52", "dense_mlp", "lora/active@v2", kOneRound,
     1, 1, true},
};

constexpr FamilySite kQwen35DenseSites[] = {
    {"attention", "softmax_attention/k_ascending@v1", SiteNeed::kAttentionLayers},
    {"rope", "rope/neox@v1", SiteNeed::kAttentionLayers},
    {"gdn_prefill", "gdn/chunk64@v1", SiteNeed::kLinearAttentionLayers},
    {"gdn_decode", "gdn/recurrent@v1", SiteNeed::kLinearAttentionLayers},
    {"dense_mlp", kOneRound, SiteNeed::kAlways, true},
    {"norm", "rmsnorm/pair_tree@v2"},
    {"gemm", "gemm/k_chain@v1"},
    {"lm_head", "lm_head/selected_logprob@v1"},
};

constexpr FamilySite kQwen35MoeSites[] = {
    {"attention", "softmax_attention/k_ascending@v1", SiteNeed::kAttentionLayers},
    {"rope", "rope/neox@v1", SiteNeed::kAttentionLayers},
    {"gdn_prefill", "gdn/chunk64@v1", SiteNeed::kLinearAttentionLayers},
    {"gdn_decode", "gdn/recurrent@v1", SiteNeed::kLinearAttentionLayers},
    {"dense_mlp", kOneRound, SiteNeed::kAlways, true},
    {"shared_expert", kOneRound, SiteNeed::kAlways, true},
    {"routed_experts", kTwoRound, SiteNeed::kAlways, true},
    {"router", "router_topk/stable@v1"},
    {"moe_leaf", "moe_leaf/bf16_add@v1"},
    {"moe_fold", "moe_fold/bf16_tree@v1"},
    {"norm", "rmsnorm/pair_tree@v2"},
    {"gemm", "gemm/k_chain@v1"},
    {"lm_head", "lm_head/selected_logprob@v1"},
};

// The sparse attention of GLM-5.2 has no exact program: it is no site, and no byte is claimed.
constexpr FamilySite kGlm52Sites[] = {
    {"dense_mlp", kOneRound, SiteNeed::kAlways, true, 1},
    {"shared_expert", kOneRound, SiteNeed::kAlways, true, 16},
    {"routed_experts", kTwoRound, SiteNeed::kAlways, true},
    {"router", "router_topk/stable@v1"},
    {"moe_leaf", "moe_leaf/bf16_add@v1"},
    {"moe_fold", "moe_fold/bf16_tree@v1"},
    {"norm", "rmsnorm/pair_tree@v2"},
    {"gemm", "gemm/k_chain@v1"},
    {"lm_head", "lm_head/selected_logprob@v1"},
};

constexpr FamilySite kNoneSites[] = {
    {"dense_mlp", kTwoRound, SiteNeed::kAlways, true},
    {"shared_expert", kTwoRound, SiteNeed::kSharedExpert, true},
    {"routed_experts", kTwoRound, SiteNeed::kExperts, true},
    {"norm", "rmsnorm/pair_tree@v2"},
    {"gemm", "gemm/k_chain@v1"},
    {"lm_head", "lm_head/selected_logprob@v1"},
};

// GLM-5.2 as released, and the small recorded trace.
constexpr AdmittedGeometry kGlm52Geometries[] = {{6144, 12288, 2048}, {128, 256, 64}};

constexpr FamilyInfo kFamilies[] = {
    {.name = "qwen3_5_moe",
     .label = "Qwen3.5-MoE",
     .model_type_stem = "qwen3_5_moe",
     .architecture_stem = "Qwen3_5Moe",
     .exact_by_default = true,
     .zero_centered_norm = true,
     .default_local_partial = "local-partial v2",
     .contributors = 0,
     .default_tp = 1,
     .default_ep = 1,
     .tp_pinned = false,
     .has_gdn = true,
     .sites = kQwen35MoeSites,
     .geometries = {},
     .adapter_targets = "dense_mlp shared_expert",
     .adapter_rank = 0},
    {.name = "qwen3_5_dense",
     .label = "Qwen3.5",
     .model_type_stem = "qwen3_5",
     .architecture_stem = "Qwen3_5",
     .exact_by_default = true,
     .zero_centered_norm = true,
     .default_local_partial = "",
     .contributors = 0,
     .default_tp = 1,
     .default_ep = 1,
     .tp_pinned = false,
     .has_gdn = true,
     .sites = kQwen35DenseSites,
     .geometries = {},
     .adapter_targets = "dense_mlp",
     .adapter_rank = 0},
    {.name = "glm52",
     .label = "GLM-5.2",
     .model_type_stem = "glm_moe_dsa",
     .architecture_stem = "GlmMoeDsa",
     .exact_by_default = false,
     .zero_centered_norm = false,
     .default_local_partial = "local-partial v2",
     .contributors = 16,
     .default_tp = 16,
     .default_ep = 16,
     .tp_pinned = true,
     .has_gdn = false,
     .sites = kGlm52Sites,
     .geometries = kGlm52Geometries,
     .adapter_targets = "attention dense_mlp lm_head routed_experts shared_expert",
     .adapter_rank = 1},
    {.name = kFamilyNone,
     .label = "no exact family",
     .model_type_stem = "",
     .architecture_stem = "",
     .exact_by_default = false,
     .zero_centered_norm = false,
     .default_local_partial = "",
     .contributors = 0,
     .default_tp = 1,
     .default_ep = 1,
     .tp_pinned = false,
     .has_gdn = false,
     .sites = kNoneSites,
     .geometries = {},
     .adapter_targets = "",
     .adapter_rank = 0},
};

constexpr absl::string_view kGelu = "its MLP is gated by GELU (tanh form), not SiLU";

constexpr ModelTypeInfo kModelTypes[] = {
    {"qwen2", "Qwen2", MlpKind::kPlainSwiglu, "", false},
    {"qwen2_moe", "Qwen2-MoE", MlpKind::kPlainSwiglu, "", false},
    {"qwen3", "Qwen3", MlpKind::kPlainSwiglu, "", false},
    {"qwen3_moe", "Qwen3-MoE", MlpKind::kPlainSwiglu, "", false},
    {"qwen3_next", "Qwen3-Next", MlpKind::kPlainSwiglu, "", true},
    {"qwen3_5", "Qwen3.5", MlpKind::kPlainSwiglu, "", true},
    {"qwen3_5_moe", "Qwen3.5-MoE", MlpKind::kPlainSwiglu, "", true},
    {"glm4", "GLM-4", MlpKind::kPlainSwiglu, "", false},
    {"glm4_moe", "GLM-4.5", MlpKind::kPlainSwiglu, "", false},
    {"glm4_moe_lite", "GLM-4.7-Flash", MlpKind::kPlainSwiglu, "", false},
    {"glm_moe_dsa", "GLM-5", MlpKind::kPlainSwiglu, "", false},
    {"deepseek_v3", "DeepSeek-V3", MlpKind::kPlainSwiglu, "", false},
    {"deepseek_v32", "DeepSeek-V3.2", MlpKind::kPlainSwiglu, "", false},
    {"deepseek_v4", "DeepSeek-V4", MlpKind::kPlainSwiglu, "", false},
    {"kimi_k2", "Kimi K2", MlpKind::kPlainSwiglu, "", false},
    {"kimi_k25", "Kimi K2.5", MlpKind::kPlainSwiglu, "", false},
    {"kimi_linear", "Kimi Linear", MlpKind::kPlainSwiglu, "", false},
    {"kimi_k3", "Kimi K3", MlpKind::kNeverPlain, "its gate is capped by a tanh", false},
    {"llama", "Llama 3", MlpKind::kPlainSwiglu, "", false},
    {"llama4", "Llama 4", MlpKind::kPlainSwiglu, "", false},
    {"gpt_oss", "gpt-oss", MlpKind::kNeverPlain,
     "its MLP is a clamped SwiGLU (alpha 1.702) although hidden_act says silu", false},
    {"minimax_m2", "MiniMax-M2", MlpKind::kPlainSwiglu, "", false},
    {"minimax_m3", "MiniMax-M3", MlpKind::kNeverPlain,
     "its MLP is swigluoai (clamped, alpha 1.702)", false},
    {"mistral", "Mistral", MlpKind::kPlainSwiglu, "", false},
    {"mixtral", "Mixtral", MlpKind::kPlainSwiglu, "", false},
    {"olmo2", "OLMo 2", MlpKind::kPlainSwiglu, "", false},
    {"gemma", "Gemma", MlpKind::kPlainIfStated, kGelu, true},
    {"gemma2", "Gemma 2", MlpKind::kPlainIfStated, kGelu, true},
    {"gemma3", "Gemma 3", MlpKind::kPlainIfStated, kGelu, true},
    {"nemotron_h", "Nemotron-H", MlpKind::kNeverPlain, "its MLP is relu2, squared ReLU", false},
};

constexpr AliasInfo kAliases[] = {
    {"local-partial@v2", AliasKind::kLocalPartial, "local-partial v2"},
    {"local-partial@v3", AliasKind::kLocalPartial, "local-partial v3"},
    {"glm52_routed_final_scaled_then_shared_ep_slice_bf16_v2", AliasKind::kLocalPartial,
     "local-partial v2"},
    {"glm52_routed_final_scaled_then_shared_ep_slice_fp32_then_bf16_v3", AliasKind::kLocalPartial,
     "local-partial v3"},
    {"one_round", AliasKind::kProgram, kOneRound},
    {"two_round", AliasKind::kProgram, kTwoRound},
    {"active@v1", AliasKind::kProgram, "lora/active@v1"},
    {"active@v2", AliasKind::kProgram, "lora/active@v2"},
    {"merged@v1", AliasKind::kProgram, "lora/merged@v1"},
    {"glm52_exact_tp16_shared_expert_rank1_qlora@v1", AliasKind::kAdapterLane,
     "glm52_exact_tp16_shared_expert_rank1_qlora_v1"},
    {"glm52_exact_tp16_shared_expert_rank1_qlora@v2", AliasKind::kAdapterLane,
     "glm52_exact_tp16_shared_expert_rank1_qlora_v2"},
    {"glm52_exact_tp1_dense_mlp_rank1_qlora@v1", AliasKind::kAdapterLane,
     "glm52_exact_tp1_dense_mlp_rank1_qlora_v1"},
    {"glm52_exact_tp1_dense_mlp_rank1_qlora@v2", AliasKind::kAdapterLane,
     "glm52_exact_tp1_dense_mlp_rank1_qlora_v2"},
};

// Figures measured over N(0,1) inputs or over all 2^32 (gate, up) pairs of bf16.
constexpr EffectInfo kEffects[] = {
    {kOneRound, kTwoRound,
     "about 27.5 % of the outputs differ on N(0,1) inputs (18,036 of 65,536 in the recorded "
     "GLM-5.2 TP16 shared expert)"},
    {"moe_leaf/bf16_add@v1", "moe_leaf/fp32_fma@v1",
     "the leaf is rounded twice on one side and once on the other, before the fold sees it"},
    {"moe_fold/bf16_tree@v1", "moe_fold/fp64_tree@v3",
     "the fold changes about half of the outputs (56 % with 16 N(0,1) leaves)"},
    {"moe_fold/bf16_tree@v1", "moe_fold/fp32_tree@v2",
     "the fold changes about half of the outputs (56 % with 16 N(0,1) leaves)"},
    {"moe_fold/fp32_tree@v2", "moe_fold/fp64_tree@v3",
     "only crafted sums differ: float32 nodes round where float64 nodes do not"},
    {"local-partial v2", "local-partial v3",
     "the fold changes about half of the outputs (56 % with 16 N(0,1) leaves), and the leaf is "
     "rounded twice in v2 and once in v3"},
    {"silu/sm90_triton@v1", "silu/torch_cuda@v1",
     "2,051 of 65,536 table entries differ: 5,734 of 2^32 (gate, up) pairs under one-round, none "
     "under two-round; random tests do not find it"},
    {"silu/sm90_triton@v1", "silu/ieee@v1",
     "24,194 of 2^32 (gate, up) pairs differ under one-round, none under two-round; random tests "
     "do not find it"},
    {"silu/torch_cuda@v1", "silu/ieee@v1",
     "18,468 of 2^32 (gate, up) pairs differ under one-round, none under two-round; random tests "
     "do not find it"},
    {"silu/torch_cpu@v1", "silu/ieee@v1",
     "2 of 2^32 (gate, up) pairs differ under one-round, none under two-round"},
    {"gdn/recurrent@v1", "gdn/chunk64@v1",
     "another order of sums: most outputs and the whole end state differ in their last bits"},
    {"gdn/chunk64@v1", "gdn_cp/relay@v1",
     "no byte of the output: relay gives the bytes of chunk64 unsplit, but the names differ and "
     "names are compared whole"},
    {"gdn_cp/relay@v1", "gdn_cp/canonical_fold@v1",
     "start states are summed in another order: outputs after the first segment differ"},
    {"gdn/chunk64@v1", "gdn_cp/canonical_fold@v1",
     "start states are summed in another order: outputs after the first 1024 tokens differ"},
    {"gemm/k_chain@v1", "gemm/k_tile@v1",
     "another order of sums: products with k over 64 differ in their last bits"},
    {"lora/active@v1", "lora/active@v2",
     "v1 feeds the two-round SwiGLU and v2 the one-round: about 27.5 % of the activations differ"},
    {"lora/active@v2", "lora/merged@v1",
     "the adapter is added to each activation on one side and folded into the weight on the other: "
     "nearly every output may differ"},
};

}  // namespace

absl::Span<const ProgramInfo> Programs() { return kPrograms; }
absl::Span<const RealisationInfo> Realisations() { return kRealisations; }
absl::Span<const LocalPartialInfo> LocalPartials() { return kLocalPartials; }
absl::Span<const AdapterLaneInfo> AdapterLanes() { return kAdapterLanes; }
absl::Span<const FamilyInfo> Families() { return kFamilies; }
absl::Span<const ModelTypeInfo> ModelTypes() { return kModelTypes; }
absl::Span<const AliasInfo> Aliases() { return kAliases; }
absl::Span<const EffectInfo> Effects() { return kEffects; }

}  // namespace lockstep
