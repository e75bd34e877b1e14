#ifndef LOCKSTEP_TOOLS_CLI_BRIDGE_CONNECT_H_
#define LOCKSTEP_TOOLS_CLI_BRIDGE_CONNECT_H_

// The flags by which a command finds its bridge, and an operator's session with it.
//
//   --bridge ADDR        ipc://PATH or tcp://HOST:PORT; else LOCKSTEP_BRIDGE, else the default
//   --run NAME           must be the bridge's run; else any
//   --key FILE.key       who we are, for tcp; else LOCKSTEP_KEY
//   --server-key FILE    the bridge's .pub file, for tcp; else LOCKSTEP_SERVER_KEY
//
// Example:
//   const std::vector<FlagSpec> flags = WithBridgeFlags({{"--follow", "", "..."}});
//   LOCKSTEP_ASSIGN_OR_RETURN(auto session, OpenOperator(args));
//   LOCKSTEP_ASSIGN_OR_RETURN(StatusReply status, AskStatus(*session));

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bridge/transport/client_session.h"
#include "policy/protocol.h"
#include "tools/cli/args.h"

namespace lockstep::tools {

inline constexpr absl::Duration kAnswerTimeout = absl::Seconds(10);

// `flags`, then those above.
std::vector<FlagSpec> WithBridgeFlags(std::vector<FlagSpec> flags);

// InvalidArgument or PermissionDenied for a key that cannot be used.
absl::StatusOr<transport::BridgeAddress> BridgeOf(const Args& args);

// Says Hello as an operator. Over tcp the name is that of the key's file, since the bridge
// knows keys by name; Unavailable when no bridge is there.
absl::StatusOr<std::unique_ptr<transport::ClientSession>> OpenOperator(const Args& args);

absl::StatusOr<StatusReply> AskStatus(transport::ClientSession& session,
                                      absl::Duration timeout = kAnswerTimeout);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_BRIDGE_CONNECT_H_
