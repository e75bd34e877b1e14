#ifndef LOCKSTEP_POLICY_CONFIG_FACTS_H_
#define LOCKSTEP_POLICY_CONFIG_FACTS_H_

// What a config.json says, read once and without judgement beyond its own words: the model
// type and architectures, stamps and flags, activation keys, sizes. resolve.cc decides what
// follows. A multimodal config's language part lies under `text_config`; null says nothing.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "policy/refusal_list.h"
#include "policy/registry.h"

namespace lockstep {

inline constexpr absl::string_view kStampFamilyKey = "_exact_contract_family";
inline constexpr absl::string_view kStampOneRoundKey = "_exact_one_round_swiglu";
inline constexpr absl::string_view kQwen35Flag = "_qwen35_exact_contract";
inline constexpr absl::string_view kGlm52Flag = "_glm52_exact_contract";
inline constexpr absl::string_view kGlm52FullParamFlag = "_glm52_fullparam_training";

// The five flags of the active-LoRA lane; all of them or none.
inline constexpr absl::string_view kActiveLoraFlags[] = {
    "_glm52_exact_active_lora_dense_component",
    "_glm52_exact_active_lora_attention_component",
    "_glm52_exact_active_lora_shared_expert_component",
    "_glm52_exact_active_lora_routed_expert_component",
    "_glm52_exact_active_lora_lm_head_component",
};

// A value with the JSON path where it stands ("text_config.hidden_act").
struct Located {
  std::string path;
  const nlohmann::json* value = nullptr;
};

// A key that keeps the model out of an exact family, and why.
struct Unfit {
  std::string path;
  std::string message;
};

struct ConfigFacts {
  std::string model_type;       // of the text part, else of the top; empty when neither says
  std::string model_type_path;  // where it stands, or where it would
  // The exact family of the model type, or nullptr.
  const FamilyInfo* type_family = nullptr;
  // Within qwen3_5*, a dense type with num_experts: its architecture may name either family.
  bool dense_type_with_experts = false;
  const ModelTypeInfo* type_info = nullptr;  // nullptr for a type we have no row for
  std::vector<Located> architectures;        // one entry each

  std::vector<Located> stamps;                    // at most two: top, text part; null included
  std::map<std::string, std::string> true_flags;  // flag -> path; false flags are absent
  std::vector<Unfit> flag_errors;                 // flags that are neither true, false nor null

  std::vector<Unfit> unfit_activations;
  std::vector<Unfit> unfit_dtypes;

  std::string prefix;  // "" or "text_config.", before the keys below
  std::map<std::string, uint64_t> sizes;
  std::map<std::string, float> constants;
  std::vector<Unfit> bad_numbers;  // keys of the two maps above that hold no such number
  bool has_attention = true;       // by layer_types; true when it says nothing
  bool has_linear_attention = true;
  bool quantised = false;

  // 0 when the config does not say.
  uint64_t Size(absl::string_view key) const;

  bool AllActiveLoraFlags() const;
};

// `root` is an object. Refuses only what cannot be read at all (kBadConfig).
ConfigFacts ReadConfigFacts(const nlohmann::json& root, RefusalList& refusals);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_CONFIG_FACTS_H_
