#ifndef LOCKSTEP_BRIDGE_TRANSPORT_ADDRESS_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_ADDRESS_H_

// Where a bridge is: `ipc://PATH` (a Unix socket file in an owner-only folder) or
// `tcp://HOST:PORT` (an IPv6 HOST in brackets). Daemon and clients take the same string.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(std::string text, DefaultBridgeAddress());
//   LOCKSTEP_ASSIGN_OR_RETURN(Address address, ParseAddress(text));
//   LOCKSTEP_RETURN_IF_ERROR(BridgePresent(address, std::chrono::milliseconds(500)));

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::transport {

struct Address {
  enum class Kind { kIpc, kTcp };
  Kind kind = Kind::kIpc;
  std::string path;   // ipc
  std::string host;   // tcp; an IPv6 address keeps its brackets
  uint16_t port = 0;  // tcp; 0: any, when listening

  // The string that ParseAddress takes and ZeroMQ understands.
  std::string ToString() const;
  bool operator==(const Address&) const = default;
};

// A Unix socket's path is at most 107 bytes; its companion's has 3 more.
inline constexpr uint64_t kMaxIpcPathBytes = 107 - 3;

// InvalidArgument says what is wrong and shows both forms.
absl::StatusOr<Address> ParseAddress(absl::string_view text);

// The Unix socket beside an ipc bridge that passes file descriptors: PATH + ".fd".
std::string FdSocketPath(const Address& ipc);

// $XDG_RUNTIME_DIR/lockstep where that variable names a folder, else lockstep-UID in the
// system's temporary folder. Created with mode 0700 if absent. PermissionDenied when it
// belongs to another user, is open to others or is a link.
absl::StatusOr<std::string> DefaultRunFolder();

// The same for a folder of the caller's choice; its parent must exist.
absl::Status PrepareOwnerOnlyFolder(const std::string& path);

// ipc:// + DefaultRunFolder() + /bridge.sock
absl::StatusOr<std::string> DefaultBridgeAddress();

// OK when something accepts connections there. Unavailable with what to do when nothing
// does or it took longer than `timeout`; PermissionDenied when the socket is not ours to
// open.
absl::Status BridgePresent(const Address& address, std::chrono::milliseconds timeout);

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_ADDRESS_H_
