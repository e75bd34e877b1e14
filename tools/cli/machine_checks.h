#ifndef LOCKSTEP_TOOLS_CLI_MACHINE_CHECKS_H_
#define LOCKSTEP_TOOLS_CLI_MACHINE_CHECKS_H_

// What `lockstep doctor` looks at. Nothing is changed but the run folder, which is made when it
// is absent (as every command does that talks to a bridge).

#include <string>
#include <vector>

namespace lockstep::tools {

enum class CheckState {
  kOk,
  kAbsent,  // optional, and not here
  kBad,     // needed, and not here or not usable
};

struct MachineCheck {
  std::string name;
  CheckState state = CheckState::kOk;
  std::string found;
  std::string advice;  // empty when there is nothing to do
};

// `bridge`: an address; empty: the default one.
std::vector<MachineCheck> CheckMachine(const std::string& bridge);

const char* CheckStateName(CheckState state);  // "ok", "absent", "bad"

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_MACHINE_CHECKS_H_
