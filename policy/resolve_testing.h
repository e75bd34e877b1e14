#ifndef LOCKSTEP_POLICY_RESOLVE_TESTING_H_
#define LOCKSTEP_POLICY_RESOLVE_TESTING_H_

// For tests: small configs of each family, changed by one key at a time.

#include <string>

#include "nlohmann/json.hpp"
#include "policy/contract.h"
#include "policy/resolve.h"

namespace lockstep {

inline nlohmann::json QwenDenseConfig() {
  return {{"model_type", "qwen3_5_text"},
          {"architectures", {"Qwen3_5ForCausalLM"}},
          {"hidden_act", "silu"},
          {"dtype", "bfloat16"},
          {"hidden_size", 128},
          {"intermediate_size", 384},
          {"vocab_size", 64},
          {"rms_norm_eps", 1e-6}};
}

inline nlohmann::json QwenMoeConfig() {
  return {{"model_type", "qwen3_5_moe_text"},
          {"architectures", {"Qwen3_5MoeForCausalLM"}},
          {"hidden_act", "silu"},
          {"hidden_size", 2048},
          {"moe_intermediate_size", 512},
          {"shared_expert_intermediate_size", 512},
          {"num_experts", 256}};
}

inline nlohmann::json GlmConfig() {
  return {{"model_type", "glm_moe_dsa"},   {"architectures", {"GlmMoeDsaForCausalLM"}},
          {"hidden_act", "silu"},          {"dtype", "bfloat16"},
          {"hidden_size", 6144},           {"intermediate_size", 12288},
          {"moe_intermediate_size", 2048}, {"n_shared_experts", 1},
          {"n_routed_experts", 256},       {"routed_scaling_factor", 2.5}};
}

inline nlohmann::json LlamaConfig() {
  return {{"model_type", "llama"},      {"architectures", {"LlamaForCausalLM"}},
          {"hidden_act", "silu"},       {"hidden_size", 4096},
          {"intermediate_size", 11008}, {"mlp_bias", false}};
}

// A multimodal checkpoint around a language model, with a vision tower that gates by GELU.
inline nlohmann::json Multimodal(const std::string& model_type, nlohmann::json text) {
  text.erase("architectures");
  return {{"model_type", model_type},
          {"text_config", std::move(text)},
          {"vision_config", {{"model_type", "vision"}, {"hidden_act", "gelu_pytorch_tanh"}}}};
}

// `config` with the keys of `changes` set, null included.
inline nlohmann::json With(nlohmann::json config, const nlohmann::json& changes) {
  config.update(changes);
  return config;
}

inline ResolveOptions Exact() {
  ResolveOptions options;
  options.exact = true;
  return options;
}

inline ResolveOptions InLane(Lane lane) {
  ResolveOptions options;
  options.lane = lane;
  return options;
}

inline Resolution Resolve(const nlohmann::json& config, const ResolveOptions& options = {}) {
  return ResolveConfig(config.dump(), options);
}

// "none" or the family, and "refused" where there is no contract.
inline std::string FamilyOrRefused(const Resolution& resolution) {
  return resolution.contract ? resolution.family : "refused";
}

// The program at a site; "" for an empty site and "absent" for none.
inline std::string ProgramAt(const Resolution& resolution, const std::string& site) {
  const Site* found = resolution.contract ? FindSite(*resolution.contract, site) : nullptr;
  return found == nullptr ? "absent" : found->program;
}

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_RESOLVE_TESTING_H_
