#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/gate_table_cuda.h"
#include "kernels/moe_cuda.h"
#include "kernels/rmsnorm_cuda.h"
#include "kernels/swiglu_cuda.h"
#include "tests/gpu/benches.h"
#include "tests/gpu/twin_check.h"

namespace lockstep::kernels {
namespace {

std::string Shape(int64_t rows, int64_t columns) {
  return absl::StrCat("[", rows, ", ", columns, "] BF16");
}

void BenchSwiglu(GpuBench& bench, int64_t rows, int64_t columns) {
  const size_t elements = static_cast<size_t>(rows * columns);
  const DeviceBuffer gate_up = bench.RandomHalves(2 * elements);
  const DeviceBuffer out = bench.Allocate(2 * elements);
  const GateTable* table = OrDie(FindSiluTable(kSiluSm90Triton, FloatType::kBf16));
  const DeviceGateTable silu = OrDie(DeviceGateTable::Upload(*table, bench.stream()));
  const double bytes = 6.0 * static_cast<double>(elements);
  SwigluParams p;
  p.rows = rows, p.columns = columns;
  p.SetPackedGateUp(gate_up.data());
  p.out = out.data();
  const std::string shape = Shape(rows, columns);
  bench.Memory("swiglu one_round table", shape, bytes, Limit::kCopy,
               [&](int) { return SwigluCuda(p, &silu, bench.stream()); });
  bench.Memory("swiglu one_round computed", shape, bytes, Limit::kCopy,
               [&](int) { return SwigluCuda(p, nullptr, bench.stream()); });
  p.program = SwigluProgram::kTwoRound;
  bench.Memory("swiglu two_round table", shape, bytes, Limit::kCopy,
               [&](int) { return SwigluCuda(p, &silu, bench.stream()); });
}

void BenchSwigluVjp(GpuBench& bench, int64_t rows, int64_t columns) {
  const size_t elements = static_cast<size_t>(rows * columns);
  const DeviceBuffer gate_up = bench.RandomHalves(2 * elements);
  const DeviceBuffer dout = bench.RandomHalves(elements);
  const DeviceBuffer gradients = bench.Allocate(4 * elements);
  const GateTable* table = OrDie(FindSigmoidTable(FloatType::kBf16));
  const DeviceGateTable sigmoid = OrDie(DeviceGateTable::Upload(*table, bench.stream()));
  SwigluVjpParams p;
  p.rows = rows, p.columns = columns;
  p.SetPackedGateUp(gate_up.data());
  p.SetPackedGradients(gradients.data());
  p.dout = dout.data();
  bench.Memory("swiglu_vjp table", Shape(rows, columns), 10.0 * static_cast<double>(elements),
               Limit::kCopy, [&](int) { return SwigluVjpCuda(p, &sigmoid, bench.stream()); });
  bench.Memory("swiglu_vjp computed", Shape(rows, columns), 10.0 * static_cast<double>(elements),
               Limit::kCopy, [&](int) { return SwigluVjpCuda(p, nullptr, bench.stream()); });
}

void BenchMoeLeaf(GpuBench& bench, int64_t rows, int64_t columns) {
  const size_t elements = static_cast<size_t>(rows * columns);
  const DeviceBuffer routed = bench.RandomHalves(elements), shared = bench.RandomHalves(elements);
  const DeviceBuffer out = bench.Allocate(2 * elements);
  MoeLeafParams leaf;
  leaf.rows = rows, leaf.columns = columns, leaf.scale = 2.5f;
  leaf.routed = routed.data(), leaf.shared = shared.data(), leaf.out = out.data();
  const double bytes = 6.0 * static_cast<double>(elements);
  const auto run = [&](int) { return MoeLeafCuda(leaf, bench.stream()); };
  leaf.program = MoeLeafProgram::kBf16Add;
  bench.Memory("moe_leaf bf16_add", Shape(rows, columns), bytes, Limit::kCopy, run);
  leaf.program = MoeLeafProgram::kFp32Fma;
  bench.Memory("moe_leaf fp32_fma", Shape(rows, columns), bytes, Limit::kCopy, run);
}

void BenchMoeFold(GpuBench& bench, MoeFoldParams p) {
  const size_t elements = static_cast<size_t>(p.rows * p.columns);
  const DeviceBuffer partials = bench.RandomHalves(elements * static_cast<size_t>(p.contributors));
  const DeviceBuffer out = bench.Allocate(2 * elements);
  p.partials = partials.data(), p.out = out.data();
  const double bytes =
      2.0 * static_cast<double>(elements) * static_cast<double>(p.contributors + 1);
  const std::string shape = absl::StrCat("E ", p.contributors, " ", Shape(p.rows, p.columns));
  const auto run = [&](int) { return MoeFoldCuda(p, bench.stream()); };
  p.program = MoeFoldProgram::kBf16Tree;
  bench.Memory("moe_fold bf16_tree", shape, bytes, Limit::kCopy, run);
  p.program = MoeFoldProgram::kFp32Tree;
  bench.Memory("moe_fold fp32_tree", shape, bytes, Limit::kCopy, run);
  p.program = MoeFoldProgram::kFp64Tree;
  bench.Memory("moe_fold fp64_tree", shape, bytes, Limit::kCopy, run);
}

void BenchRmsNorm(GpuBench& bench, int64_t rows, int64_t columns) {
  const size_t elements = static_cast<size_t>(rows * columns);
  const DeviceBuffer x = bench.RandomHalves(elements), residual = bench.RandomHalves(elements);
  const DeviceBuffer weight = bench.RandomHalves(static_cast<size_t>(columns));
  const DeviceBuffer out = bench.Allocate(2 * elements), kept = bench.Allocate(2 * elements);
  RmsNormParams p;
  p.rows = rows, p.columns = columns;
  p.x = x.As<uint16_t>(), p.weight = weight.data(), p.out = out.As<uint16_t>();
  bench.Memory("rmsnorm", Shape(rows, columns), 4.0 * static_cast<double>(elements), Limit::kCopy,
               [&](int) { return RmsNormCuda(p, bench.stream()); });
  p.residual = residual.As<uint16_t>(), p.residual_out = kept.As<uint16_t>();
  bench.Memory("rmsnorm residual", Shape(rows, columns), 8.0 * static_cast<double>(elements),
               Limit::kCopy, [&](int) { return RmsNormCuda(p, bench.stream()); });
}

}  // namespace

void BenchElementwise(GpuBench& bench) {
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>(16384, 12288), std::pair<int64_t, int64_t>(65536, 1536)}) {
    if (bench.Wants("swiglu one_round") || bench.Wants("swiglu two_round")) {
      BenchSwiglu(bench, rows, columns);
    }
    if (bench.Wants("swiglu_vjp")) BenchSwigluVjp(bench, rows, columns);
  }
  BenchMoeLeaf(bench, 32768, 6144);
  for (const int64_t contributors : {8, 16}) {
    MoeFoldParams p;
    p.contributors = contributors, p.rows = 8192, p.columns = 6144;
    BenchMoeFold(bench, p);
  }
  for (const int64_t columns : {2048, 4096, 5120, 7168}) {
    if (bench.Wants("rmsnorm")) BenchRmsNorm(bench, 32768, columns);
  }
}

}  // namespace lockstep::kernels
