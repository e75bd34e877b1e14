#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/gemm_cuda.h"
#include "tests/gpu/benches.h"
#include "tests/gpu/twin_check.h"

namespace lockstep::kernels {
namespace {

std::string Shape(const GemmParams& p) {
  return absl::StrCat("M ", p.m, " N ", p.n, " K ", p.k, " ", Name(p.operand_type));
}

GemmParams Sized(GemmProgram program, int64_t m, int64_t n, int64_t k) {
  GemmParams p;
  p.program = program;
  p.m = m, p.n = n, p.k = k;
  return p;
}

void BenchLarge(GpuBench& bench, const char* name, GemmParams p) {
  const DeviceBuffer a = bench.RandomHalves(static_cast<size_t>(p.m * p.k));
  const DeviceBuffer b = bench.RandomHalves(static_cast<size_t>(p.n * p.k));
  const DeviceBuffer out = bench.Allocate(static_cast<size_t>(2 * p.m * p.n));
  p.a = a.data(), p.b = b.data(), p.out = out.data();
  bench.Arithmetic(name, Shape(p), static_cast<double>(p.m * p.n) * static_cast<double>(p.k),
                   [&](int) { return GemmCuda(p, bench.stream()); });
}

// The weights are several times the cache, one set after another.
void BenchDecode(GpuBench& bench, const char* name, GemmParams p) {
  constexpr size_t kWeightBytes = size_t{1} << 30;
  const size_t set_elements = static_cast<size_t>(p.n * p.k);
  const int sets = static_cast<int>(kWeightBytes / (2 * set_elements)) + 1;
  const DeviceBuffer a = bench.RandomHalves(static_cast<size_t>(p.m * p.k));
  const DeviceBuffer b = bench.RandomHalves(static_cast<size_t>(sets) * set_elements);
  const DeviceBuffer out = bench.Allocate(static_cast<size_t>(2 * p.m * p.n));
  p.a = a.data(), p.out = out.data();
  bench.Memory(name, Shape(p), 2.0 * static_cast<double>(p.m * p.k + p.n * p.k + p.m * p.n),
               Limit::kRead, [&](int turn) {
                 p.b = b.As<uint16_t>() + static_cast<size_t>(turn % sets) * set_elements;
                 return GemmCuda(p, bench.stream());
               });
}

}  // namespace

void BenchProducts(GpuBench& bench) {
  if (!bench.Wants("gemm k_chain") && !bench.Wants("gemm k_tile")) return;
  BenchLarge(bench, "gemm k_chain", Sized(GemmProgram::kChain, 4096, 4096, 4096));
  BenchLarge(bench, "gemm k_tile", Sized(GemmProgram::kTile, 4096, 4096, 4096));
  BenchLarge(bench, "gemm k_chain", Sized(GemmProgram::kChain, 512, 4096, 4096));
  for (const int64_t m : {1, 2, 4, 8}) {
    BenchDecode(bench, "gemm k_chain", Sized(GemmProgram::kChain, m, 8192, 4096));
    BenchDecode(bench, "gemm k_chain", Sized(GemmProgram::kChain, m, 24576, 4096));
  }
  BenchDecode(bench, "gemm k_chain", Sized(GemmProgram::kChain, 32, 24576, 4096));
  BenchDecode(bench, "gemm k_tile", Sized(GemmProgram::kTile, 1, 24576, 4096));
  BenchDecode(bench, "gemm k_tile", Sized(GemmProgram::kTile, 8, 24576, 4096));
}

}  // namespace lockstep::kernels
