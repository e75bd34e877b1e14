#include "bridge/transport/bulk_testing.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <zmq.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace lockstep::transport {
namespace {

constexpr int kPollMs = 20;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::perror(what);
  std::abort();
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

BulkServerThread::BulkServerThread(const Digest256& key, std::string address) {
  auto server = BulkServer::Listen(address, key, store_);
  Require(server.ok(), server.status().ToString().c_str());
  server_ = *std::move(server);
  thread_ = std::thread([this] { Run(); });
}

BulkServerThread::~BulkServerThread() {
  stop_ = true;
  thread_.join();
}

void BulkServerThread::With(const std::function<void(ArenaStore&)>& act) {
  const std::lock_guard<std::mutex> lock(mutex_);
  act(store_);
}

BulkEvents BulkServerThread::Events() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return total_;
}

void BulkServerThread::Run() {
  bool more = false;
  while (!stop_) {
    std::vector<zmq_pollitem_t> items;
    for (void* socket : server_->Sockets()) items.push_back({socket, 0, ZMQ_POLLIN, 0});
    if (!more) zmq_poll(items.data(), static_cast<int>(items.size()), kPollMs);
    const std::lock_guard<std::mutex> lock(mutex_);
    const BulkEvents events = server_->HandleReadable();
    more = events.more;
    for (const auto& [arena, mark] : events.upload_marks) total_.upload_marks[arena] = mark;
    for (const auto& [peer, bytes] : events.bytes_sent) total_.bytes_sent[peer] += bytes;
    total_.malformed += events.malformed;
    total_.unauthorised += events.unauthorised;
    total_.over_limit += events.over_limit;
  }
}

TcpProxy::TcpProxy(const std::string& target, Touch touch) : touch_(std::move(touch)) {
  int port = 0;
  Require(absl::SimpleAtoi(target.substr(target.rfind(':') + 1), &port), "proxy target");
  target_port_ = static_cast<uint16_t>(port);
  listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  Require(::bind(listener_.get(), generic, size) == 0, "proxy bind");
  Require(::listen(listener_.get(), 4) == 0, "proxy listen");
  Require(::getsockname(listener_.get(), generic, &size) == 0, "proxy getsockname");
  address_ = absl::StrCat("tcp://127.0.0.1:", ntohs(address.sin_port));
  thread_ = std::thread([this] { Run(); });
}

TcpProxy::~TcpProxy() {
  stop_ = true;
  thread_.join();
}

void TcpProxy::Run() {
  while (!stop_) {
    pollfd wait{listener_.get(), POLLIN, 0};
    if (::poll(&wait, 1, kPollMs) <= 0) continue;
    UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    UniqueFd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = Loopback(target_port_);
    if (::connect(server.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
      continue;
    ++connections_;
    Pass(client.get(), server.get());
  }
}

void TcpProxy::Pass(int client, int server) {
  std::vector<uint8_t> buffer(1 << 16);
  uint64_t positions[2] = {0, 0};
  while (!stop_) {
    pollfd ends[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
    if (::poll(ends, 2, kPollMs) <= 0) continue;
    for (int side = 0; side < 2; ++side) {
      if (ends[side].revents == 0) continue;
      const ssize_t n = ::recv(ends[side].fd, buffer.data(), buffer.size(), 0);
      if (n <= 0) return;
      const auto count = static_cast<size_t>(n);
      if (!touch_(buffer.data(), count, side == 1, positions[side])) return;
      positions[side] += count;
      for (size_t sent = 0; sent < count;) {
        const ssize_t m =
            ::send(ends[1 - side].fd, buffer.data() + sent, count - sent, MSG_NOSIGNAL);
        if (m <= 0) return;
        sent += static_cast<size_t>(m);
      }
    }
  }
}

}  // namespace lockstep::transport
