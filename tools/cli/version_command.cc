#include "tools/cli/version_command.h"

#include <string>

#include "kernels/cuda_support.h"
#include "policy/contract.h"
#include "policy/protocol.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/json_line.h"

namespace lockstep::tools {
namespace {

// {"version", "protocol", "contract_format", "compiler", "cuda"}
absl::StatusOr<int> Version(const Args&, Io& io) {
  const bool cuda = kernels::BuiltWithCuda();
  if (io.format == Format::kJson) {
    io.out << JsonLine({{"version", kCliVersion},
                        {"protocol", kProtocolVersion},
                        {"contract_format", std::string(kContractFormat)},
                        {"compiler", __VERSION__},
                        {"cuda", cuda}})
           << "\n";
    return kExitConverged;
  }
  io.out << "lockstep " << kCliVersion << ", protocol " << kProtocolVersion << ", "
         << (cuda ? "with" : "without") << " CUDA kernels\n";
  return kExitConverged;
}

}  // namespace

std::vector<Command> VersionCommands() {
  return {{.name = "version", .help = "what this build is and speaks", .run = Version}};
}

}  // namespace lockstep::tools
