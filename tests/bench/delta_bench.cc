// What `delta/overwrite@v1` costs between two real checkpoints of one config. Prints one JSON
// object: the share of elements that changed, the patch's bytes and their share of the full bytes,
// the ratio of the two shares, bytes per section before and after zstd, and the rates.
//
// Example:
//   bazel run --config=opt //tests/bench:delta_bench -- step1.safetensors step2.safetensors

#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "kernels/delta.h"
#include "nlohmann/json.hpp"
#include "policy/safetensors.h"

ABSL_FLAG(int, level, lockstep::kernels::kDeltaLevel, "zstd level");
ABSL_FLAG(int, threads, 1, "threads");

namespace lockstep::kernels {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

absl::Span<const uint8_t> Bytes(const std::string& file, const SafetensorsTensor& tensor) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(file.data()), file.size())
      .subspan(tensor.data_begin, tensor.data_end - tensor.data_begin);
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int Main(const std::string& base_path, const std::string& target_path) {
  const std::string base = ReadFile(base_path);
  const std::string target = ReadFile(target_path);
  const SafetensorsParse base_parse = ParseSafetensorsHeader(base.size(), base);
  const SafetensorsParse target_parse = ParseSafetensorsHeader(target.size(), target);
  if (!base_parse.refusals.empty() || !target_parse.refusals.empty() ||
      base_parse.header.tensors != target_parse.header.tensors) {
    std::cerr << "delta_bench: expected two safetensors files with the same tensors\n";
    return 2;
  }
  std::vector<DeltaSource> sources;
  std::vector<DeltaTensor> tensors;
  uint64_t full_bytes = 0;
  uint64_t elements = 0;
  for (const SafetensorsTensor& tensor : base_parse.header.tensors) {
    const absl::Span<const uint8_t> from = Bytes(base, tensor);
    const uint64_t element_bytes = DtypeBytes(tensor.spec.dtype);
    tensors.push_back({tensor.spec.name, std::string(DtypeName(tensor.spec.dtype)),
                       static_cast<uint32_t>(element_bytes), from.size()});
    sources.push_back({tensors.back(), from, Bytes(target, tensor)});
    full_bytes += from.size();
    elements += from.size() / element_bytes;
  }
  const int threads = absl::GetFlag(FLAGS_threads);
  auto start = std::chrono::steady_clock::now();
  const auto layout = MakeDeltaLayout({}, sources, threads);
  const double make_seconds = SecondsSince(start);
  start = std::chrono::steady_clock::now();
  const auto patch =
      layout.ok() ? PackDelta(*layout, absl::GetFlag(FLAGS_level), threads) : layout.status();
  const double pack_seconds = SecondsSince(start);
  start = std::chrono::steady_clock::now();
  const auto opened = patch.ok() ? DeltaPatch::Open(*patch, tensors, {}) : patch.status();
  const double open_seconds = SecondsSince(start);
  if (!opened.ok()) {
    std::cerr << "delta_bench: " << opened.status() << "\n";
    return 1;
  }
  const double changed_share = static_cast<double>(opened->changed_elements()) / elements;
  const double wire_share = static_cast<double>(patch->size()) / full_bytes;
  nlohmann::json out = {{"full_bytes", full_bytes},
                        {"elements", elements},
                        {"changed_elements", opened->changed_elements()},
                        {"raw_pages", opened->raw_pages()},
                        {"changed_share", changed_share},
                        {"wire_bytes", patch->size()},
                        {"wire_share", wire_share},
                        {"wire_share_per_changed_share", wire_share / changed_share},
                        {"make_gbytes_per_s", full_bytes / make_seconds * 1e-9},
                        {"pack_seconds", pack_seconds},
                        {"open_seconds", open_seconds}};
  for (const auto& section : layout->sections) out["layout_bytes"].push_back(section.size());
  std::cout << out.dump(2) << "\n";
  return 0;
}

}  // namespace
}  // namespace lockstep::kernels

int main(int argc, char** argv) {
  const std::vector<char*> args = absl::ParseCommandLine(argc, argv);
  if (args.size() != 3) {
    std::cerr << "usage: delta_bench [--level=N] [--threads=N] BASE.safetensors "
                 "TARGET.safetensors\n";
    return 2;
  }
  return lockstep::kernels::Main(args[1], args[2]);
}
