// contract show and contract aliases: what the registry knows under a name.

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "policy/contract_json.h"
#include "policy/ids.h"
#include "policy/nearest.h"
#include "policy/registry.h"
#include "tools/cli/contract_commands.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/json_line.h"
#include "tools/cli/resolve_flags.h"
#include "tools/cli/table.h"

namespace lockstep::tools {
namespace {

using nlohmann::json;

constexpr size_t kIdHexDigits = 64;
constexpr size_t kShortIdHexDigits = 8;

absl::string_view AliasKindName(AliasKind kind) {
  switch (kind) {
    case AliasKind::kProgram:
      return "program";
    case AliasKind::kLocalPartial:
      return "local_partial";
    case AliasKind::kAdapterLane:
      return "adapter_lane";
  }
  return "";
}

std::vector<std::string> AliasesOf(absl::string_view target) {
  std::vector<std::string> aliases;
  for (const AliasInfo& alias : Aliases()) {
    if (alias.target == target) aliases.emplace_back(alias.alias);
  }
  return aliases;
}

// Families whose contracts have the program at one of their sites, as "family: site".
std::vector<std::string> UsesOf(absl::string_view program) {
  std::vector<std::string> uses;
  for (const FamilyInfo& family : Families()) {
    for (const FamilySite& site : family.sites) {
      if (site.program == program) uses.push_back(absl::StrCat(family.name, ": ", site.site));
    }
  }
  return uses;
}

json List(const std::vector<std::string>& names) { return names; }

std::string Text(absl::string_view text) { return std::string(text); }

json ProgramJson(const ProgramInfo& program) {
  return {{"id", Text(program.id)},
          {"what", absl::StrCat(ProgramKindName(program.kind), " program")},
          {"description", Text(program.description)},
          {"bytes", Text(program.bytes)},
          {"sites", List(absl::StrSplit(program.sites, ' ', absl::SkipEmpty()))},
          {"used_by", List(UsesOf(program.id))}};
}

json RealisationJson(absl::string_view id) {
  json tables = json::object();
  absl::string_view description;
  for (const RealisationInfo& info : Realisations()) {
    if (info.id != id) continue;
    if (description.empty()) description = info.description;
    tables[Text(info.dtype)] = Text(info.digest_hex);
  }
  if (tables.empty()) return nullptr;
  return {{"id", Text(id)},
          {"what", "SiLU realisation"},
          {"description", Text(description)},
          {"table_digests", tables}};
}

json PolicyJson(const LocalPartialInfo& policy) {
  return {{"id", Text(policy.name)},
          {"what", "local-partial policy"},
          {"leaf", Text(policy.leaf)},
          {"fold", Text(policy.fold)},
          {"option", Text(policy.option)}};
}

json LaneJson(const AdapterLaneInfo& lane) {
  return {{"id", Text(lane.id)},
          {"what", lane.current ? "adapter lane" : "adapter lane, superseded"},
          {"family", Text(lane.family)},
          {"site", Text(lane.site)},
          {"adapter_program", Text(lane.adapter_program)},
          {"swiglu_program", Text(lane.swiglu_program)},
          {"tp", lane.tp},
          {"rank", lane.rank}};
}

json FamilyJson(const FamilyInfo& family) {
  json sites = json::object();
  for (const FamilySite& site : family.sites) sites[Text(site.site)] = Text(site.program);
  json geometries = json::array();
  for (const AdmittedGeometry& geometry : family.geometries) {
    geometries.push_back({{"hidden", geometry.hidden},
                          {"dense_intermediate", geometry.dense_intermediate},
                          {"moe_intermediate", geometry.moe_intermediate}});
  }
  return {{"id", Text(family.name)},
          {"what", "contract family"},
          {"description", Text(family.label)},
          {"local_partial", Text(family.default_local_partial)},
          {"exact_by_default", family.exact_by_default},
          {"sites", sites},
          {"geometries", geometries}};
}

// What is registered under `id` or under the name it is an alias of; null when nothing is.
json NamedThing(absl::string_view id) {
  if (const ProgramInfo* program = FindProgram(CanonicalName(AliasKind::kProgram, id))) {
    return ProgramJson(*program);
  }
  const std::string policy_name = CanonicalName(AliasKind::kLocalPartial, id);
  for (const LocalPartialInfo& policy : LocalPartials()) {
    if (policy.name == policy_name || policy.option == id || policy.short_name == id) {
      return PolicyJson(policy);
    }
  }
  if (const AdapterLaneInfo* lane = FindAdapterLane(CanonicalName(AliasKind::kAdapterLane, id))) {
    return LaneJson(*lane);
  }
  if (const FamilyInfo* family = FindFamily(id)) return FamilyJson(*family);
  return RealisationJson(id);
}

bool IsHex(absl::string_view text) {
  return !text.empty() && absl::c_all_of(text, [](char c) { return absl::ascii_isxdigit(c); });
}

bool LooksLikeContractId(absl::string_view id) {
  if (id.size() == kIdHexDigits && IsHex(id)) return true;
  const size_t hash = id.rfind('#');
  return hash != absl::string_view::npos && id.size() - hash - 1 == kShortIdHexDigits &&
         IsHex(id.substr(hash + 1));
}

absl::Status UnknownId(absl::string_view id) {
  if (LooksLikeContractId(id)) {
    return absl::NotFoundError(absl::StrCat(
        "'", id,
        "' is the digest of a contract, from which the contract cannot be had back; name the "
        "config.json or the saved answer of `contract resolve -o json` that it came from"));
  }
  std::vector<std::string> known = AllIdentifiers();
  for (const FamilyInfo& family : Families()) known.emplace_back(family.name);
  return absl::NotFoundError(
      absl::StrCat("'", id,
                   "' is neither a file nor a known program, realisation, policy, lane, family or "
                   "alias; nearest: ",
                   absl::StrJoin(NearestNames(id, known), ", "),
                   "; `lockstep contract aliases` and `lockstep kernel list` show all"));
}

std::string ValueText(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array() && !value.empty() && value[0].is_string()) {
    std::vector<std::string> items;
    for (const json& item : value) items.push_back(item.get<std::string>());
    return absl::StrJoin(items, ", ");
  }
  return JsonLine(value);
}

void PrintThing(const json& thing, Io& io) {
  io.out << Paint(io, Color::kBold, thing["id"].get<std::string>()) << "\n";
  for (const auto& [name, value] : thing.items()) {
    const bool absent = value.empty() && !value.is_boolean() && !value.is_number();
    if (name == "id" || absent || value == "") continue;
    if (!value.is_object()) {
      io.out << "  " << absl::StrReplaceAll(name, {{"_", " "}}) << ": " << ValueText(value) << "\n";
      continue;
    }
    io.out << "  " << absl::StrReplaceAll(name, {{"_", " "}}) << ":\n";
    for (const auto& [key, entry] : value.items()) {
      io.out << "    " << key << "  " << ValueText(entry) << "\n";
    }
  }
}

absl::StatusOr<int> Show(const Args& args, Io& io) {
  const std::string& id = args.words()[0];
  json thing = NamedThing(id);
  if (thing.is_null()) {
    const absl::StatusOr<Contract> contract = ContractOfFile(id, args);
    if (absl::IsNotFound(contract.status())) return UnknownId(id);
    if (!contract.ok()) return contract.status();
    if (io.format == Format::kJson) {
      json out = ContractJson(*contract, ContractForm::kReadable);
      out["contract_id"] = ToHex(ContractId(*contract));
      io.out << JsonLine(out) << "\n";
    } else {
      io.out << ContractText(*contract);
    }
    return kExitConverged;
  }
  thing["aliases"] = AliasesOf(thing["id"].get<std::string>());
  if (io.format == Format::kJson) {
    io.out << JsonLine(thing) << "\n";
  } else {
    PrintThing(thing, io);
  }
  return kExitConverged;
}

absl::StatusOr<int> ShowAliases(const Args&, Io& io) {
  if (io.format == Format::kJson) {
    json aliases = json::array();
    for (const AliasInfo& alias : Aliases()) {
      aliases.push_back({{"alias", Text(alias.alias)},
                         {"kind", Text(AliasKindName(alias.kind))},
                         {"id", Text(alias.target)}});
    }
    io.out << JsonLine({{"aliases", aliases}}) << "\n";
    return kExitConverged;
  }
  Table table({"ALIAS", "KIND", "IS"});
  for (const AliasInfo& alias : Aliases()) {
    table.Add({Text(alias.alias), Text(AliasKindName(alias.kind)), Text(alias.target)});
  }
  io.out << table.ToString();
  return kExitConverged;
}

}  // namespace

std::vector<Command> ContractNameCommands() {
  return {
      {.name = "contract show",
       .words = "ID",
       .min_words = 1,
       .max_words = 1,
       .help = "what an identifier means: a program, realisation, policy, lane or family",
       .details = "ID may be an alias, or a file that holds a contract or a config.json, which\n"
                  "is then shown in full.\n",
       .flags = WithResolveFlags({}),
       .run = Show},
      {.name = "contract aliases",
       .help = "the names by which other builds know our programs and policies",
       .run = ShowAliases}};
}

}  // namespace lockstep::tools
