#ifndef LOCKSTEP_TOOLS_CLI_EXIT_CODES_H_
#define LOCKSTEP_TOOLS_CLI_EXIT_CODES_H_

namespace lockstep::tools {

// What `lockstep` exits with, for scripts.
enum ExitCode : int {
  kExitConverged = 0,    // done, or everything is as asked
  kExitDegraded = 1,     // works but not as wished, or a difference was found
  kExitUsage = 2,        // the command line, or an input file, is wrong
  kExitUnreachable = 3,  // no bridge there
  kExitRefused = 4,      // refused by a contract, a check, or for lack of a key
  kExitTimedOut = 5,
  kExitHopeless = 6,  // what was waited for can no longer happen
};

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_EXIT_CODES_H_
