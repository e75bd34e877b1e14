#ifndef LOCKSTEP_BRIDGE_TRANSPORT_BULK_TESTING_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_BULK_TESTING_H_

// For tests and benches: a thread that drives a BulkServer as the bridge's loop does, and a
// TCP proxy that can damage or cut what passes.
//
// Example:
//   BulkServerThread server(key);
//   server.With([](ArenaStore& store) { store.Create(1, 4096); });

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bridge/transport/arena_store.h"
#include "bridge/transport/bulk_server.h"
#include "bridge/transport/unique_fd.h"

namespace lockstep::transport {

class BulkServerThread {
 public:
  explicit BulkServerThread(const Digest256& key, std::string address = "tcp://127.0.0.1:0");
  ~BulkServerThread();

  const std::string& address() const { return server_->address(); }
  // Runs `act` between two turns of the server.
  void With(const std::function<void(ArenaStore&)>& act);
  // Everything reported so far, added up; upload marks: the last.
  BulkEvents Events();

 private:
  void Run();

  std::mutex mutex_;
  ArenaStore store_;
  std::unique_ptr<BulkServer> server_;
  BulkEvents total_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Passes bytes between one listener and `target` ("tcp://127.0.0.1:PORT"), connection by
// connection. `touch(bytes, n, from_server, position)` may change what passes; returning
// false cuts the connection.
class TcpProxy {
 public:
  using Touch = std::function<bool(uint8_t* bytes, size_t n, bool from_server, uint64_t position)>;

  TcpProxy(const std::string& target, Touch touch);
  ~TcpProxy();

  const std::string& address() const { return address_; }
  int connections() const { return connections_; }

 private:
  void Run();
  void Pass(int client, int server);

  uint16_t target_port_ = 0;
  Touch touch_;
  std::string address_;
  UniqueFd listener_;
  std::atomic<bool> stop_{false};
  std::atomic<int> connections_{0};
  std::thread thread_;
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_BULK_TESTING_H_
