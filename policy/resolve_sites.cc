#include "policy/resolve_sites.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep {
namespace {

constexpr uint64_t kGdnGrid = 64;  // tokens
constexpr uint64_t kVocabularyTile = 128;
constexpr float kDefaultEps = 1e-6f;  // what the model classes take when the config is silent

bool IsExact(const SitePlan& plan) { return plan.family->name != kFamilyNone; }

uint64_t Experts(const ConfigFacts& facts) {
  for (absl::string_view key : {"num_experts", "n_routed_experts", "num_local_experts"}) {
    if (const uint64_t experts = facts.Size(key)) return experts;
  }
  return 0;
}

uint64_t SharedIntermediate(const ConfigFacts& facts) {
  if (const uint64_t stated = facts.Size("shared_expert_intermediate_size")) return stated;
  const bool counted = facts.sizes.count("n_shared_experts") > 0;
  const uint64_t shared = counted ? facts.Size("n_shared_experts") : 0;
  return std::min(shared, kMaxDegree) * facts.Size("moe_intermediate_size");
}

bool SiteExists(const FamilySite& row, const ConfigFacts& facts) {
  switch (row.need) {
    case SiteNeed::kAlways:
      return true;
    case SiteNeed::kAttentionLayers:
      return facts.has_attention;
    case SiteNeed::kLinearAttentionLayers:
      return facts.has_linear_attention;
    case SiteNeed::kExperts:
      return Experts(facts) > 0;
    case SiteNeed::kSharedExpert:
      return SharedIntermediate(facts) > 0;
  }
  return false;
}

// Leaves out what the config does not say.
void Put(Site& site, const std::string& name, uint64_t value) {
  if (value > 0) site.geometry[name] = value;
}

void PutMlpGeometry(const FamilySite& row, const SitePlan& plan, const ConfigFacts& facts,
                    const Parallel& parallel, Site& site, RefusalList& refusals) {
  const bool routed = row.site == "routed_experts";
  const uint64_t intermediate = row.site == "dense_mlp"       ? facts.Size("intermediate_size")
                                : row.site == "shared_expert" ? SharedIntermediate(facts)
                                                              : facts.Size("moe_intermediate_size");
  Put(site, "hidden", facts.Size("hidden_size"));
  Put(site, "intermediate", intermediate);
  if (routed) {
    Put(site, "experts", Experts(facts));
    Put(site, "ep", parallel.ep);
    return;
  }
  const uint64_t tp = row.tp > 0 ? row.tp : parallel.tp;
  Put(site, "tp", tp);
  if (intermediate % tp == 0) {
    Put(site, "shard", intermediate / tp);
  } else if (IsExact(plan)) {
    refusals.Add(RefusalCode::kGeometryNotAdmitted, absl::StrCat("sites.", row.site),
                 absl::StrCat("an intermediate size of ", intermediate, " does not divide over tp ",
                              tp, ": every ordinal owns intermediate/tp rows; choose another tp"));
  }
}

void PutSiteNumbers(const FamilySite& row, const SitePlan& plan, const ConfigFacts& facts,
                    const Parallel& parallel, Site& site) {
  const auto constant = [&](const char* key, float fallback) {
    const auto it = facts.constants.find(key);
    return it == facts.constants.end() ? fallback : it->second;
  };
  if (row.site == "norm") {
    Put(site, "hidden", facts.Size("hidden_size"));
    const bool by_type = facts.type_info != nullptr && facts.type_info->zero_centered_norm;
    site.geometry["zero_centered"] = plan.family->zero_centered_norm || by_type ? 1 : 0;
    site.constants["eps"] = constant("rms_norm_eps", kDefaultEps);
  } else if (row.site == "lm_head") {
    Put(site, "hidden", facts.Size("hidden_size"));
    Put(site, "vocab", facts.Size("vocab_size"));
    Put(site, "tile", kVocabularyTile);
  } else if (row.site == "attention") {
    Put(site, "heads", facts.Size("num_attention_heads"));
    Put(site, "kv_heads", facts.Size("num_key_value_heads"));
    Put(site, "head_dim", facts.Size("head_dim"));
  } else if (row.site == "rope") {
    Put(site, "head_dim", facts.Size("head_dim"));
    site.constants["partial_rotary_factor"] = constant("partial_rotary_factor", 1.0f);
    if (facts.constants.count("rope_theta") > 0)
      site.constants["theta"] = constant("rope_theta", 0);
  } else if (row.site == "gdn_prefill" || row.site == "gdn_decode") {
    Put(site, "k_heads", facts.Size("linear_num_key_heads"));
    Put(site, "v_heads", facts.Size("linear_num_value_heads"));
    Put(site, "k_dim", facts.Size("linear_key_head_dim"));
    Put(site, "v_dim", facts.Size("linear_value_head_dim"));
    Put(site, "conv_kernel", facts.Size("linear_conv_kernel_dim"));
    if (row.site == "gdn_prefill") {
      Put(site, "cp", parallel.cp);
      Put(site, "grid", kGdnGrid);
      if (parallel.cp > 1) site.program = "gdn_cp/relay@v1";
    }
  } else if (row.site == "router") {
    Put(site, "experts", Experts(facts));
    Put(site, "top_k", facts.Size("num_experts_per_tok"));
  } else if (row.site == "moe_leaf") {
    site.constants["scale"] = constant("routed_scaling_factor", 1.0f);
  }
}

// The family's own, or what was asked for where the contract leaves a choice.
Parallel Degrees(const SitePlan& plan, const ConfigFacts& facts, const ResolveOptions& options,
                 RefusalList& refusals) {
  const FamilyInfo& family = *plan.family;
  Parallel parallel{options.tp.value_or(family.default_tp), options.ep.value_or(family.default_ep),
                    options.cp.value_or(1), options.dp.value_or(1)};
  const auto refuse = [&](const char* key, const std::string& why) {
    refusals.Add(RefusalCode::kGeometryNotAdmitted, key, why);
  };
  const std::pair<const char*, uint64_t*> all[] = {
      {"tp", &parallel.tp}, {"ep", &parallel.ep}, {"cp", &parallel.cp}, {"dp", &parallel.dp}};
  for (const auto& [name, degree] : all) {
    if (*degree >= 1 && *degree <= kMaxDegree) continue;
    refuse(name, absl::StrCat("expected a degree of 1 to ", kMaxDegree, ", got ", *degree));
    *degree = 1;
  }
  if (!IsExact(plan)) return parallel;
  if (family.tp_pinned && parallel.tp != family.default_tp) {
    refuse("tp", absl::StrCat(family.name, " runs its shared expert at tp ", family.default_tp,
                              " and its dense MLP at tp 1, got tp ", parallel.tp,
                              "; another degree gives other bytes, so leave --tp out or say ",
                              family.default_tp));
    parallel.tp = family.default_tp;
  }
  const bool moe = !family.default_local_partial.empty();
  const uint64_t experts = Experts(facts);
  if (!moe && parallel.ep > 1) {
    refuse("ep", absl::StrCat(family.name, " has no experts to split; leave --ep out"));
  } else if (family.contributors > 0 && family.contributors % parallel.ep != 0) {
    refuse("ep", absl::StrCat("the ", family.contributors, " logical contributors of ", family.name,
                              " do not divide over ep ", parallel.ep));
  } else if (moe && family.contributors == 0 && experts % parallel.ep != 0) {
    refuse("ep", absl::StrCat(experts, " experts do not divide over ep ", parallel.ep));
  }
  if (!family.has_gdn && parallel.cp > 1) {
    refuse("cp", absl::StrCat("no program of ", family.name,
                              " splits a sequence over ranks; leave --cp out"));
  }
  const uint64_t unit = 2 * kGdnGrid * parallel.cp;  // zigzag: 2 * cp segments
  if (family.has_gdn && parallel.cp > 1 && options.sequence_tokens &&
      *options.sequence_tokens % unit != 0) {
    refusals.Add(RefusalCode::kOperandNotAdmitted, "sequence_tokens",
                 absl::StrCat("a sequence of ", *options.sequence_tokens, " tokens over cp ",
                              parallel.cp, " is cut off the ", kGdnGrid,
                              "-token grid of the gated delta net; pad to a multiple of ", unit));
  }
  return parallel;
}

// Names each key that differs from the nearest admitted geometry.
void CheckAdmittedGeometry(const SitePlan& plan, const ConfigFacts& facts, RefusalList& refusals) {
  const FamilyInfo& family = *plan.family;
  if (family.geometries.empty()) return;
  const std::pair<const char*, uint64_t AdmittedGeometry::*> keys[] = {
      {"hidden_size", &AdmittedGeometry::hidden},
      {"intermediate_size", &AdmittedGeometry::dense_intermediate},
      {"moe_intermediate_size", &AdmittedGeometry::moe_intermediate}};
  std::vector<std::string> listed;
  std::vector<std::pair<const char*, uint64_t>> wrong;
  for (const AdmittedGeometry& row : family.geometries) {
    listed.push_back(absl::StrCat("(", row.hidden, ", ", row.dense_intermediate, ", ",
                                  row.moe_intermediate, ")"));
    std::vector<std::pair<const char*, uint64_t>> differing;
    for (const auto& [key, member] : keys) {
      if (facts.Size(key) != row.*member) differing.emplace_back(key, row.*member);
    }
    if (listed.size() == 1 || differing.size() < wrong.size()) wrong = differing;
  }
  const std::string admitted =
      absl::StrCat("; admitted (hidden, dense, moe intermediate): ", absl::StrJoin(listed, ", "));
  for (const auto& [key, expected] : wrong) {
    const uint64_t got = facts.Size(key);
    refusals.Add(RefusalCode::kGeometryNotAdmitted, absl::StrCat(facts.prefix, key),
                 absl::StrCat("expected ", expected, " for ", family.name, ", got ",
                              got == 0 ? "nothing" : absl::StrCat(got), admitted));
  }
  if (facts.sizes.count("n_shared_experts") > 0 && facts.Size("n_shared_experts") != 1) {
    refusals.Add(RefusalCode::kGeometryNotAdmitted, absl::StrCat(facts.prefix, "n_shared_experts"),
                 absl::StrCat("expected 1 shared expert for ", family.name, ", got ",
                              facts.Size("n_shared_experts"), admitted));
  }
}

const RealisationInfo* Realisation(const ResolveOptions& options, RefusalList& refusals) {
  const std::string id =
      options.realisation.empty() ? std::string(kDefaultRealisation) : options.realisation;
  const RealisationInfo* info = FindRealisation(id, "bf16");
  if (info == nullptr) {
    std::vector<std::string> ids;
    for (const RealisationInfo& known : Realisations()) ids.emplace_back(known.id);
    refusals.Add(RefusalCode::kUnknownIdentifier, "realisation",
                 UnknownNameText("SiLU realisation", id, ids));
  }
  return info;
}

}  // namespace

Contract BuildContract(const SitePlan& plan, const ConfigFacts& facts,
                       const ResolveOptions& options, RefusalList& refusals) {
  Contract contract;
  contract.family = std::string(plan.family->name);
  contract.parallel = Degrees(plan, facts, options, refusals);
  contract.level = options.level.value_or(IsExact(plan) ? Level::kTokens : Level::kWeights);
  contract.tolerance = options.tolerance;
  if (IsExact(plan)) {
    for (const Unfit& bad : facts.bad_numbers) {
      refusals.Add(RefusalCode::kBadConfig, bad.path, bad.message);
    }
    CheckAdmittedGeometry(plan, facts, refusals);
  }
  const RealisationInfo* realisation = Realisation(options, refusals);
  for (const FamilySite& row : plan.family->sites) {
    if (!SiteExists(row, facts)) continue;
    Site& site = contract.sites[std::string(row.site)];
    if (!row.takes_realisation) {
      site.program = std::string(row.program);
      PutSiteNumbers(row, plan, facts, contract.parallel, site);
    } else if (plan.plain_mlp && realisation != nullptr) {
      site.program = std::string(row.program);
      site.realisation = std::string(realisation->id);
      site.realisation_digest = DigestFromHex(realisation->digest_hex).value();
      PutMlpGeometry(row, plan, facts, contract.parallel, site, refusals);
    }
  }
  ApplyOverrides(plan, options, contract, refusals);
  return contract;
}

}  // namespace lockstep
