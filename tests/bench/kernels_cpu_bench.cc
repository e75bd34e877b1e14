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
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/types/span.h"
#include "kernels/digest.h"
#include "kernels/float_formats.h"
#include "kernels/gate_table.h"
#include "kernels/swiglu.h"
#include "nlohmann/json.hpp"

ABSL_FLAG(uint64_t, bytes, uint64_t{1} << 30, "bytes a pass reads");
ABSL_FLAG(int, runs, 4, "passes; the best counts");

namespace lockstep::kernels {
namespace {

struct Contender {
  std::string name;
  std::string limit;   // another contender's name; empty: none
  uint64_t bytes = 0;  // that a pass moves
  std::function<void()> pass;
  double best_gbytes_per_s = 0;
};

// In turns, so that whatever else the machine does meets all alike; the best pass counts.
void Race(std::vector<Contender>& contenders, int runs) {
  for (int i = 0; i < runs; ++i) {
    for (Contender& contender : contenders) {
      const auto start = std::chrono::steady_clock::now();
      contender.pass();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      contender.best_gbytes_per_s =
          std::max(contender.best_gbytes_per_s,
                   static_cast<double>(contender.bytes) / seconds.count() * 1e-9);
    }
  }
}

// As fast as one core reads: four streams at once keep more lines in flight than one does, and
// a page ahead the hardware's prefetcher has not started yet.
constexpr uint64_t kStreams = 4;
constexpr uint64_t kPrefetchWords = 256;
using Vector = uint64_t __attribute__((vector_size(32), aligned(8), may_alias));

__attribute__((target_clones("avx2", "default"))) uint64_t SumWords(const uint64_t* words,
                                                                    uint64_t count) {
  const uint64_t quarter = count / kStreams / 8 * 8;
  Vector sums[2 * kStreams] = {};
  for (uint64_t i = 0; i < quarter; i += 8) {
    for (uint64_t s = 0; s < kStreams; ++s) {
      const uint64_t* at = words + s * quarter + i;
      __builtin_prefetch(at + kPrefetchWords);
      sums[2 * s] += *reinterpret_cast<const Vector*>(at);
      sums[2 * s + 1] += *reinterpret_cast<const Vector*>(at + 4);
    }
  }
  uint64_t total = 0;
  for (const Vector& sum : sums) total += sum[0] + sum[1] + sum[2] + sum[3];
  return total;
}

// BF16 values as activations have them: about normal, standard deviation 1 (the sum of twelve
// uniform ones).
void FillWithActivations(absl::Span<uint64_t> words) {
  uint64_t state = 1;
  const auto next = [&state] {
    return state = state * 6364136223846793005u + 1442695040888963407u;
  };
  const auto activation = [&next] {
    float sum = -6;
    for (int i = 0; i < 6; ++i) {
      const uint64_t bits = next() >> 32;
      sum += static_cast<float>((bits & 0xFFFF) + (bits >> 16)) * 0x1p-16f;
    }
    return static_cast<uint64_t>(Bf16::Store(sum));
  };
  for (uint64_t& word : words) {
    word = activation() | activation() << 16 | activation() << 32 | activation() << 48;
  }
}

nlohmann::json Figures(const std::vector<Contender>& contenders) {
  nlohmann::json figures = nlohmann::json::array();
  for (const Contender& contender : contenders) {
    nlohmann::json figure = {{"name", contender.name},
                             {"gbytes_per_s", contender.best_gbytes_per_s}};
    for (const Contender& limit : contenders) {
      if (limit.name != contender.limit) continue;
      figure["limit"] = limit.name;
      figure["limit_gbytes_per_s"] = limit.best_gbytes_per_s;
      figure["ratio"] = contender.best_gbytes_per_s / limit.best_gbytes_per_s;
    }
    figures.push_back(std::move(figure));
  }
  return figures;
}

constexpr char kRead[] = "read, sum of 64-bit words";
constexpr char kCopy[] = "memcpy";
constexpr int64_t kSwigluColumns = 2'048;

int Main(uint64_t bytes, int runs) {
  bytes = bytes / kPageBytes * kPageBytes;
  if (bytes == 0 || runs < 1) {
    std::cerr << "kernels_cpu_bench: expected --bytes of at least 65536 and --runs of at least 1\n";
    return 2;
  }
  std::vector<uint64_t> source(bytes / 8);
  std::vector<uint64_t> target(bytes / 8);
  FillWithActivations(absl::MakeSpan(source));
  const auto* from = reinterpret_cast<const uint8_t*>(source.data());
  auto* to = reinterpret_cast<uint8_t*>(target.data());
  const PageKeys& keys = PublicPageKeys();
  const auto silu = FindSiluTable("silu/sm90_triton@v1", FloatType::kBf16);
  if (!silu.ok()) {
    std::cerr << "kernels_cpu_bench: " << silu.status() << "\n";
    return 1;
  }

  volatile uint64_t keep = 0;  // so that no pass is optimised away
  const auto digest = [&](uint8_t* destination, NanFormat format) {
    return [&keep, &keys, from, bytes, destination, format] {
      const DigestTask task{from, destination, bytes, format};
      keep = keep + CopyAndDigest(keys, {task}, 1)[0].table.pages()[0].lane0;
    };
  };
  SwigluParams swiglu;
  swiglu.columns = kSwigluColumns;
  swiglu.rows = static_cast<int64_t>(bytes) / (4 * kSwigluColumns);
  swiglu.SetPackedGateUp(from);
  swiglu.out = to;
  const auto activate = [&keep, &swiglu](const GateTable* table) {
    return [&keep, &swiglu, table] {
      swiglu.silu = table;
      keep = keep + static_cast<uint64_t>(Swiglu(swiglu).raw_code());
    };
  };
  std::vector<Contender> contenders = {
      {kRead, "", bytes, [&] { keep = keep + SumWords(source.data(), source.size()); }},
      {kCopy, "", bytes, [&] { memcpy(to, from, bytes); }},
      {"digest/paged@v1", kRead, bytes, digest(nullptr, NanFormat::kNone)},
      {"digest/paged@v1, counting bf16 NaNs", kRead, bytes, digest(nullptr, NanFormat::kBf16)},
      {"copy fused with digest/paged@v1", kCopy, bytes, digest(to, NanFormat::kNone)},
      {"copy fused with digest/paged@v1, counting bf16 NaNs", kCopy, bytes,
       digest(to, NanFormat::kBf16)},
      {"swiglu/one_round_fp32@v1 with a table", kRead, bytes + bytes / 2, activate(*silu)},
      {"swiglu/one_round_fp32@v1, computed", kRead, bytes + bytes / 2, activate(nullptr)},
  };
  Race(contenders, runs);
  nlohmann::json out;
  out["bytes"] = bytes;
  out["figures"] = Figures(contenders);
  std::cout << out.dump(2) << "\n";
  return 0;
}

}  // namespace
}  // namespace lockstep::kernels

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return lockstep::kernels::Main(absl::GetFlag(FLAGS_bytes), absl::GetFlag(FLAGS_runs));
}
