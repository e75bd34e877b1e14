#include "tools/cli/bench_limits.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bridge/transport/unique_fd.h"
#include "policy/status_macros.h"

namespace lockstep::tools {
namespace {

using transport::UniqueFd;

constexpr size_t kSendBytes = size_t{1} << 20;

double BestRate(uint64_t bytes, int passes, absl::FunctionRef<bool()> pass) {
  double best = 0;
  for (int i = 0; i < passes; ++i) {
    const absl::Time start = absl::Now();
    if (!pass()) return 0;
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    best = std::max(best, static_cast<double>(bytes) * 1e-9 / seconds);
  }
  return best;
}

absl::Status SocketError(absl::string_view call) {
  return absl::InternalError(
      absl::StrCat("a socket of this machine's own: ", call, ": ", strerror(errno)));
}

struct Connection {
  UniqueFd sender;
  UniqueFd receiver;
};

absl::StatusOr<Connection> Connect() {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.get(), generic, size) != 0) return SocketError("bind");
  if (::listen(listener.get(), 1) != 0) return SocketError("listen");
  if (::getsockname(listener.get(), generic, &size) != 0) return SocketError("getsockname");
  Connection connection;
  connection.receiver = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(connection.receiver.get(), generic, size) != 0) return SocketError("connect");
  connection.sender = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!connection.sender.valid()) return SocketError("accept");
  return connection;
}

void SendAll(int fd, absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), std::min(bytes.size(), kSendBytes), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

bool ReceiveAll(int fd, absl::Span<uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t received = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (received <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(received));
  }
  return true;
}

}  // namespace

double MemoryCopyRate(absl::Span<const uint8_t> source, int passes) {
  std::vector<uint8_t> target(source.begin(), source.end());
  return BestRate(source.size(), passes, [&] {
    std::memcpy(target.data(), source.data(), source.size());
    asm volatile("" : : "r"(target.data()) : "memory");  // the copy is wanted
    return true;
  });
}

absl::StatusOr<double> SocketRate(absl::Span<const uint8_t> source, int passes) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Connection connection, Connect());
  std::vector<uint8_t> target(source.size(), 1);
  const double rate = BestRate(source.size(), passes, [&] {
    std::thread sender([&] { SendAll(connection.sender.get(), source); });
    const bool all = ReceiveAll(connection.receiver.get(), absl::MakeSpan(target));
    sender.join();
    return all;
  });
  if (rate == 0) return absl::InternalError("the loopback connection broke while it was measured");
  return rate;
}

}  // namespace lockstep::tools
