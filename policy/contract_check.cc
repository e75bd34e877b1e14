// What makes a contract well formed beyond its JSON shape: known names, programs where they
// can stand, parts that do not contradict each other, limits.

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "policy/contract.h"
#include "policy/refusal_list.h"
#include "policy/registry.h"
#include "policy/utf8.h"

namespace lockstep {
namespace {

bool IsSwiGlu(absl::string_view program) { return absl::StartsWith(program, "swiglu/"); }

std::vector<std::string> ProgramsAt(absl::string_view site) {
  std::vector<std::string> ids;
  for (const ProgramInfo& program : Programs()) {
    if (program.kind == ProgramKind::kForward && ProgramStandsAt(program, site)) {
      ids.emplace_back(program.id);
    }
  }
  return ids;
}

void CheckName(const std::string& name, const std::string& key, RefusalList& out) {
  if (name.size() > kMaxNameBytes) {
    out.Add(RefusalCode::kLimitExceeded, key.substr(0, kMaxNameBytes),
            absl::StrCat("expected at most ", kMaxNameBytes, " bytes, got ", name.size()));
  } else if (!IsValidUtf8(name)) {
    out.Add(RefusalCode::kBadConfig, "", "a string of the contract is not UTF-8");
  }
}

// Sites and their numbers are named in plain words, so that a path of them reads one way.
void CheckKey(const std::string& key, const std::string& path, RefusalList& out) {
  const bool plain = !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
  if (plain && key.size() <= kMaxNameBytes) return;
  out.Add(RefusalCode::kBadConfig, path,
          absl::StrCat("expected names of 1 to ", kMaxNameBytes,
                       " lower-case letters, digits and underscores here"));
}

void CheckRealisation(const Site& site, const std::string& path, RefusalList& out) {
  if (!IsSwiGlu(site.program)) {
    if (!site.realisation.empty() || site.realisation_digest) {
      out.Add(RefusalCode::kBadConfig, path + ".realisation",
              absl::StrCat("'", site.program, "' takes no SiLU realisation; leave it out"));
    }
    return;
  }
  if (site.realisation.empty() || !site.realisation_digest) {
    out.Add(RefusalCode::kBadConfig, path + ".realisation",
            "a SwiGLU site states its SiLU realisation and the digest of its table");
    return;
  }
  if (absl::StartsWith(site.realisation, kUserRealisationPrefix)) return;
  const RealisationInfo* known = FindRealisation(site.realisation, "bf16");
  if (known == nullptr) {
    std::vector<std::string> ids;
    for (const RealisationInfo& info : Realisations()) ids.emplace_back(info.id);
    out.Add(RefusalCode::kUnknownIdentifier, path + ".realisation",
            absl::StrCat(UnknownNameText("SiLU realisation", site.realisation, ids),
                         "; a recorded table of your own is named ", kUserRealisationPrefix,
                         "NAME@v1"));
  } else if (ToHex(*site.realisation_digest) != known->digest_hex) {
    out.Add(RefusalCode::kBadConfig, path + ".realisation_digest",
            absl::StrCat(site.realisation, " is the table ", known->digest_hex, ", not ",
                         ToHex(*site.realisation_digest),
                         "; one name never means two tables, so give the other one its own name"));
  }
}

void CheckSite(const std::string& name, const Site& site, RefusalList& out) {
  const std::string path = absl::StrCat("sites.", name);
  CheckKey(name, "sites", out);
  CheckName(site.program, path, out);
  CheckName(site.realisation, path, out);
  if (!site.program.empty()) {
    const ProgramInfo* program = FindProgram(site.program);
    if (program == nullptr) {
      std::vector<std::string> ids = ProgramsAt(name);
      if (ids.empty()) ids = AllIdentifiers();
      out.Add(RefusalCode::kUnknownIdentifier, path + ".program",
              UnknownNameText("program", site.program, ids));
    } else if (program->kind != ProgramKind::kForward && program->kind != ProgramKind::kRetired) {
      out.Add(RefusalCode::kBadConfig, path + ".program",
              absl::StrCat(site.program, " is a ", ProgramKindName(program->kind),
                           " program and decides no byte of a forward pass"));
    } else if (!ProgramStandsAt(*program, name)) {
      out.Add(RefusalCode::kBadConfig, path + ".program",
              absl::StrCat(site.program, " cannot stand at ", name, "; it belongs to ",
                           program->sites));
    }
  }
  CheckRealisation(site, path, out);
  if (site.geometry.size() > kMaxNamesPerSite || site.constants.size() > kMaxNamesPerSite) {
    out.Add(RefusalCode::kLimitExceeded, path,
            absl::StrCat("expected at most ", kMaxNamesPerSite, " numbers a site"));
  }
  for (const auto& [key, value] : site.geometry) {
    CheckKey(key, path, out);
    if (value > kMaxGeometry) {
      out.Add(RefusalCode::kLimitExceeded, absl::StrCat(path, ".geometry.", key),
              absl::StrCat("expected at most ", kMaxGeometry, ", got ", value));
    }
  }
  for (const auto& [key, value] : site.constants) {
    CheckKey(key, path, out);
    if (!std::isfinite(value)) {
      out.Add(RefusalCode::kBadConfig, absl::StrCat(path, ".constants.", key),
              "expected a finite float32");
    }
  }
}

void CheckLocalPartial(const Contract& contract, RefusalList& out) {
  const Site* leaf = FindSite(contract, "moe_leaf");
  const Site* fold = FindSite(contract, "moe_fold");
  if (!contract.local_partial) {
    if (leaf != nullptr || fold != nullptr) {
      out.Add(RefusalCode::kBadConfig, "local_partial",
              "a contract with the sites moe_leaf and moe_fold states its local-partial policy");
    }
    return;
  }
  const LocalPartial& policy = *contract.local_partial;
  CheckName(policy.leaf, "local_partial.leaf", out);
  CheckName(policy.fold, "local_partial.fold", out);
  if (leaf == nullptr || fold == nullptr || leaf->program != policy.leaf ||
      fold->program != policy.fold) {
    out.Add(RefusalCode::kBadConfig, "local_partial",
            absl::StrCat("its programs (", policy.leaf, ", ", policy.fold,
                         ") must be those of the sites moe_leaf and moe_fold"));
  }
  if (policy.contributors == 0 || policy.contributors > kMaxDegree) {
    out.Add(RefusalCode::kLimitExceeded, "local_partial.contributors",
            absl::StrCat("expected 1 to ", kMaxDegree, ", got ", policy.contributors));
  } else if (policy.order_digest != AscendingOrderDigest(policy.contributors)) {
    out.Add(RefusalCode::kOperandNotAdmitted, "local_partial.order_digest",
            absl::StrCat("the contributor order is not 0..", policy.contributors - 1,
                         " ascending, the only order the exact folds have; sort the "
                         "contributors by logical ordinal"));
  }
}

void CheckLora(const Contract& contract, RefusalList& out) {
  const Lora& lora = contract.lora;
  if (lora.kind == LoraKind::kNone) {
    if (lora != Lora{}) {
      out.Add(RefusalCode::kBadConfig, "lora", "without adapters nothing else is stated");
    }
    return;
  }
  const std::string program = absl::StrCat("lora/", LoraName(lora));
  if (FindProgram(program) == nullptr) {
    out.Add(RefusalCode::kUnknownIdentifier, "lora.kind",
            UnknownNameText("adapter program", program,
                            {"lora/active@v1", "lora/active@v2", "lora/merged@v1"}));
  }
  if (lora.rank == 0 || lora.rank > kMaxGeometry || !std::isfinite(lora.alpha)) {
    out.Add(RefusalCode::kBadConfig, "lora.rank", "expected a rank of at least 1, a finite alpha");
  }
  const bool sorted = std::is_sorted(lora.targets.begin(), lora.targets.end());
  const bool unique =
      std::adjacent_find(lora.targets.begin(), lora.targets.end()) == lora.targets.end();
  if (lora.targets.empty() || lora.targets.size() > kMaxSites || !sorted || !unique) {
    out.Add(RefusalCode::kBadConfig, "lora.targets",
            absl::StrCat("expected 1 to ", kMaxSites, " names, sorted, none twice"));
  }
  for (const std::string& target : lora.targets) CheckName(target, "lora.targets", out);
  for (const auto& [site, lane] : lora.lanes) {
    CheckKey(site, "lora.lanes", out);
    const AdapterLaneInfo* known = FindAdapterLane(lane);
    if (known == nullptr) {
      std::vector<std::string> ids;
      for (const AdapterLaneInfo& info : AdapterLanes()) ids.emplace_back(info.id);
      out.Add(RefusalCode::kUnknownIdentifier, absl::StrCat("lora.lanes.", site),
              UnknownNameText("adapter contract", lane, ids));
    } else if (known->site != site) {
      out.Add(RefusalCode::kBadConfig, absl::StrCat("lora.lanes.", site),
              absl::StrCat(lane, " is the contract of ", known->site));
    }
  }
}

void CheckScoring(const Contract& contract, RefusalList& out) {
  const Scoring& scoring = contract.scoring;
  CheckName(scoring.logprobs, "scoring.logprobs", out);
  if (scoring != Scoring{}) {
    out.Add(RefusalCode::kBadConfig, "scoring",
            "expected temperature 1, logprobs 'decision_float32' and no top-k or top-p "
            "renormalisation: other log-probabilities are not those of the policy");
  }
  if (!contract.tolerance) return;
  if (contract.family != kFamilyNone) {
    out.Add(RefusalCode::kBadConfig, "tolerance",
            "only family 'none' may set a tolerance; an exact family is judged bit for bit");
  }
  const Tolerance& tolerance = *contract.tolerance;
  if (!std::isfinite(tolerance.max_abs_delta) || !std::isfinite(tolerance.mean_k3) ||
      tolerance.max_abs_delta < 0 || tolerance.mean_k3 < 0) {
    out.Add(RefusalCode::kBadConfig, "tolerance", "expected finite, non-negative limits");
  }
}

}  // namespace

std::vector<Refusal> CheckContract(const Contract& contract) {
  RefusalList out;
  const FamilyInfo* family = FindFamily(contract.family);
  if (family == nullptr) {
    std::vector<std::string> names;
    for (const FamilyInfo& info : Families()) names.emplace_back(info.name);
    out.Add(RefusalCode::kUnknownIdentifier, "family",
            UnknownNameText("family", contract.family, names));
  }
  const Parallel& parallel = contract.parallel;
  for (uint64_t degree : {parallel.tp, parallel.ep, parallel.cp, parallel.dp}) {
    if (degree >= 1 && degree <= kMaxDegree) continue;
    out.Add(RefusalCode::kLimitExceeded, "parallel",
            absl::StrCat("expected degrees of 1 to ", kMaxDegree, ", got ", degree));
  }
  if (contract.sites.size() > kMaxSites) {
    out.Add(RefusalCode::kLimitExceeded, "sites", absl::StrCat("expected at most ", kMaxSites));
  }
  for (const auto& [name, site] : contract.sites) CheckSite(name, site, out);
  if (family != nullptr && family->name != kFamilyNone) {
    for (const FamilySite& row : family->sites) {
      if (row.need != SiteNeed::kAlways) continue;
      const Site* site = FindSite(contract, row.site);
      if (site != nullptr && !site->program.empty()) continue;
      out.Add(RefusalCode::kBadConfig, absl::StrCat("sites.", row.site),
              absl::StrCat("family ", family->name, " states a program at this site"));
    }
  }
  CheckLocalPartial(contract, out);
  CheckLora(contract, out);
  CheckScoring(contract, out);
  CheckName(contract.engine.trainer, "engine.trainer", out);
  CheckName(contract.engine.sampler, "engine.sampler", out);
  return std::move(out).Take();
}

}  // namespace lockstep
