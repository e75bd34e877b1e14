// CPU speed of the memory-bound kernels, each figure beside the limit measured in the same run.
// Prints one JSON object:
//   {"bytes": N, "figures": [{"name", "gbytes_per_s", "limit", "limit_gbytes_per_s", "ratio"}]}
// A figure is the best of --runs passes over --bytes bytes on one thread, in bytes of input.
//
// Example:
//   bazel run --config=opt //tests/bench:kernels_cpu_bench -- --bytes=1073741824 --runs=4

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/functional/function_ref.h"
#include "kernels/digest.h"
#include "nlohmann/json.hpp"

ABSL_FLAG(uint64_t, bytes, uint64_t{1} << 30, "bytes a pass reads");
ABSL_FLAG(int, runs, 4, "passes; the best counts");

namespace lockstep::kernels {
namespace {

double BestGbytesPerSecond(uint64_t bytes, int runs, absl::FunctionRef<void()> pass) {
  double best = 0;
  for (int i = 0; i < runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    pass();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(bytes) / seconds.count() * 1e-9);
  }
  return best;
}

uint64_t SumWords(const uint64_t* words, uint64_t count) {
  uint64_t sums[8] = {};
  for (uint64_t i = 0; i + 8 <= count; i += 8) {
    for (int j = 0; j < 8; ++j) sums[j] += words[i + j];
  }
  uint64_t total = 0;
  for (uint64_t sum : sums) total += sum;
  return total;
}

nlohmann::json Figure(const std::string& name, double rate, const std::string& limit,
                      double limit_rate) {
  return {{"name", name},
          {"gbytes_per_s", rate},
          {"limit", limit},
          {"limit_gbytes_per_s", limit_rate},
          {"ratio", rate / limit_rate}};
}

int Main(uint64_t bytes, int runs) {
  bytes = bytes / kPageBytes * kPageBytes;
  if (bytes == 0 || runs < 1) {
    std::cerr << "kernels_cpu_bench: expected --bytes of at least 65536 and --runs of at least 1\n";
    return 2;
  }
  std::vector<uint64_t> source(bytes / 8);
  std::vector<uint64_t> target(bytes / 8);
  for (uint64_t i = 0; i < source.size(); ++i) source[i] = i * 0x9E3779B97F4A7C15;
  const auto* from = reinterpret_cast<const uint8_t*>(source.data());
  auto* to = reinterpret_cast<uint8_t*>(target.data());
  const PageKeys& keys = PublicPageKeys();

  volatile uint64_t keep = 0;  // so that no pass is optimised away
  const double read = BestGbytesPerSecond(
      bytes, runs, [&] { keep = keep + SumWords(source.data(), source.size()); });
  const double copy = BestGbytesPerSecond(bytes, runs, [&] { memcpy(to, from, bytes); });
  const auto digest = [&](uint8_t* destination, NanFormat format) {
    return BestGbytesPerSecond(bytes, runs, [&] {
      const DigestTask task{from, destination, bytes, format};
      keep = keep + CopyAndDigest(keys, {task}, 1)[0].table.pages()[0].lane0;
    });
  };
  nlohmann::json out;
  out["bytes"] = bytes;
  out["figures"] = {
      Figure("read, sum of 64-bit words", read, "itself", read),
      Figure("memcpy", copy, "itself", copy),
      Figure("digest/paged@v1", digest(nullptr, NanFormat::kNone), "read", read),
      Figure("digest/paged@v1, counting bf16 NaNs", digest(nullptr, NanFormat::kBf16), "read",
             read),
      Figure("copy fused with digest/paged@v1", digest(to, NanFormat::kNone), "memcpy", copy),
      Figure("copy fused with digest/paged@v1, counting bf16 NaNs", digest(to, NanFormat::kBf16),
             "memcpy", copy),
  };
  std::cout << out.dump(2) << "\n";
  return 0;
}

}  // namespace
}  // namespace lockstep::kernels

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return lockstep::kernels::Main(absl::GetFlag(FLAGS_bytes), absl::GetFlag(FLAGS_runs));
}
