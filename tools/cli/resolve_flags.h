#ifndef LOCKSTEP_TOOLS_CLI_RESOLVE_FLAGS_H_
#define LOCKSTEP_TOOLS_CLI_RESOLVE_FLAGS_H_

// The flags by which a command states a contract other than a config's own, and the reading of
// the config itself.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(const ResolveOptions options, ResolveOptionsOf(args));
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(path));
//   Resolution resolution = ResolveConfig(text, options);

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "policy/resolve.h"
#include "tools/cli/args.h"

namespace lockstep::tools {

// `flags`, then --exact, --lane, --tp, --ep, --cp, --dp, --local-partial, --swiglu and
// --realisation.
std::vector<FlagSpec> WithResolveFlags(std::vector<FlagSpec> flags);

// InvalidArgument for a flag that cannot be read.
absl::StatusOr<ResolveOptions> ResolveOptionsOf(const Args& args);

// NotFound, PermissionDenied or, above 4 MiB, ResourceExhausted.
absl::StatusOr<std::string> ReadConfigFile(const std::string& path);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_RESOLVE_FLAGS_H_
