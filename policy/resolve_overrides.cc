// What was asked for beyond the config's own contract: a SwiGLU program, a local-partial
// policy, adapters. Each replaces whole sites and is refused where there is no such site.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "policy/resolve_sites.h"

namespace lockstep {
namespace {

void CheckTargets(const FamilyInfo& family, const AdapterRequest& asked, RefusalList& refusals) {
  const std::vector<std::string> full = absl::StrSplit(family.adapter_targets, ' ');
  if (asked.targets.empty()) return;
  for (const std::string& target : asked.targets) {
    if (std::find(full.begin(), full.end(), target) != full.end()) continue;
    refusals.Add(RefusalCode::kUnknownIdentifier, "adapter.targets",
                 UnknownNameText("adapter target", target, full));
  }
  for (const std::string& target : full) {
    if (std::find(asked.targets.begin(), asked.targets.end(), target) != asked.targets.end()) {
      continue;
    }
    refusals.Add(RefusalCode::kPartialFamily, "adapter.targets",
                 absl::StrCat("'", target, "' is missing: the lane of ", family.name,
                              " adapts all of ", absl::StrJoin(full, ", "), " or nothing"));
  }
}

void ApplySwiGlu(const SitePlan& plan, const ResolveOptions& options, Contract& contract,
                 RefusalList& refusals) {
  if (options.swiglu.empty()) return;
  const std::string id = CanonicalName(AliasKind::kProgram, options.swiglu);
  if (id != kOneRound && id != kTwoRound) {
    refusals.Add(RefusalCode::kUnknownIdentifier, "swiglu",
                 FindProgram(id) == nullptr
                     ? UnknownNameText("SwiGLU program", options.swiglu,
                                       {"one_round", "two_round", std::string(kOneRound),
                                        std::string(kTwoRound)})
                     : absl::StrCat("'", options.swiglu, "' cannot be chosen for a site; say ",
                                    kOneRound, " or ", kTwoRound));
    return;
  }
  if (!plan.plain_mlp) {
    refusals.Add(RefusalCode::kUnfitActivation, "swiglu",
                 absl::StrCat("the model's MLP is not a plain SwiGLU, so there is no site for ", id,
                              "; leave --swiglu out"));
    return;
  }
  // Routed experts keep their serving-paired program in every contract.
  for (const char* name : {"dense_mlp", "shared_expert"}) {
    const auto it = contract.sites.find(name);
    if (it != contract.sites.end()) it->second.program = id;
  }
}

void ApplyLocalPartial(const SitePlan& plan, const ResolveOptions& options, Contract& contract,
                       RefusalList& refusals) {
  std::string name(plan.family->default_local_partial);
  if (!options.local_partial.empty()) {
    const bool has_site = !name.empty();
    name = CanonicalName(AliasKind::kLocalPartial, options.local_partial);
    std::vector<std::string> known;
    for (const LocalPartialInfo& info : LocalPartials()) {
      if (info.option == options.local_partial) name = std::string(info.name);
      known.insert(known.end(), {std::string(info.option), std::string(info.name)});
    }
    for (const AliasInfo& alias : Aliases()) {
      if (alias.kind == AliasKind::kLocalPartial) known.emplace_back(alias.alias);
    }
    if (FindLocalPartial(name) == nullptr) {
      refusals.Add(RefusalCode::kUnknownIdentifier, "local_partial",
                   UnknownNameText("local-partial policy", options.local_partial, known));
      return;
    }
    if (!has_site) {
      refusals.Add(RefusalCode::kBadConfig, "local_partial",
                   absl::StrCat("family ", plan.family->name,
                                " has no moe_leaf and moe_fold site "
                                "for '",
                                options.local_partial,
                                "' to replace; leave "
                                "--local-partial out, or ask for the exact family with --exact"));
      return;
    }
  }
  const LocalPartialInfo* policy = FindLocalPartial(name);
  if (policy == nullptr) return;
  const uint64_t contributors =
      plan.family->contributors > 0 ? plan.family->contributors : contract.parallel.ep;
  contract.local_partial = LocalPartial{std::string(policy->leaf), std::string(policy->fold),
                                        contributors, AscendingOrderDigest(contributors)};
  contract.sites["moe_leaf"].program = std::string(policy->leaf);
  contract.sites["moe_fold"].program = std::string(policy->fold);
  contract.sites["moe_fold"].geometry["contributors"] = contributors;
}

void ApplyAdapters(const SitePlan& plan, const ResolveOptions& options, Contract& contract,
                   RefusalList& refusals) {
  const AdapterRequest& asked = options.adapter;
  const bool wanted = plan.lane == Lane::kActiveLora || asked.merged;
  if (!wanted) {
    if (asked.rank || asked.alpha || !asked.targets.empty()) {
      refusals.Add(RefusalCode::kBadConfig, "adapter",
                   "rank, alpha and targets belong to the lane active_lora; ask for it");
    }
    return;
  }
  const FamilyInfo& family = *plan.family;
  if (asked.trainable_base) {
    refusals.Add(RefusalCode::kOperandNotAdmitted, "adapter.trainable_base",
                 "the base of an adapter lane is frozen and hashed; freeze it, or ask for the "
                 "lane full_param");
  }
  if (family.adapter_targets.empty()) return;  // family none: no adapter program, no claim
  const uint64_t rank = asked.rank.value_or(std::max<uint64_t>(family.adapter_rank, 1));
  if (rank == 0 || (family.adapter_rank > 0 && rank != family.adapter_rank)) {
    refusals.Add(RefusalCode::kOperandNotAdmitted, "adapter.rank",
                 absl::StrCat("expected rank ", std::max<uint64_t>(family.adapter_rank, 1), " for ",
                              family.name, ", got ", rank));
    return;
  }
  CheckTargets(family, asked, refusals);
  Lora lora;
  lora.kind = asked.merged ? LoraKind::kMerged : LoraKind::kActive;
  lora.version = asked.merged ? 1 : 2;
  lora.rank = rank;
  lora.alpha = asked.alpha.value_or(static_cast<float>(rank));
  lora.targets = absl::StrSplit(family.adapter_targets, ' ');
  for (const AdapterLaneInfo& lane : AdapterLanes()) {
    if (asked.merged || !lane.current || lane.family != family.name) continue;
    lora.lanes[std::string(lane.site)] = std::string(lane.id);
  }
  Site& site = contract.sites["lora"];
  site.program = absl::StrCat("lora/", LoraName(lora));
  site.geometry["rank"] = rank;
  site.constants["scale"] = lora.alpha / static_cast<float>(rank);
  contract.lora = std::move(lora);
}

}  // namespace

void ApplyOverrides(const SitePlan& plan, const ResolveOptions& options, Contract& contract,
                    RefusalList& refusals) {
  ApplySwiGlu(plan, options, contract, refusals);
  ApplyLocalPartial(plan, options, contract, refusals);
  ApplyAdapters(plan, options, contract, refusals);
}

}  // namespace lockstep
