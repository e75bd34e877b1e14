#ifndef LOCKSTEP_BRIDGE_LOOP_DAEMON_FLAGS_H_
#define LOCKSTEP_BRIDGE_LOOP_DAEMON_FLAGS_H_

// lockstepd's command line: `--name VALUE` or `--name=VALUE`. One table says what each flag is
// called, what it takes and what it does.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(DaemonFlags flags, ParseDaemonFlags({"--run", "grpo-7"}));

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bridge/core/core.h"
#include "bridge/loop/log.h"

namespace lockstep::loop {

struct DaemonFlags {
  std::string listen;           // empty: DefaultBridgeAddress()
  std::string state_dir;        // empty: DefaultStateFolder(run)
  std::string keys_path;        // the bridge's .key file; tcp
  std::string allow_list_path;  // tcp
  LogLevel log_level = LogLevel::kInfo;
  core::Config config;  // run, limits, tolerances and timeouts are set from flags
  bool help = false;
  bool version = false;
};

// InvalidArgument for an unknown flag (naming the nearest known), a missing, unwanted or
// unusable value, a flag given twice, or a word that is no flag.
absl::StatusOr<DaemonFlags> ParseDaemonFlags(absl::Span<const std::string> words);

// What --help prints.
std::string DaemonUsage();

}  // namespace lockstep::loop

#endif  // LOCKSTEP_BRIDGE_LOOP_DAEMON_FLAGS_H_
