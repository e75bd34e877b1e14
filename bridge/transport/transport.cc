#include "bridge/transport/transport.h"

#include "absl/strings/str_cat.h"

namespace lockstep::transport {

std::vector<TransportKind> DefaultTransports() {
  return {TransportKind::kShm, TransportKind::kTcp};
}

absl::StatusOr<TransportKind> ChooseTransport(const std::vector<TransportKind>& wanted,
                                              const TransportFacts& facts) {
  std::string why;
  for (TransportKind kind : wanted) {
    switch (kind) {
      case TransportKind::kShm:
        if (facts.same_host && facts.fd_socket) return kind;
        absl::StrAppend(&why, " shm needs the bridge on this host and an ipc:// address",
                        facts.same_host ? " (it passes no arenas)" : " (it is on another host)",
                        ";");
        break;
      case TransportKind::kTcp:
        if (facts.bulk_port) return kind;
        absl::StrAppend(&why, " tcp needs a bulk port, which this bridge has not;");
        break;
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat("no transport to this bridge:", why.empty() ? " none was asked for" : why));
}

}  // namespace lockstep::transport
