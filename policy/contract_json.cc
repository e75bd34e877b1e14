// The contract's JSON. Keys, all required unless said otherwise:
//   format         "lockstep contract@v1"
//   family         string
//   parallel       {tp, ep, cp, dp}
//   sites          {NAME: {program, realisation?, realisation_digest?, geometry?, constants?}}
//   local_partial  {policy, leaf, fold, contributors, order_digest} or null
//   lora           "none" or {kind, rank, alpha, targets, lanes}
//   scoring        {temperature, logprobs, top_k_renormalised, top_p_renormalised}
//   tolerance      {max_abs_delta, mean_k3} or null
//   level          "weights", "kernels" or "tokens"
//   engine         {trainer, sampler, pinned}; optional
//   layout         64 hex digits or null; optional
// A float is a number in the readable form and 8 hex digits in the canonical one.

#include "policy/contract_json.h"

#include <charconv>
#include <cstring>

#include "absl/strings/str_format.h"

namespace lockstep {
namespace {

using nlohmann::json;

json FloatJson(float value, ContractForm form) {
  if (form == ContractForm::kCanonical) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return absl::StrFormat("%08x", bits);
  }
  // The shortest decimal that reads back as this float32: 1e-06, not 9.999999974752427e-07.
  char text[32];
  const auto printed = std::to_chars(text, text + sizeof(text), value);
  double shortest = value;
  std::from_chars(text, printed.ptr, shortest);
  return shortest;
}

json ParallelJson(const Parallel& parallel) {
  return {{"tp", parallel.tp}, {"ep", parallel.ep}, {"cp", parallel.cp}, {"dp", parallel.dp}};
}

json ScoringJson(const Scoring& scoring, ContractForm form) {
  return {{"temperature", FloatJson(scoring.temperature, form)},
          {"logprobs", scoring.logprobs},
          {"top_k_renormalised", scoring.top_k_renormalised},
          {"top_p_renormalised", scoring.top_p_renormalised}};
}

}  // namespace

json SiteJson(const Site& site, ContractForm form) {
  json out = {{"program", site.program}};
  if (!site.realisation.empty()) out["realisation"] = site.realisation;
  if (site.realisation_digest) out["realisation_digest"] = ToHex(*site.realisation_digest);
  json geometry = json::object();
  for (const auto& [name, value] : site.geometry) geometry[name] = value;
  json constants = json::object();
  for (const auto& [name, value] : site.constants) constants[name] = FloatJson(value, form);
  if (!geometry.empty() || form == ContractForm::kReadable) out["geometry"] = geometry;
  if (!constants.empty()) out["constants"] = constants;
  return out;
}

json LocalPartialJson(const LocalPartial& policy) {
  return {{"policy", LocalPartialName(policy)},
          {"leaf", policy.leaf},
          {"fold", policy.fold},
          {"contributors", policy.contributors},
          {"order_digest", ToHex(policy.order_digest)}};
}

json LoraJson(const Lora& lora, ContractForm form) {
  if (lora.kind == LoraKind::kNone) return "none";
  json lanes = json::object();
  for (const auto& [site, lane] : lora.lanes) lanes[site] = lane;
  return {{"kind", LoraName(lora)},
          {"rank", lora.rank},
          {"alpha", FloatJson(lora.alpha, form)},
          {"targets", lora.targets},
          {"lanes", lanes}};
}

json ContractJson(const Contract& contract, ContractForm form) {
  json out = {{"format", std::string(kContractFormat)},
              {"family", contract.family},
              {"parallel", ParallelJson(contract.parallel)},
              {"lora", LoraJson(contract.lora, form)},
              {"scoring", ScoringJson(contract.scoring, form)},
              {"level", std::string(LevelName(contract.level))},
              {"local_partial", nullptr},
              {"tolerance", nullptr}};
  json sites = json::object();
  for (const auto& [name, site] : contract.sites) sites[name] = SiteJson(site, form);
  out["sites"] = sites;
  if (contract.local_partial) out["local_partial"] = LocalPartialJson(*contract.local_partial);
  if (contract.tolerance) {
    out["tolerance"] = {{"max_abs_delta", FloatJson(contract.tolerance->max_abs_delta, form)},
                        {"mean_k3", FloatJson(contract.tolerance->mean_k3, form)}};
  }
  if (contract.engine.pinned || form == ContractForm::kReadable) {
    out["engine"] = {{"trainer", contract.engine.trainer},
                     {"sampler", contract.engine.sampler},
                     {"pinned", contract.engine.pinned}};
  }
  if (form == ContractForm::kReadable) {
    out["layout"] = contract.layout ? json(ToHex(*contract.layout)) : json(nullptr);
  }
  return out;
}

json RefusalsJson(const std::vector<Refusal>& refusals) {
  json out = json::array();
  for (const Refusal& refusal : refusals) {
    out.push_back({{"code", std::string(RefusalCodeName(refusal.code))},
                   {"key", refusal.key},
                   {"message", refusal.message}});
  }
  return out;
}

}  // namespace lockstep
