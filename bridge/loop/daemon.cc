#include "bridge/loop/daemon.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bridge/auth/allow_list.h"
#include "bridge/auth/keys.h"
#include "bridge/ledger/ledger.h"
#include "bridge/transport/address.h"
#include "policy/status_macros.h"

namespace lockstep::loop {
namespace {

namespace fs = std::filesystem;

// The value of an environment variable that names an existing folder.
std::string FolderFromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  std::error_code ignored;
  const bool usable = value != nullptr && value[0] == '/' && fs::is_directory(value, ignored);
  return usable ? std::string(value) : std::string();
}

// Missing folders are made owner-only; the last one is the ledger's to judge.
absl::Status MakeFolders(const fs::path& path) {
  fs::path sofar;
  for (const fs::path& part : path) {
    sofar /= part;
    if (::mkdir(sofar.c_str(), 0700) == 0 || errno == EEXIST || errno == EROFS) continue;
    // Above what exists, other users' folders need not be ours to write.
    std::error_code ignored;
    if (fs::is_directory(sofar, ignored)) continue;
    return absl::FailedPreconditionError(absl::StrCat("state folder '", path.string(),
                                                      "': ", std::strerror(errno),
                                                      "; choose another with --state-dir"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ServerKeys>> LoadKeys(const DaemonFlags& flags,
                                                   const transport::Address& address) {
  const bool given = !flags.keys_path.empty() || !flags.allow_list_path.empty();
  if (address.kind == transport::Address::Kind::kIpc) {
    if (!given) return std::optional<ServerKeys>();
    return absl::InvalidArgumentError(
        "--keys and --allow-list are for tcp; an ipc bridge admits its own user only, by the "
        "mode of the socket's folder");
  }
  if (flags.keys_path.empty() || flags.allow_list_path.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen ", address.ToString(),
        " needs --keys FILE.key and --allow-list FILE: run `lockstep keygen` once for the bridge "
        "(its .key goes to --keys) and once for each peer, and put a line `KEY NAME ROLE` for "
        "each peer's .pub into the allow-list"));
  }
  ServerKeys keys;
  LOCKSTEP_ASSIGN_OR_RETURN(keys.pair, auth::LoadKeyPair(flags.keys_path));
  LOCKSTEP_ASSIGN_OR_RETURN(keys.allowed, auth::AllowList::Load(flags.allow_list_path));
  return std::optional<ServerKeys>(std::move(keys));
}

}  // namespace

absl::StatusOr<std::string> DefaultStateFolder(const std::string& run) {
  if (const std::string state = FolderFromEnvironment("XDG_STATE_HOME"); !state.empty()) {
    return absl::StrCat(state, "/lockstep/", run);
  }
  if (const std::string home = FolderFromEnvironment("HOME"); !home.empty()) {
    return absl::StrCat(home, "/.local/state/lockstep/", run);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string folder, transport::DefaultRunFolder());
  return absl::StrCat(folder, "/state/", run);
}

absl::StatusOr<std::unique_ptr<Loop>> StartDaemon(const DaemonFlags& flags, int stop_fd) {
  LoopOptions options;
  options.config = flags.config;
  options.config.software = absl::StrCat("lockstepd ", kDaemonVersion);
  options.log_level = flags.log_level;
  options.stop_fd = stop_fd;
  std::string listen = flags.listen;
  if (listen.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(listen, transport::DefaultBridgeAddress());
  }
  LOCKSTEP_ASSIGN_OR_RETURN(options.listen, transport::ParseAddress(listen));
  LOCKSTEP_ASSIGN_OR_RETURN(options.keys, LoadKeys(flags, options.listen));
  // Before the ledger, so that a second bridge hears of the address first.
  LOCKSTEP_RETURN_IF_ERROR(ControlSocket::CheckFree(options.listen));
  options.state_dir = flags.state_dir;
  if (options.state_dir.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(options.state_dir, DefaultStateFolder(flags.config.run));
  }
  LOCKSTEP_RETURN_IF_ERROR(MakeFolders(options.state_dir));
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::unique_ptr<ledger::Ledger> ledger,
      ledger::OpenLedger({.state_dir = options.state_dir, .run = flags.config.run}));
  return Loop::Create(std::move(options), std::move(ledger));
}

}  // namespace lockstep::loop
