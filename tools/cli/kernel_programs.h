#ifndef LOCKSTEP_TOOLS_CLI_KERNEL_PROGRAMS_H_
#define LOCKSTEP_TOOLS_CLI_KERNEL_PROGRAMS_H_

// Every program of this build: which op of `kernel run` runs it, where it runs, and which
// recordings of other implementations its bytes are compared with (kernel_commands_test.cc holds
// each figure against tests/golden/data).
//
// Example:
//   for (const KernelProgram& program : KernelPrograms()) std::cout << GoldenStatus(program);

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lockstep::tools {

struct KernelProgram {
  absl::string_view id;
  absl::string_view op;  // of `kernel run`; empty: reachable from C++ only, or by its own command
  bool cuda = false;     // has a twin
  int vectors = 0;       // recorded byte vectors, of an independent implementation
  // Two SwiGLU programs on one recorded input of a production run: outputs that differ.
  int differing = 0;
  int outputs = 0;
  bool near_reference = false;  // within 1e-5 of a recorded reference that is not exact
};

absl::Span<const KernelProgram> KernelPrograms();

// The ids that `op` runs.
std::vector<std::string> ProgramsOf(absl::string_view op);

// "9 recorded vectors equal; 18,036 of 65,536 differ from ..., as recorded", or "no recording".
std::string GoldenStatus(const KernelProgram& program);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_KERNEL_PROGRAMS_H_
