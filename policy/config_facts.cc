#include "policy/config_facts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "policy/contract.h"
#include "policy/json_text.h"

namespace lockstep {
namespace {

using nlohmann::json;

// Whole numbers read from the text part; the first group must be positive where stated.
constexpr absl::string_view kPositiveKeys[] = {
    "hidden_size",
    "intermediate_size",
    "moe_intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_conv_kernel_dim",
    "vocab_size",
    "num_experts_per_tok",
};
constexpr absl::string_view kCountKeys[] = {
    "shared_expert_intermediate_size",
    "n_shared_experts",
    "num_experts",
    "n_routed_experts",
    "num_local_experts",
};
constexpr absl::string_view kConstantKeys[] = {
    "rms_norm_eps",
    "routed_scaling_factor",
    "partial_rotary_factor",
    "rope_theta",
};

// Both places where stamps, flags and architectures may stand.
struct Place {
  const json* object;
  absl::string_view prefix;
};

std::string TypeAt(const json& object, const std::string& path, RefusalList& refusals) {
  const json* value = FindNonNull(object, "model_type");
  if (value == nullptr) return "";
  if (value->is_string()) return value->get<std::string>();
  refusals.Add(RefusalCode::kBadConfig, path,
               absl::StrCat("expected a string, got ", QuoteJson(*value)));
  return "";
}

// `num_experts` of 0 is how dense models of this format say that they have none.
bool HasExperts(const json& text) {
  const json* experts = FindNonNull(text, "num_experts");
  return experts != nullptr && !(experts->is_number() && experts->get<double>() == 0);
}

void ReadModelType(const json& root, const json& text, ConfigFacts& facts, RefusalList& refusals) {
  const bool scoped = &root != &text;
  const std::string top = TypeAt(root, "model_type", refusals);
  const std::string inner = scoped ? TypeAt(text, "text_config.model_type", refusals) : "";
  const bool use_inner = !inner.empty();
  facts.model_type = use_inner ? inner : top;
  facts.model_type_path = use_inner ? "text_config.model_type" : "model_type";
  const bool experts = HasExperts(text);
  facts.type_family = FamilyOfModelType(facts.model_type, experts);
  const FamilyInfo* stated = FamilyOfModelType(facts.model_type, false);
  facts.type_info = FindModelType(facts.model_type);
  if (use_inner && !top.empty()) {
    const FamilyInfo* outer = FamilyOfModelType(top, experts);
    if (outer != nullptr && facts.type_family != nullptr && outer != facts.type_family) {
      const bool both_qwen = outer->has_gdn && facts.type_family->has_gdn;
      if (both_qwen) facts.type_family = FindFamily("qwen3_5_moe");  // one of them says so
      if (!both_qwen) {
        refusals.Add(RefusalCode::kStampConflict, "model_type",
                     absl::StrCat("model_type '", top, "' and text_config.model_type '", inner,
                                  "' name different exact families; correct the config"));
      }
    }
    const ModelTypeInfo* outer_info = FindModelType(top);
    const bool decides = outer_info != nullptr && outer_info->mlp == MlpKind::kNeverPlain;
    if (decides && (facts.type_info == nullptr || facts.type_info->mlp != MlpKind::kNeverPlain)) {
      facts.type_info = outer_info;
      facts.model_type = top;
      facts.model_type_path = "model_type";
    }
  }
  facts.dense_type_with_experts = facts.type_family != stated && stated != nullptr;
}

void ReadArchitectures(const Place& place, ConfigFacts& facts, RefusalList& refusals) {
  const std::string path = absl::StrCat(place.prefix, "architectures");
  const json* list = FindNonNull(*place.object, "architectures");
  if (list == nullptr) return;
  const bool strings = list->is_array() && std::all_of(list->begin(), list->end(), [](auto& entry) {
                         return entry.is_string();
                       });
  if (!strings) {
    refusals.Add(RefusalCode::kBadConfig, path,
                 absl::StrCat("expected a list of strings or null, got ", QuoteJson(*list)));
    return;
  }
  for (const json& entry : *list) facts.architectures.push_back({path, &entry});
}

void ReadStampAndFlags(const Place& place, ConfigFacts& facts) {
  const auto stamp = place.object->find(std::string(kStampFamilyKey));
  if (stamp != place.object->end()) {
    facts.stamps.push_back({absl::StrCat(place.prefix, kStampFamilyKey), &*stamp});
  }
  std::vector<absl::string_view> flags(std::begin(kActiveLoraFlags), std::end(kActiveLoraFlags));
  flags.insert(flags.end(), {kStampOneRoundKey, kQwen35Flag, kGlm52Flag, kGlm52FullParamFlag});
  for (absl::string_view flag : flags) {
    const json* value = FindNonNull(*place.object, flag);
    if (value == nullptr) continue;
    const std::string path = absl::StrCat(place.prefix, flag);
    if (!value->is_boolean()) {
      facts.flag_errors.push_back(
          {path, absl::StrCat("expected true, false or null, got ", QuoteJson(*value))});
    } else if (value->get<bool>()) {
      facts.true_flags.emplace(std::string(flag), path);
    }
  }
}

void AddUnfit(std::string path, const json& value, absl::string_view why,
              std::vector<Unfit>& unfit) {
  unfit.push_back({path, absl::StrCat(path, " is ", QuoteJson(value), ": ", why)});
}

// Exactly the activation keys of contracts.md section 2, and the model type where it alone
// decides; that one first.
void ReadActivation(const json& text, ConfigFacts& facts) {
  const ModelTypeInfo* type = facts.type_info;
  const bool stated = FindNonNull(text, "hidden_act") != nullptr ||
                      FindNonNull(text, "hidden_activation") != nullptr;
  if (type != nullptr &&
      (type->mlp == MlpKind::kNeverPlain || (type->mlp == MlpKind::kPlainIfStated && !stated))) {
    AddUnfit(facts.model_type_path, json(facts.model_type),
             absl::StrCat(type->label, ": ", type->reason), facts.unfit_activations);
  }
  for (absl::string_view key : {"hidden_act", "hidden_activation"}) {
    const json* value = FindNonNull(text, key);
    if (value == nullptr) continue;
    // "swish" is the same function under its older name.
    const bool silu = value->is_string() && (*value == "silu" || *value == "swish");
    if (silu) continue;
    AddUnfit(absl::StrCat(facts.prefix, key), *value,
             "every exact program gates with SiLU (\"silu\")", facts.unfit_activations);
  }
  for (absl::string_view key : {"swiglu_limit", "swiglu_alpha"}) {
    const json* value = FindNonNull(text, key);
    if (value == nullptr) continue;
    AddUnfit(absl::StrCat(facts.prefix, key), *value,
             "the MLP is a clamped or scaled SwiGLU, and the exact families have the plain one",
             facts.unfit_activations);
  }
  const json* bias = FindNonNull(text, "mlp_bias");
  if (bias != nullptr && *bias != json(false)) {
    AddUnfit(absl::StrCat(facts.prefix, "mlp_bias"), *bias,
             "a bias is added inside the MLP, and no exact program has one",
             facts.unfit_activations);
  }
}

void ReadDtype(const Place& place, ConfigFacts& facts) {
  for (absl::string_view key : {"dtype", "torch_dtype"}) {
    const json* value = FindNonNull(*place.object, key);
    if (value == nullptr) continue;
    if (value->is_string() &&
        (*value == "bfloat16" || *value == "torch.bfloat16" || *value == "bf16")) {
      continue;
    }
    AddUnfit(absl::StrCat(place.prefix, key), *value,
             "the operands of an exact site are bfloat16; convert the checkpoint",
             facts.unfit_dtypes);
  }
}

void ReadNumbers(const json& text, ConfigFacts& facts) {
  const auto read = [&](absl::string_view key, uint64_t least) {
    const json* value = FindNonNull(text, key);
    if (value == nullptr) return;
    const std::optional<uint64_t> number = AsUnsigned(*value);
    if (number && *number >= least && *number <= kMaxGeometry) {
      facts.sizes[std::string(key)] = *number;
    } else {
      const std::string path = absl::StrCat(facts.prefix, key);
      facts.bad_numbers.push_back({path, absl::StrCat("expected a whole number of ", least, " to ",
                                                      kMaxGeometry, ", got ", QuoteJson(*value))});
    }
  };
  for (absl::string_view key : kPositiveKeys) read(key, 1);
  for (absl::string_view key : kCountKeys) read(key, 0);
  const json* rope = FindNonNull(text, "rope_parameters");
  for (absl::string_view key : kConstantKeys) {
    const json* value = FindNonNull(text, key);
    if (value == nullptr && rope != nullptr) value = FindNonNull(*rope, key);
    if (value == nullptr) continue;
    const std::optional<float> number = AsFloat(*value);
    if (number && *number >= 0) {
      facts.constants[std::string(key)] = *number;
    } else {
      facts.bad_numbers.push_back(
          {absl::StrCat(facts.prefix, key),
           absl::StrCat("expected a finite number of at least 0, got ", QuoteJson(*value))});
    }
  }
}

void ReadLayerTypes(const json& text, ConfigFacts& facts) {
  const json* types = FindNonNull(text, "layer_types");
  if (types == nullptr || !types->is_array() || types->empty()) return;
  const auto has = [&](const char* name) {
    return std::find(types->begin(), types->end(), json(name)) != types->end();
  };
  facts.has_linear_attention = has("linear_attention");
  facts.has_attention = has("full_attention") || !facts.has_linear_attention;
}

}  // namespace

uint64_t ConfigFacts::Size(absl::string_view key) const {
  const auto it = sizes.find(std::string(key));
  return it == sizes.end() ? 0 : it->second;
}

bool ConfigFacts::AllActiveLoraFlags() const {
  return std::all_of(
      std::begin(kActiveLoraFlags), std::end(kActiveLoraFlags),
      [&](absl::string_view flag) { return true_flags.count(std::string(flag)) > 0; });
}

ConfigFacts ReadConfigFacts(const json& root, RefusalList& refusals) {
  ConfigFacts facts;
  const json* text = FindNonNull(root, "text_config");
  if (text != nullptr && !text->is_object()) {
    refusals.Add(RefusalCode::kBadConfig, "text_config",
                 absl::StrCat("expected an object or null, got ", QuoteJson(*text)));
    text = nullptr;
  }
  std::vector<Place> places = {{&root, ""}};
  if (text != nullptr) {
    facts.prefix = "text_config.";
    places.push_back({text, "text_config."});
  } else {
    text = &root;
  }
  ReadModelType(root, *text, facts, refusals);
  for (const Place& place : places) {
    ReadArchitectures(place, facts, refusals);
    ReadStampAndFlags(place, facts);
    ReadDtype(place, facts);
    if (FindNonNull(*place.object, "quantization_config") != nullptr) facts.quantised = true;
  }
  ReadActivation(*text, facts);
  ReadNumbers(*text, facts);
  ReadLayerTypes(*text, facts);
  return facts;
}

}  // namespace lockstep
