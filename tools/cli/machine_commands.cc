#include "tools/cli/machine_commands.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "bridge/auth/keys.h"
#include "policy/status_macros.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/json_line.h"
#include "tools/cli/machine_checks.h"
#include "tools/cli/table.h"

namespace lockstep::tools {
namespace {

Color ColorOf(CheckState state) {
  if (state == CheckState::kOk) return Color::kGreen;
  return state == CheckState::kAbsent ? Color::kDim : Color::kRed;
}

void PrintJson(const std::vector<MachineCheck>& checks, Io& io) {
  nlohmann::json list = nlohmann::json::array();
  for (const MachineCheck& check : checks) {
    list.push_back({{"name", check.name},
                    {"state", CheckStateName(check.state)},
                    {"found", check.found},
                    {"advice", check.advice}});
  }
  io.out << JsonLine({{"checks", std::move(list)}}) << "\n";
}

void PrintTable(const std::vector<MachineCheck>& checks, Io& io) {
  Table table({"WHAT", "STATE", "FOUND"});
  for (const MachineCheck& check : checks) {
    table.Add(
        {check.name, Paint(io, ColorOf(check.state), CheckStateName(check.state)), check.found});
  }
  io.out << table.ToString();
  for (const MachineCheck& check : checks) {
    if (!check.advice.empty()) io.out << "\n" << check.name << ": " << check.advice;
  }
  io.out << "\n";
}

absl::StatusOr<int> Doctor(const Args& args, Io& io) {
  const char* environment = std::getenv("LOCKSTEP_BRIDGE");
  const std::vector<MachineCheck> checks =
      CheckMachine(args.TextOr("--bridge", environment == nullptr ? "" : environment));
  if (io.format == Format::kJson) {
    PrintJson(checks, io);
  } else {
    PrintTable(checks, io);
  }
  const bool bad = std::any_of(checks.begin(), checks.end(), [](const MachineCheck& check) {
    return check.state == CheckState::kBad;
  });
  return bad ? kExitDegraded : kExitConverged;
}

absl::StatusOr<int> Keygen(const Args& args, Io& io) {
  const std::string folder = args.TextOr("--dir", ".");
  const std::string& name = args.words()[0];
  LOCKSTEP_ASSIGN_OR_RETURN(const auth::KeyPair pair, auth::GenerateKeyPair());
  LOCKSTEP_RETURN_IF_ERROR(auth::WriteKeyPair(folder, name, pair));
  if (io.format == Format::kJson) {
    io.out << JsonLine({{"name", name},
                        {"public", pair.public_key},
                        {"secret_file", folder + "/" + name + ".key"},
                        {"public_file", folder + "/" + name + ".pub"}})
           << "\n";
    return kExitConverged;
  }
  io.out << pair.public_key << "\n";
  io.err << "wrote " << folder << "/" << name << ".key (keep it secret) and " << folder << "/"
         << name << ".pub\n";
  return kExitConverged;
}

}  // namespace

std::vector<Command> MachineCommands() {
  return {
      {.name = "doctor",
       .help = "what this machine has, what is missing, what to do",
       .details = "Exits 1 when something that is needed is missing; what is optional does not "
                  "count.\n",
       .flags = {{"--bridge", "ADDR",
                  "the bridge to look for (default: LOCKSTEP_BRIDGE, then "
                  "the default run folder)"}},
       .run = Doctor},
      {.name = "keygen",
       .words = "NAME",
       .min_words = 1,
       .max_words = 1,
       .help = "make a key pair for a bridge or a peer that comes over tcp",
       .details = "Writes NAME.key and NAME.pub and prints the public key. A peer's public key "
                  "goes into\nthe bridge's allow-list, the bridge's .pub to the peer.\n",
       .flags = {{"--dir", "DIR", "where to (default: here)"}},
       .run = Keygen},
  };
}

}  // namespace lockstep::tools
