#include "tools/cli/bridge_connect.h"

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "bridge/auth/keys.h"
#include "policy/status_macros.h"

namespace lockstep::tools {
namespace {

constexpr FlagSpec kBridgeFlags[] = {
    {"--bridge", "ADDR",
     "ipc://PATH or tcp://HOST:PORT; default LOCKSTEP_BRIDGE, else this user's"},
    {"--run", "NAME", "the run that the bridge must serve; default any"},
    {"--key", "FILE.key", "this peer's key, for tcp; default LOCKSTEP_KEY"},
    {"--server-key", "FILE.pub", "the bridge's public key, for tcp; default LOCKSTEP_SERVER_KEY"},
};

std::string FlagOrVariable(const Args& args, absl::string_view flag, const char* variable) {
  const char* value = std::getenv(variable);
  return args.TextOr(flag, value == nullptr ? "" : value);
}

std::string KeyPath(const Args& args) { return FlagOrVariable(args, "--key", "LOCKSTEP_KEY"); }

}  // namespace

std::vector<FlagSpec> WithBridgeFlags(std::vector<FlagSpec> flags) {
  flags.insert(flags.end(), std::begin(kBridgeFlags), std::end(kBridgeFlags));
  return flags;
}

absl::StatusOr<transport::BridgeAddress> BridgeOf(const Args& args) {
  transport::BridgeAddress bridge;
  bridge.address = FlagOrVariable(args, "--bridge", "LOCKSTEP_BRIDGE");
  bridge.run = args.TextOr("--run", "");
  const std::string key = KeyPath(args);
  const std::string server_key = FlagOrVariable(args, "--server-key", "LOCKSTEP_SERVER_KEY");
  if (key.empty() != server_key.empty()) {
    return absl::InvalidArgumentError(
        "--key and --server-key go together: who we are, and whom we trust to be the bridge");
  }
  if (key.empty()) return bridge;
  transport::ClientKeys keys;
  LOCKSTEP_ASSIGN_OR_RETURN(auth::KeyPair pair, auth::LoadKeyPair(key));
  LOCKSTEP_ASSIGN_OR_RETURN(keys.server_public, auth::LoadPublicKey(server_key));
  keys.client_public = std::move(pair.public_key);
  keys.client_secret = std::move(pair.secret_key);
  bridge.keys = std::move(keys);
  return bridge;
}

absl::StatusOr<std::unique_ptr<transport::ClientSession>> OpenOperator(const Args& args) {
  transport::SessionOptions options;
  LOCKSTEP_ASSIGN_OR_RETURN(options.bridge, BridgeOf(args));
  options.role = PeerRole::kOperator;
  if (options.bridge.keys.has_value()) {
    options.name = std::filesystem::path(KeyPath(args)).stem().string();
  }
  return transport::ClientSession::Open(std::move(options), {});
}

absl::StatusOr<StatusReply> AskStatus(transport::ClientSession& session, absl::Duration timeout) {
  return session.Call<StatusReply>(StatusRequest{}, timeout);
}

}  // namespace lockstep::tools
