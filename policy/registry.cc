#include "policy/registry.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "policy/nearest.h"

namespace lockstep {
namespace {

// An unknown name is quoted no longer than this.
constexpr size_t kMaxQuotedBytes = 128;

// "qwen3_5" covers itself and "qwen3_5_text", not "qwen3_50".
bool StemCovers(absl::string_view stem, absl::string_view type) {
  return !stem.empty() && (type == stem || absl::StartsWith(type, absl::StrCat(stem, "_")));
}

}  // namespace

absl::string_view ProgramKindName(ProgramKind kind) {
  switch (kind) {
    case ProgramKind::kForward:
      return "forward";
    case ProgramKind::kVjp:
      return "vjp";
    case ProgramKind::kDigest:
      return "digest";
    case ProgramKind::kDelta:
      return "delta";
    case ProgramKind::kRetired:
      return "retired";
  }
  return "unknown";
}

const ProgramInfo* FindProgram(absl::string_view id) {
  for (const ProgramInfo& program : Programs()) {
    if (program.id == id) return &program;
  }
  return nullptr;
}

const RealisationInfo* FindRealisation(absl::string_view id, absl::string_view dtype) {
  for (const RealisationInfo& realisation : Realisations()) {
    if (realisation.id == id && realisation.dtype == dtype) return &realisation;
  }
  return nullptr;
}

const LocalPartialInfo* FindLocalPartial(absl::string_view name) {
  for (const LocalPartialInfo& policy : LocalPartials()) {
    if (policy.name == name) return &policy;
  }
  return nullptr;
}

const LocalPartialInfo* FindLocalPartial(absl::string_view leaf, absl::string_view fold) {
  for (const LocalPartialInfo& policy : LocalPartials()) {
    if (policy.leaf == leaf && policy.fold == fold) return &policy;
  }
  return nullptr;
}

const AdapterLaneInfo* FindAdapterLane(absl::string_view id) {
  for (const AdapterLaneInfo& lane : AdapterLanes()) {
    if (lane.id == id) return &lane;
  }
  return nullptr;
}

const FamilyInfo* FindFamily(absl::string_view name) {
  for (const FamilyInfo& family : Families()) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

const FamilySite* FindFamilySite(const FamilyInfo& family, absl::string_view site) {
  for (const FamilySite& row : family.sites) {
    if (row.site == site) return &row;
  }
  return nullptr;
}

const ModelTypeInfo* FindModelType(absl::string_view model_type) {
  const ModelTypeInfo* best = nullptr;  // the longest stem: "qwen3_moe" before "qwen3"
  for (const ModelTypeInfo& row : ModelTypes()) {
    if (!StemCovers(row.model_type, model_type)) continue;
    if (best == nullptr || row.model_type.size() > best->model_type.size()) best = &row;
  }
  return best;
}

const FamilyInfo* FamilyOfModelType(absl::string_view model_type, bool has_experts) {
  const FamilyInfo* best = nullptr;
  for (const FamilyInfo& family : Families()) {
    if (!StemCovers(family.model_type_stem, model_type)) continue;
    if (best == nullptr || family.model_type_stem.size() > best->model_type_stem.size()) {
      best = &family;
    }
  }
  if (best != nullptr && best->name == "qwen3_5_dense" && has_experts) {
    return FindFamily("qwen3_5_moe");
  }
  return best;
}

const FamilyInfo* FamilyOfArchitecture(absl::string_view architecture) {
  for (const FamilyInfo& family : Families()) {  // qwen3_5_moe comes before qwen3_5_dense
    if (family.architecture_stem.empty()) continue;
    if (!absl::StartsWith(architecture, family.architecture_stem)) continue;
    const absl::string_view rest = architecture.substr(family.architecture_stem.size());
    for (absl::string_view head : {"For", "Model", "Text", "MTP", "PreTrained"}) {
      if (absl::StartsWith(rest, head)) return &family;
    }
  }
  return nullptr;
}

bool ProgramStandsAt(const ProgramInfo& program, absl::string_view site) {
  for (absl::string_view known : absl::StrSplit(program.sites, ' ', absl::SkipEmpty())) {
    if (known == site) return true;
  }
  return false;
}

std::string CanonicalName(AliasKind kind, absl::string_view name) {
  for (const AliasInfo& alias : Aliases()) {
    if (alias.kind == kind && alias.alias == name) return std::string(alias.target);
  }
  return std::string(name);
}

std::vector<std::string> AllIdentifiers() {
  std::vector<std::string> all;
  for (const ProgramInfo& program : Programs()) all.emplace_back(program.id);
  for (const RealisationInfo& realisation : Realisations()) {
    if (realisation.dtype == "bf16") all.emplace_back(realisation.id);
  }
  for (const LocalPartialInfo& policy : LocalPartials()) all.emplace_back(policy.name);
  for (const AdapterLaneInfo& lane : AdapterLanes()) all.emplace_back(lane.id);
  for (const AliasInfo& alias : Aliases()) all.emplace_back(alias.alias);
  return all;
}

std::string UnknownNameText(absl::string_view what, absl::string_view unknown,
                            const std::vector<std::string>& known) {
  const std::vector<std::string> nearest = NearestNames(unknown, known);
  return absl::StrCat("'", unknown.substr(0, kMaxQuotedBytes), "' is not a known ", what,
                      "; the nearest known ones are '", absl::StrJoin(nearest, "', '"), "'");
}

std::string EffectOf(absl::string_view a, absl::string_view b) {
  for (const EffectInfo& effect : Effects()) {
    if ((effect.a == a && effect.b == b) || (effect.a == b && effect.b == a)) {
      return std::string(effect.text);
    }
  }
  return "no figure is recorded for this pair; any output of the site may differ";
}

}  // namespace lockstep
