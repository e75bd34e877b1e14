#include "policy/agreement.h"

#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "policy/agreement_text.h"
#include "policy/contract_json.h"
#include "policy/refusal_list.h"
#include "policy/registry.h"

namespace lockstep {
namespace {

using nlohmann::json;

// Path -> value, one entry for each scalar or array of the contract's JSON.
using Leaves = std::map<std::string, json>;

void Flatten(const json& value, const std::string& path, Leaves& leaves) {
  if (!value.is_object()) {
    leaves[path] = value;
    return;
  }
  for (const auto& item : value.items()) {
    Flatten(item.value(), path.empty() ? item.key() : absl::StrCat(path, ".", item.key()), leaves);
  }
}

Leaves LeavesOf(const Contract& contract, ContractForm form) {
  Leaves leaves;
  Flatten(ContractJson(contract, form), "", leaves);
  return leaves;
}

std::string Printed(const Leaves& leaves, const std::string& path) {
  const auto it = leaves.find(path);
  if (it == leaves.end() || it->second.is_null()) return "";
  if (it->second.is_string()) return it->second.get<std::string>();
  return it->second.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

Difference DifferenceOf(RefusalCode code, const PartValues& values) {
  return {code,
          values.path,
          Described(values.trainer),
          Described(values.sampler),
          ChangesOf(values),
          RemedyOf(values)};
}

// Parts that are one thing to a person although they are several keys.
std::string PartOf(const std::string& path) {
  for (const char* whole : {"local_partial", "tolerance", "engine"}) {
    if (path == whole || absl::StartsWith(path, absl::StrCat(whole, "."))) return whole;
  }
  return path;
}

class ContractComparison {
 public:
  ContractComparison(const Contract& trainer, const Contract& sampler)
      : trainer_(trainer),
        sampler_(sampler),
        trainer_shown_(LeavesOf(trainer, ContractForm::kReadable)),
        sampler_shown_(LeavesOf(sampler, ContractForm::kReadable)) {}

  std::vector<Difference> Run() {
    const Leaves trainer = LeavesOf(trainer_, ContractForm::kCanonical);
    const Leaves sampler = LeavesOf(sampler_, ContractForm::kCanonical);
    std::set<std::string> parts;  // each once, in the order of their paths
    for (const auto& [path, value] : trainer) {
      const auto other = sampler.find(path);
      if (other == sampler.end() || other->second != value) parts.insert(PartAt(path));
    }
    for (const auto& [path, value] : sampler) {
      if (trainer.count(path) == 0) parts.insert(PartAt(path));
    }
    if (parts.count("family") > 0) Add("family");  // it explains the others
    for (const std::string& part : parts) {
      if (part != "family" && !CoveredByAnother(part, parts)) Add(part);
    }
    if (trainer_.layout && sampler_.layout && *trainer_.layout != *sampler_.layout) {
      found_.push_back(DifferenceOf(RefusalCode::kManifestMismatch,
                                    {"layout", ToHex(*trainer_.layout), ToHex(*sampler_.layout)}));
    }
    return std::move(found_);
  }

 private:
  // A site that only one side has is one difference, its program.
  std::string PartAt(const std::string& path) const {
    if (absl::StartsWith(path, "lora") &&
        (trainer_.lora.kind == LoraKind::kNone || sampler_.lora.kind == LoraKind::kNone)) {
      return "lora";
    }
    for (const Contract* contract : {&trainer_, &sampler_}) {
      const Contract& other = contract == &trainer_ ? sampler_ : trainer_;
      for (const auto& [name, site] : contract->sites) {
        const std::string site_path = absl::StrCat("sites.", name);
        if (other.sites.count(name) == 0 && absl::StartsWith(path, absl::StrCat(site_path, "."))) {
          return absl::StrCat(site_path, ".program");
        }
      }
    }
    return PartOf(path);
  }

  // The digest follows from the realisation's name, a shard from the degree.
  static bool CoveredByAnother(const std::string& part, const std::set<std::string>& parts) {
    const absl::string_view suffix = "_digest";
    return absl::EndsWith(part, ".realisation_digest") &&
           parts.count(part.substr(0, part.size() - suffix.size())) > 0;
  }

  void Add(const std::string& part) {
    PartValues values{part, Printed(trainer_shown_, part), Printed(sampler_shown_, part)};
    if (part == "lora") {
      values.trainer = LoraName(trainer_.lora);
      values.sampler = LoraName(sampler_.lora);
    } else if (part == "local_partial") {
      values.trainer = trainer_.local_partial ? LocalPartialName(*trainer_.local_partial) : "";
      values.sampler = sampler_.local_partial ? LocalPartialName(*sampler_.local_partial) : "";
    }
    Difference difference = DifferenceOf(RefusalCode::kContractMismatch, values);
    if (part == "local_partial" && values.trainer == values.sampler) DetailOrder(difference);
    if (part == "tolerance" || part == "engine") {
      difference.trainer = Whole(trainer_, part);
      difference.sampler = Whole(sampler_, part);
    }
    found_.push_back(std::move(difference));
  }

  // One policy, other contributors: the fold's shape differs.
  void DetailOrder(Difference& difference) const {
    const auto text = [](const LocalPartial& policy) {
      return absl::StrCat(LocalPartialName(policy), " over ", policy.contributors,
                          " contributors in order ", ToHex(policy.order_digest).substr(0, 8));
    };
    difference.trainer = text(*trainer_.local_partial);
    difference.sampler = text(*sampler_.local_partial);
    difference.changes = "the fold has another tree, so its sums round at other places";
    difference.remedy = "fold the same logical contributors in ordinal order on both sides";
  }

  static std::string Whole(const Contract& contract, const std::string& part) {
    const json shown = ContractJson(contract, ContractForm::kReadable);
    return shown[part].is_null() ? "absent"
                                 : shown[part].dump(-1, ' ', false, json::error_handler_t::replace);
  }

  const Contract& trainer_;
  const Contract& sampler_;
  const Leaves trainer_shown_;
  const Leaves sampler_shown_;
  std::vector<Difference> found_;
};

std::string DigestText(const std::map<std::string, Digest256>& digests, const std::string& name) {
  const auto it = digests.find(name);
  return it == digests.end() ? "absent" : ToHex(it->second);
}

void CompareDigests(const std::string& prefix, const std::set<std::string>& names,
                    const std::map<std::string, Digest256>& trainer,
                    const std::map<std::string, Digest256>& sampler, const std::string& changes,
                    const std::string& remedy, std::vector<Difference>& found) {
  for (const std::string& name : names) {
    const std::string a = DigestText(trainer, name);
    const std::string b = DigestText(sampler, name);
    if (a == b && a != "absent") continue;
    const bool lacking = a == "absent" || b == "absent";
    found.push_back({RefusalCode::kKernelMismatch, absl::StrCat(prefix, name), a, b,
                     lacking ? "unknown: without evidence the name proves nothing" : changes,
                     remedy});
  }
}

std::set<std::string> Names(const std::map<std::string, Digest256>& a,
                            const std::map<std::string, Digest256>& b) {
  std::set<std::string> names;
  for (const auto* digests : {&a, &b}) {
    for (const auto& [name, digest] : *digests) names.insert(name);
  }
  return names;
}

}  // namespace

std::vector<Difference> CompareContracts(const Contract& trainer, const Contract& sampler) {
  return ContractComparison(trainer, sampler).Run();
}

std::map<std::string, Digest256> TablesOfContract(const Contract& contract) {
  std::map<std::string, Digest256> tables;
  for (const auto& [name, site] : contract.sites) {
    if (site.realisation_digest) tables[site.realisation] = *site.realisation_digest;
  }
  return tables;
}

std::vector<Difference> CompareEvidence(const Side& trainer, const Side& sampler) {
  std::vector<Difference> found;
  const bool exact = trainer.contract.family != kFamilyNone;
  // A table that only one side holds matters only if a contract runs it.
  const auto stated = TablesOfContract(trainer.contract);
  std::set<std::string> tables;
  for (const auto& [name, digest] : trainer.evidence.tables) {
    if (sampler.evidence.tables.count(name) > 0) tables.insert(name);
  }
  for (const std::string& name : Names(stated, TablesOfContract(sampler.contract))) {
    const bool shown = trainer.evidence.tables.count(name) + sampler.evidence.tables.count(name);
    if (exact || shown) tables.insert(name);
  }
  CompareDigests("evidence.tables.", tables, trainer.evidence.tables, sampler.evidence.tables,
                 "both use the name, but at least one of the 65,536 entries is another float32: "
                 "rare inputs give other bytes, which random tests do not find",
                 "run `lockstep kernel list` on both sides and replace the build whose table "
                 "digest is not the published one, or give the other table its own name",
                 found);
  for (const auto& [name, digest] : stated) {
    const auto shown = trainer.evidence.tables.find(name);
    const auto other = sampler.evidence.tables.find(name);
    const bool equal = shown != trainer.evidence.tables.end() &&
                       other != sampler.evidence.tables.end() && shown->second == other->second;
    if (!equal || shown->second == digest) continue;
    found.push_back({RefusalCode::kKernelMismatch, absl::StrCat("evidence.tables.", name),
                     ToHex(shown->second), ToHex(other->second),
                     absl::StrCat("both hold a table that is not the contract's ", ToHex(digest)),
                     "replace both builds, or give their table its own name"});
  }
  std::set<std::string> components = Names(trainer.evidence.probe, sampler.evidence.probe);
  if (components.empty() && exact) components.insert("");
  CompareDigests(components.count("") > 0 ? "evidence.probe" : "evidence.probe.", components,
                 trainer.evidence.probe, sampler.evidence.probe,
                 "equal names, other bytes: the component's output over the registration seed "
                 "differs",
                 "run `lockstep kernel selftest` on both machines; the side that fails has a "
                 "changed build, flush-to-zero or contraction switched on",
                 found);
  return found;
}

std::vector<Difference> RetiredPrograms(const Contract& contract) {
  std::vector<Difference> found;
  const auto add = [&](const std::string& part, const std::string& name) {
    found.push_back({RefusalCode::kContractMismatch, part, Described(name), Described(name),
                     "nothing runs this version any more",
                     "register both sides under the current version"});
  };
  for (const auto& [name, site] : contract.sites) {
    const ProgramInfo* program = FindProgram(site.program);
    if (program != nullptr && program->kind == ProgramKind::kRetired) {
      add(absl::StrCat("sites.", name, ".program"), site.program);
    }
  }
  for (const auto& [site, id] : contract.lora.lanes) {
    const AdapterLaneInfo* lane = FindAdapterLane(id);
    if (lane != nullptr && !lane->current) add(absl::StrCat("lora.lanes.", site), id);
  }
  return found;
}

Refusal RefusalOf(const Difference& difference) {
  const bool program = absl::EndsWith(difference.part, ".program");
  const absl::string_view verb = program ? "runs" : "has";
  return {difference.code, difference.part,
          absl::StrCat("the trainer ", verb, " ", difference.trainer, ", the sampler ", verb, " ",
                       difference.sampler, ": ", difference.changes, "; ", difference.remedy)};
}

std::vector<Refusal> CompareSides(const Side& trainer, const Side& sampler) {
  std::vector<Difference> all = CompareContracts(trainer.contract, sampler.contract);
  // Evidence is about equal names; where the names differ it would only repeat that.
  if (all.empty()) {
    all = RetiredPrograms(trainer.contract);
    for (Difference& difference : CompareEvidence(trainer, sampler)) {
      all.push_back(std::move(difference));
    }
  }
  RefusalList refusals;
  for (const Difference& difference : all) {
    Refusal refusal = RefusalOf(difference);
    refusals.Add(refusal.code, std::move(refusal.key), std::move(refusal.message));
  }
  return std::move(refusals).Take();
}

json ContractDiffJson(const Contract& trainer, const Contract& sampler) {
  const auto side = [](const Contract& contract) -> json {
    return {{"contract_id", ToHex(ContractId(contract))}, {"short", ContractShortForm(contract)}};
  };
  json differences = json::array();
  for (const Difference& difference : CompareContracts(trainer, sampler)) {
    differences.push_back({{"code", std::string(RefusalCodeName(difference.code))},
                           {"part", difference.part},
                           {"trainer", difference.trainer},
                           {"sampler", difference.sampler},
                           {"changes", difference.changes},
                           {"remedy", difference.remedy}});
  }
  return {{"equal", differences.empty()},
          {"trainer", side(trainer)},
          {"sampler", side(sampler)},
          {"differences", differences}};
}

}  // namespace lockstep
