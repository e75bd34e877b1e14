#include "tools/cli/contract_commands.h"

#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "policy/agreement.h"
#include "policy/contract_json.h"
#include "policy/json_text.h"
#include "policy/resolve.h"
#include "policy/status_macros.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/file_output.h"
#include "tools/cli/json_line.h"
#include "tools/cli/resolve_flags.h"
#include "tools/cli/table.h"

namespace lockstep::tools {
namespace {

using nlohmann::json;

std::string GeometryText(const Site& site) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : site.geometry) parts.push_back(absl::StrCat(name, " ", value));
  for (const auto& [name, value] : site.constants) {
    parts.push_back(absl::StrFormat("%s %.9g", name, value));
  }
  return absl::StrJoin(parts, ", ");
}

void PrintNotes(const std::vector<std::string>& notes, Io& io) {
  for (const std::string& note : notes) io.err << "note: " << note << "\n";
}

// ResolutionJson and, under "contract", the whole contract, which `contract diff` reads.
json ResolveJson(const Resolution& resolution) {
  json out = ResolutionJson(resolution);
  out["contract"] = resolution.contract.has_value()
                        ? ContractJson(*resolution.contract, ContractForm::kReadable)
                        : json(nullptr);
  return out;
}

// The full contract inside a JSON document, or nullptr when it holds none.
const json* EmbeddedContract(const json& root) {
  if (FindNonNull(root, "format") != nullptr) return &root;
  if (FindNonNull(root, "contract_id") == nullptr) return nullptr;
  return FindNonNull(root, "contract");
}

absl::StatusOr<int> Resolve(const Args& args, Io& io) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ResolveOptions options, ResolveOptionsOf(args));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(args.words()[0]));
  const Resolution resolution = ResolveConfig(text, options);
  if (io.format == Format::kJson) io.out << JsonLine(ResolveJson(resolution)) << "\n";
  PrintNotes(resolution.notes, io);
  if (!resolution.contract.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", args.words()[0], "' is refused:\n", FormatRefusals(resolution.refusals)));
  }
  if (const auto stamped = args.Text("--stamped-config"); stamped.has_value()) {
    LOCKSTEP_RETURN_IF_ERROR(WriteFileByRename(*stamped, {BytesOf(resolution.stamped_config)}));
  }
  if (io.format != Format::kJson) io.out << ContractText(*resolution.contract);
  return kExitConverged;
}

void PrintDifferences(const Contract& a, const Contract& b, Io& io) {
  const std::vector<Difference> differences = CompareContracts(a, b);
  io.out << "A  " << ContractShortForm(a) << "\nB  " << ContractShortForm(b) << "\n";
  if (differences.empty()) {
    io.out << "equal in every part\n";
    return;
  }
  for (const Difference& difference : differences) {
    io.out << "\n"
           << Paint(io, Color::kBold, difference.part) << "\n  A        " << difference.trainer
           << "\n  B        " << difference.sampler << "\n  changes  " << difference.changes
           << "\n  to do    " << difference.remedy << "\n";
  }
}

// A is read as the trainer's contract and B as the sampler's.
absl::StatusOr<int> Diff(const Args& args, Io& io) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Contract a, ContractOfFile(args.words()[0], args));
  LOCKSTEP_ASSIGN_OR_RETURN(const Contract b, ContractOfFile(args.words()[1], args));
  if (io.format == Format::kJson) {
    io.out << JsonLine(ContractDiffJson(a, b)) << "\n";
  } else {
    PrintDifferences(a, b, io);
  }
  return CompareContracts(a, b).empty() ? kExitConverged : kExitDegraded;
}

}  // namespace

std::string ContractText(const Contract& contract) {
  const Parallel& parallel = contract.parallel;
  std::string text = absl::StrCat(
      ContractShortForm(contract), "\n  id             ", ToHex(ContractId(contract)),
      "\n  family         ", contract.family, "\n  level          ", LevelName(contract.level),
      "\n  parallel       tp ", parallel.tp, ", ep ", parallel.ep, ", cp ", parallel.cp, ", dp ",
      parallel.dp, "\n  local partial  ",
      contract.local_partial.has_value() ? LocalPartialName(*contract.local_partial) : "none",
      "\n  lora           ", LoraName(contract.lora), "\n\n");
  Table table({"SITE", "PROGRAM", "REALISATION", "GEOMETRY"});
  for (const auto& [name, site] : contract.sites) {
    table.Add({name, site.program.empty() ? "no claim" : site.program, site.realisation,
               GeometryText(site)});
  }
  return absl::StrCat(text, table.ToString());
}

absl::StatusOr<Contract> ContractOfFile(const std::string& path, const Args& args) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ResolveOptions options, ResolveOptionsOf(args));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(path));
  const absl::StatusOr<json> root = ParseJson(text, JsonLimits{});
  const json* embedded = root.ok() ? EmbeddedContract(*root) : nullptr;
  std::vector<Refusal> refusals;
  if (embedded != nullptr) {
    ContractReading reading = ReadContract(JsonLine(*embedded));
    if (reading.contract.has_value()) return *std::move(reading.contract);
    refusals = std::move(reading.refusals);
  } else {
    Resolution resolution = ResolveConfig(text, options);
    if (resolution.contract.has_value()) return *std::move(resolution.contract);
    refusals = std::move(resolution.refusals);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("'", path, "' gives no contract:\n", FormatRefusals(refusals)));
}

std::vector<Command> ContractCommands() {
  std::vector<Command> commands = {
      {.name = "contract resolve",
       .words = "CONFIG.json",
       .min_words = 1,
       .max_words = 1,
       .help = "the contract of a model's config.json, or every reason why it has none",
       .details =
           "Exits with 4 when the config is refused; -o json prints one object then too:\n"
           "family, contract_id, contract_short, sites (name to program, realisation, geometry),\n"
           "parallel, local_partial, lora, level, notes, refusals (code, key, message), "
           "contract.\n",
       .flags = WithResolveFlags(
           {{"--stamped-config", "FILE", "also write the config with one coherent stamp"}}),
       .run = Resolve},
      {.name = "contract diff",
       .words = "A B",
       .min_words = 2,
       .max_words = 2,
       .help = "what differs between two contracts, which bytes that changes, and what to do",
       .details =
           "A and B are config.json files, contracts, or answers of `contract resolve -o\n"
           "json`; the flags apply to the configs. A is read as the trainer's. Exits with 0\n"
           "when they are equal, with 1 when they differ.\n",
       .flags = WithResolveFlags({}),
       .run = Diff}};
  std::vector<Command> names = ContractNameCommands();
  commands.insert(commands.end(), std::make_move_iterator(names.begin()),
                  std::make_move_iterator(names.end()));
  return commands;
}

}  // namespace lockstep::tools
