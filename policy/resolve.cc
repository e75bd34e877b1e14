// Reads the config, lets resolve_decide.cc choose the family and resolve_sites.cc build the
// contract, and stamps the result.

#include "policy/resolve.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "policy/config_facts.h"
#include "policy/contract_json.h"
#include "policy/json_text.h"
#include "policy/refusal_list.h"
#include "policy/registry.h"
#include "policy/resolve_decide.h"
#include "policy/resolve_sites.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr JsonLimits kConfigLimits{};

// Turns an exact family into `none` where the model cannot have one, or refuses.
SitePlan ApplyFitness(const Decision& decision, const ConfigFacts& facts,
                      const ResolveOptions& options, RefusalList& refusals,
                      std::vector<std::string>& notes) {
  SitePlan plan{decision.family, decision.lane, facts.unfit_activations.empty()};
  bool type_refused = false;
  for (const Unfit& unfit : facts.unfit_activations) {
    if (decision.demanded) {
      refusals.Add(RefusalCode::kUnfitActivation, unfit.path,
                   absl::StrCat(unfit.message,
                                "; without --exact, lane, stamp and flag the model resolves to "
                                "family none"));
      type_refused = type_refused || unfit.path == facts.model_type_path;
    } else {
      plan.family = nullptr;
      notes.push_back(absl::StrCat(unfit.message, "; the MLP site is left empty"));
    }
  }
  if (decision.family != nullptr) {
    for (const Unfit& unfit : facts.unfit_dtypes) {
      if (decision.demanded) {
        refusals.Add(RefusalCode::kOperandNotAdmitted, unfit.path, unfit.message);
      } else {
        plan.family = nullptr;
        notes.push_back(absl::StrCat(unfit.message, "; resolved to family none"));
      }
    }
  } else if (options.exact && !type_refused) {
    refusals.Add(
        RefusalCode::kNoExactFamily, facts.model_type_path,
        absl::StrCat(
            TypeText(facts),
            facts.type_info == nullptr ? "" : absl::StrCat(" (", facts.type_info->label, ")"),
            " has no exact family (there are qwen3_5_dense, qwen3_5_moe and "
            "glm52); leave --exact out to run it as family none"));
  }
  if (plan.family == nullptr) plan.family = FindFamily(kFamilyNone);
  return plan;
}

std::string StampedConfig(json root, absl::string_view family) {
  std::vector<std::string> stale(std::begin(kActiveLoraFlags), std::end(kActiveLoraFlags));
  for (absl::string_view key :
       {kStampFamilyKey, kStampOneRoundKey, kQwen35Flag, kGlm52Flag, kGlm52FullParamFlag}) {
    stale.emplace_back(key);
  }
  for (const std::string& key : stale) {
    root.erase(key);
    const auto text = root.find("text_config");
    if (text != root.end() && text->is_object()) text->erase(key);
  }
  root[std::string(kStampFamilyKey)] = std::string(family);
  root[std::string(kStampOneRoundKey)] = family != kFamilyNone;
  return root.dump(2, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

void AddNotes(const SitePlan& plan, const ConfigFacts& facts, const ResolveOptions& options,
              std::vector<std::string>& notes) {
  const bool exact = plan.family->name != kFamilyNone;
  if (!exact && plan.plain_mlp) {
    notes.push_back(absl::StrCat(
        TypeText(facts), " resolves to family none: it keeps the historical ", kTwoRound,
        " and no byte is claimed",
        facts.type_family != nullptr ? "; ask for its exact family with --exact or a lane" : ""));
  }
  if (!exact && (options.lane == Lane::kActiveLora || options.adapter.merged)) {
    notes.push_back("family none has no exact adapter program, so adapters are no part of it");
  }
  if (plan.family->name == "glm52") {
    notes.push_back("sparse attention has no exact program and is outside the claim");
  }
  if (exact && facts.quantised) {
    notes.push_back("quantised weights are dequantised to bf16 before any exact program");
  }
  if (!options.exact && options.lane == Lane::kNone && !facts.stamps.empty() &&
      facts.AllActiveLoraFlags()) {
    notes.push_back("the active-LoRA flags say nothing beside a stamp; ask for --lane active_lora");
  }
}

Resolution Refused(RefusalList refusals) {
  Resolution resolution;
  resolution.refusals = std::move(refusals).Take();
  return resolution;
}

}  // namespace

absl::string_view LaneName(Lane lane) {
  switch (lane) {
    case Lane::kNone:
      return "none";
    case Lane::kScoring:
      return "scoring";
    case Lane::kActiveLora:
      return "active_lora";
    case Lane::kFullParam:
      return "full_param";
  }
  return "unknown";
}

std::optional<Lane> LaneFromName(absl::string_view name) {
  for (Lane lane : {Lane::kNone, Lane::kScoring, Lane::kActiveLora, Lane::kFullParam}) {
    if (LaneName(lane) == name) return lane;
  }
  return std::nullopt;
}

Resolution ResolveConfig(absl::string_view config_json, const ResolveOptions& options) {
  RefusalList refusals;
  absl::StatusOr<json> root = ParseJson(config_json, kConfigLimits);
  if (!root.ok() || !root->is_object()) {
    refusals.Add(
        RefusalCode::kBadConfig, "",
        absl::StrCat("the config is unreadable: ",
                     root.ok() ? absl::StrCat("expected a JSON object, got ", QuoteJson(*root))
                               : std::string(root.status().message()),
                     "; give the model's config.json"));
    return Refused(std::move(refusals));
  }
  const ConfigFacts facts = ReadConfigFacts(*root, refusals);
  const Decision decision = Decide(facts, options, refusals);
  std::vector<std::string> notes;
  const SitePlan plan = ApplyFitness(decision, facts, options, refusals, notes);
  Contract contract = BuildContract(plan, facts, options, refusals);
  if (refusals.empty()) {
    for (Refusal& refusal : CheckContract(contract)) {
      refusals.Add(refusal.code, std::move(refusal.key), std::move(refusal.message));
    }
  }
  if (!refusals.empty()) return Refused(std::move(refusals));
  AddNotes(plan, facts, options, notes);
  Resolution resolution;
  resolution.family = contract.family;
  resolution.contract = std::move(contract);
  resolution.notes = std::move(notes);
  resolution.stamped_config = StampedConfig(*std::move(root), resolution.family);
  return resolution;
}

json ResolutionJson(const Resolution& resolution) {
  json out = {{"family", resolution.family},
              {"contract_id", nullptr},
              {"contract_short", nullptr},
              {"sites", json::object()},
              {"parallel", nullptr},
              {"local_partial", nullptr},
              {"lora", nullptr},
              {"level", nullptr},
              {"notes", resolution.notes},
              {"refusals", RefusalsJson(resolution.refusals)}};
  if (!resolution.contract) return out;
  const json contract = ContractJson(*resolution.contract, ContractForm::kReadable);
  for (const char* part : {"sites", "parallel", "local_partial", "lora", "level"}) {
    out[part] = contract[part];
  }
  out["contract_id"] = ToHex(ContractId(*resolution.contract));
  out["contract_short"] = ContractShortForm(*resolution.contract);
  return out;
}

}  // namespace lockstep
