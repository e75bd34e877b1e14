// Speed of the bulk port beside a raw socket, both over loopback in the same run.
// Prints one JSON object:
//   {"bytes": N, "chunk_bytes": C, "credit": K, "raw_gbytes_per_s", "raw_cpu_s_per_gbyte",
//    "read_gbytes_per_s", "read_cpu_s_per_gbyte", "read_ratio",
//    "write_gbytes_per_s", "write_cpu_s_per_gbyte", "write_ratio"}
// raw: one thread sends N bytes, another receives them into one buffer of 1 MiB. read:
// BulkReader from a BulkServer into memory that was written before. write: BulkWriter into an
// arena of the server's. Each is the best of --runs. CPU time is of the whole process, all threads:
// it tells changes apart on a machine whose cores are shared.
//
// Example:
//   bazel run --config=opt //tests/bench:tcp_bench -- --bytes=1073741824

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/functional/function_ref.h"
#include "bridge/transport/bulk_reader.h"
#include "bridge/transport/bulk_testing.h"
#include "bridge/transport/bulk_writer.h"
#include "nlohmann/json.hpp"

ABSL_FLAG(uint64_t, bytes, uint64_t{1} << 30, "bytes a pass moves");
ABSL_FLAG(int, runs, 3, "passes; the best counts");
ABSL_FLAG(uint64_t, chunk_bytes, lockstep::transport::BulkOptions().chunk_bytes, "of a chunk");
ABSL_FLAG(int, credit, lockstep::transport::BulkOptions().credit, "chunks under way");

namespace lockstep::transport {
namespace {

constexpr uint64_t kArena = 1;
const Digest256 kKey{1};
const Incarnation kPeer{1};

struct Rate {
  double gbytes_per_s = 0;
  double cpu_s_per_gbyte = 1e9;
};

double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Zero when a pass fails.
Rate Best(uint64_t bytes, int runs, absl::FunctionRef<bool()> pass) {
  const double gbytes = static_cast<double>(bytes) * 1e-9;
  Rate best;
  for (int i = 0; i < runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const double cpu_start = CpuSeconds();
    if (!pass()) return Rate();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best.gbytes_per_s = std::max(best.gbytes_per_s, gbytes / seconds.count());
    best.cpu_s_per_gbyte = std::min(best.cpu_s_per_gbyte, (CpuSeconds() - cpu_start) / gbytes);
  }
  return best;
}

bool RawPass(uint64_t bytes, const std::vector<uint8_t>& source) {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.get(), generic, size) != 0 || ::listen(listener.get(), 1) != 0) return false;
  if (::getsockname(listener.get(), generic, &size) != 0) return false;
  UniqueFd client(::socket(AF_INET, SOCK_STREAM, 0));
  if (::connect(client.get(), generic, size) != 0) return false;
  UniqueFd server(::accept(listener.get(), nullptr, nullptr));
  std::thread sender([&] {
    for (uint64_t sent = 0; sent < bytes;) {
      const uint64_t at = sent % source.size();
      const size_t part = std::min<uint64_t>(source.size() - at, bytes - sent);
      const ssize_t n = ::send(server.get(), source.data() + at, part, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<uint64_t>(n);
    }
  });
  std::vector<uint8_t> buffer(1 << 20);
  uint64_t received = 0;
  while (received < bytes) {
    const ssize_t n = ::recv(client.get(), buffer.data(), buffer.size(), 0);
    if (n <= 0) break;
    received += static_cast<uint64_t>(n);
  }
  sender.join();
  return received == bytes;
}

int Main(uint64_t bytes, int runs, const BulkOptions& options) {
  std::vector<uint8_t> memory(bytes, 1);
  BulkServerThread server(kKey);
  server.With([&](ArenaStore& store) {
    if (!store.Create(kArena, bytes).ok()) return;
    store.Grant(kPeer, kArena, /*write=*/false);
    store.Grant(kPeer, kArena, /*write=*/true);
    std::fill_n(store.Find(kArena)->writable_bytes().begin(), bytes, uint8_t{1});
  });
  const BulkEndpoint endpoint{server.address(), kKey, kPeer};
  auto reader = BulkReader::Connect(endpoint, options);
  auto writer = BulkWriter::Connect(endpoint, options);
  if (!reader.ok() || !writer.ok()) {
    std::cerr << reader.status() << writer.status() << "\n";
    return 2;
  }
  RoundFeed feed(bytes);
  absl::Status last;
  const Rate raw = Best(bytes, runs, [&] { return RawPass(bytes, memory); });
  const Rate read = Best(bytes, runs, [&] {
    server.With([&](ArenaStore& store) { store.SetServeMark(kArena, bytes); });
    uint64_t done = 0;
    last = reader->Fetch(kArena, absl::MakeSpan(memory), feed, done);
    return last.ok();
  });
  const Rate write = Best(bytes, runs, [&] {
    // A mark that goes down starts an upload anew.
    server.With([&](ArenaStore& store) {
      store.SetServeMark(kArena, bytes);
      store.SetServeMark(kArena, 0);
    });
    last = writer->Begin(kArena, bytes);
    if (last.ok()) last = writer->Write(0, memory, feed);
    if (last.ok()) last = writer->Finish(feed);
    return last.ok();
  });
  if (!last.ok()) std::cerr << last << "\n";
  nlohmann::json out = {
      {"bytes", bytes}, {"chunk_bytes", options.chunk_bytes}, {"credit", options.credit}};
  for (const auto& [name, rate] :
       {std::pair<std::string, Rate>("raw", raw), {"read", read}, {"write", write}}) {
    out[name + "_gbytes_per_s"] = rate.gbytes_per_s;
    out[name + "_cpu_s_per_gbyte"] = rate.cpu_s_per_gbyte;
    if (name != "raw" && raw.gbytes_per_s > 0) {
      out[name + "_ratio"] = rate.gbytes_per_s / raw.gbytes_per_s;
    }
  }
  std::cout << out.dump() << "\n";
  return raw.gbytes_per_s > 0 && read.gbytes_per_s > 0 && write.gbytes_per_s > 0 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::transport

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  lockstep::transport::BulkOptions options;
  options.chunk_bytes = absl::GetFlag(FLAGS_chunk_bytes);
  options.credit = absl::GetFlag(FLAGS_credit);
  return lockstep::transport::Main(absl::GetFlag(FLAGS_bytes), absl::GetFlag(FLAGS_runs), options);
}
