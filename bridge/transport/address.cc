#include "bridge/transport/address.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "bridge/transport/unique_fd.h"
#include "policy/status_macros.h"

namespace lockstep::transport {
namespace {

static_assert(sizeof(sockaddr_un::sun_path) == kMaxIpcPathBytes + 3 + 1);

absl::Status BadAddress(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("address '", text, "': ", why, "; write ipc://PATH or tcp://HOST:PORT"));
}

absl::StatusOr<Address> ParseIpc(absl::string_view text, absl::string_view path) {
  if (path.empty()) return BadAddress(text, "the path is empty");
  // ZeroMQ gives these a meaning of their own, outside owner-only folders.
  if (path[0] == '@' || path == "*") return BadAddress(text, "not a path of a file");
  if (absl::StrContains(path, '\0')) return BadAddress(text, "the path has a NUL byte");
  if (path.size() > kMaxIpcPathBytes) {
    return BadAddress(
        text, absl::StrCat("the path has ", path.size(), " bytes and a Unix socket takes at most ",
                           kMaxIpcPathBytes, "; choose a shorter folder"));
  }
  return Address{.kind = Address::Kind::kIpc, .path = std::string(path), .host = {}, .port = 0};
}

absl::StatusOr<Address> ParseTcp(absl::string_view text, absl::string_view rest) {
  const size_t colon = rest.rfind(':');
  if (colon == absl::string_view::npos) return BadAddress(text, "the port is missing");
  const absl::string_view host = rest.substr(0, colon);
  const absl::string_view digits = rest.substr(colon + 1);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (host.empty() || host.find_first_of("/ ;@") != absl::string_view::npos ||
      (!bracketed && host.find_first_of(":[]") != absl::string_view::npos)) {
    return BadAddress(text, "the host is not a name, an IPv4 address or an IPv6 one in []");
  }
  uint32_t port = 0;
  if (digits.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(digits, &port) || port > UINT16_MAX) {
    return BadAddress(text, absl::StrCat("'", digits, "' is no port (0 to 65535)"));
  }
  return Address{.kind = Address::Kind::kTcp,
                 .path = {},
                 .host = std::string(host),
                 .port = static_cast<uint16_t>(port)};
}

std::string RunFolderPath() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  std::error_code ignored;
  if (runtime != nullptr && runtime[0] == '/' && std::filesystem::is_directory(runtime, ignored)) {
    return absl::StrCat(absl::StripSuffix(runtime, "/"), "/lockstep");
  }
  std::filesystem::path temporary = std::filesystem::temp_directory_path(ignored);
  return (temporary / absl::StrCat("lockstep-", ::geteuid())).string();
}

absl::Status NoBridge(const Address& address, absl::string_view why) {
  const std::string text = address.ToString();
  return absl::UnavailableError(absl::StrCat("no bridge at ", text, ": ", why,
                                             "; start one with lockstepd --listen ", text,
                                             " or name another with --bridge"));
}

// Connects without blocking for longer than `timeout`.
absl::Status TryConnect(const Address& address, int family, const sockaddr* to, socklen_t size,
                        std::chrono::milliseconds timeout) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "socket");
  int error = ::connect(fd.get(), to, size) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd waiting{.fd = fd.get(), .events = POLLOUT, .revents = 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(timeout.count()));
    if (ready <= 0) return NoBridge(address, absl::StrCat("no answer in ", timeout.count(), " ms"));
    socklen_t error_size = sizeof(error);
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &error_size);
  }
  // A full backlog is a bridge that is busy.
  if (error == 0 || (family == AF_UNIX && error == EAGAIN)) return absl::OkStatus();
  if (error == EACCES || error == EPERM) {
    return absl::PermissionDeniedError(
        absl::StrCat(address.ToString(), " belongs to another user: ", std::strerror(error),
                     "; run as the user of the bridge"));
  }
  return NoBridge(address,
                  error == ENOENT ? "the socket file does not exist" : std::strerror(error));
}

}  // namespace

std::string Address::ToString() const {
  if (kind == Kind::kIpc) return absl::StrCat("ipc://", path);
  return absl::StrCat("tcp://", host, ":", port);
}

absl::StatusOr<Address> ParseAddress(absl::string_view text) {
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "ipc://")) return ParseIpc(text, rest);
  if (absl::ConsumePrefix(&rest, "tcp://")) return ParseTcp(text, rest);
  return BadAddress(text, "unknown scheme");
}

std::string FdSocketPath(const Address& ipc) { return absl::StrCat(ipc.path, ".fd"); }

absl::Status PrepareOwnerOnlyFolder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(errno, absl::StrCat("creating the run folder ", path));
  }
  struct stat found;
  // lstat: a link planted by another user is not followed.
  if (::lstat(path.c_str(), &found) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("looking at the run folder ", path));
  }
  if (!S_ISDIR(found.st_mode)) {
    return absl::PermissionDeniedError(
        absl::StrCat("run folder ", path,
                     ": is no folder of its own (a file or a link); remove it "
                     "or choose another socket path"));
  }
  if (found.st_uid != ::geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat("run folder ", path, ": belongs to user ",
                                                    found.st_uid, ", not to us (", ::geteuid(),
                                                    "); choose another socket path"));
  }
  constexpr mode_t kOthers = 077;
  if ((found.st_mode & kOthers) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("run folder ", path, ": is open to other users; run chmod 700 ", path));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> DefaultRunFolder() {
  const std::string path = RunFolderPath();
  LOCKSTEP_RETURN_IF_ERROR(PrepareOwnerOnlyFolder(path));
  return path;
}

absl::StatusOr<std::string> DefaultBridgeAddress() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string folder, DefaultRunFolder());
  return absl::StrCat("ipc://", folder, "/bridge.sock");
}

absl::Status BridgePresent(const Address& address, std::chrono::milliseconds timeout) {
  if (address.kind == Address::Kind::kIpc) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    if (address.path.size() > kMaxIpcPathBytes) {
      return BadAddress(address.ToString(), "the path is too long");
    }
    address.path.copy(to.sun_path, sizeof(to.sun_path) - 1);
    return TryConnect(address, AF_UNIX, reinterpret_cast<const sockaddr*>(&to), sizeof(to),
                      timeout);
  }
  if (address.port == 0) return BadAddress(address.ToString(), "port 0 cannot be connected to");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  absl::string_view host = address.host;
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  addrinfo* found = nullptr;
  const int failure =
      ::getaddrinfo(std::string(host).c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (failure != 0) return NoBridge(address, ::gai_strerror(failure));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  absl::Status status;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    status = TryConnect(address, one->ai_family, one->ai_addr, one->ai_addrlen, timeout);
    if (status.ok()) break;
  }
  return status;
}

}  // namespace lockstep::transport
