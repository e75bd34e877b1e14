// Speed of the CUDA twins over weights and sequences at real shapes, each figure beside the card's
// limit in the same run.
//
//   state_twins_bench [--only SUBSTRING_OF_A_NAME] [--json FILE]

#include <cstdio>
#include <fstream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "nlohmann/json.hpp"
#include "tests/gpu/gpu_bench.h"
#include "tests/gpu/state_benches.h"
#include "tests/gpu/twin_check.h"

ABSL_FLAG(std::string, only, "", "run only what has this in its name");
ABSL_FLAG(std::string, json, "", "write the figures to this file as JSON");

int main(int argc, char** argv) {
  using namespace lockstep::kernels;
  absl::ParseCommandLine(argc, argv);
  if (OrDie(CudaDeviceCount()) == 0) {
    Die(absl::UnavailableError("no CUDA device: run this on a machine with one"));
  }
  GpuBench bench(absl::GetFlag(FLAGS_only));
  BenchDigest(bench);
  BenchDelta(bench);
  BenchShortConv(bench);
  BenchGdn(bench);
  const std::string path = absl::GetFlag(FLAGS_json);
  if (path.empty()) return 0;
  nlohmann::json figures = nlohmann::json::array();
  for (const GpuBench::Row& row : bench.rows()) {
    nlohmann::json figure = {
        {"name", row.name}, {"shape", row.shape}, {"microseconds", row.microseconds}};
    if (row.limit > 0) {
      figure["figure"] = row.figure;
      figure["unit"] = row.unit;
      figure["limit"] = row.limit;
      figure["ratio"] = row.figure / row.limit;
    }
    figures.push_back(figure);
  }
  std::ofstream out(path);
  out << nlohmann::json{{"device", bench.device().name}, {"figures", figures}}.dump(2) << "\n";
  return out ? 0 : 1;
}
