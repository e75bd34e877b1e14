#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/delta_cuda.h"
#include "kernels/digest_cuda.h"
#include "kernels/gdn_cp_cuda.h"
#include "kernels/gdn_cuda.h"
#include "kernels/short_conv_cuda.h"
#include "tests/gpu/state_benches.h"
#include "tests/gpu/twin_check.h"

namespace lockstep::kernels {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

void Check(const absl::Status& status) {
  if (!status.ok()) Die(status);
}

BoxView Box(uint64_t rows, uint64_t columns, uint64_t first_column, uint64_t box_columns) {
  BoxView view = WholeTensorView({rows, columns}, 2);
  view.start = {0, first_column};
  view.extent = {rows, box_columns};
  view.stride_bytes = {static_cast<int64_t>(2 * box_columns), 2};
  return view;
}

}  // namespace

void BenchDigest(GpuBench& bench) {
  if (!bench.Wants("digest")) return;
  const DevicePageKeys keys = OrDie(DevicePageKeys::Upload(PublicPageKeys(), bench.stream()));
  const uint64_t bytes = 2 * kGiB;
  const DeviceBuffer from = bench.RandomHalves(bytes / 2);
  const DeviceBuffer to = bench.Allocate(bytes);
  const DeviceBuffer sums = bench.Allocate(PageSumBytes(bytes));
  const DeviceBuffer nans = bench.Allocate(sizeof(uint64_t) * 4096);
  const auto whole = [&](uint8_t* destination, uint64_t shift, NanFormat format) {
    return [&, destination, shift, format](int) {
      DigestTask task;
      task.source = from.As<uint8_t>() + shift;
      task.destination = destination;
      task.bytes = bytes - shift;
      task.nan_format = format;
      return CopyAndDigestCuda(keys, {task}, sums.As<PageSum>(), nans.As<uint64_t>(),
                               bench.stream());
    };
  };
  const double size = static_cast<double>(bytes);
  bench.Memory("digest", "2 GiB", size, Limit::kRead, whole(nullptr, 0, NanFormat::kNone));
  bench.Memory("digest", "2 GiB, BF16 NaNs counted", size, Limit::kRead,
               whole(nullptr, 0, NanFormat::kBf16));
  bench.Memory("digest", "2 GiB, misaligned", size, Limit::kRead,
               whole(nullptr, 2, NanFormat::kNone));
  bench.Memory("digest and copy", "2 GiB", 2 * size, Limit::kCopy,
               whole(to.As<uint8_t>(), 0, NanFormat::kNone));
  std::vector<DigestTask> tasks(512);
  for (size_t i = 0; i < tasks.size(); ++i) {
    tasks[i].source = from.As<uint8_t>() + i * (4 << 20);
    tasks[i].bytes = 4 << 20;
  }
  bench.Memory("digest", "512 tensors of 4 MiB", size, Limit::kRead, [&](int) {
    return CopyAndDigestCuda(keys, tasks, sums.As<PageSum>(), nans.As<uint64_t>(), bench.stream());
  });
  const auto view = [&](const BoxView& box, uint64_t tensor_bytes) {
    return [&, box, tensor_bytes](int) {
      return AddViewCuda(keys, box, from.As<uint8_t>(), bytes, tensor_bytes, sums.As<PageSum>(),
                         bench.stream());
    };
  };
  const uint64_t rows = 65536, columns = 16384;
  bench.Memory("digest of a view", "rows whole, 2 GiB", size, Limit::kRead,
               view(Box(rows, columns, 0, columns), bytes));
  bench.Memory("digest of a view", "a quarter of the columns", size / 4, Limit::kRead,
               view(Box(rows, columns, columns / 4, columns / 4), bytes));
  BoxView transposed = WholeTensorView({rows / 4, columns}, 2);
  transposed.stride_bytes = {2, static_cast<int64_t>(rows / 4 * 2)};
  bench.Memory("digest of a view", "transposed", size / 4, Limit::kRead,
               view(transposed, bytes / 4));
}

void BenchDelta(GpuBench& bench) {
  if (!bench.Wants("delta")) return;
  const uint64_t bytes = kGiB;
  const DeviceBuffer base = bench.RandomHalves(bytes / 2);
  for (const int per_mille : {0, 10, 100}) {
    const DeviceBuffer target = bench.Allocate(bytes);
    Check(CopyOnDevice(target.data(), base.data(), bytes, bench.stream()));
    // One block of random changes, repeated: the changed bits are the base's with one flipped.
    constexpr size_t kBlock = size_t{1} << 22;
    std::vector<uint16_t> block(kBlock);
    Check(CopyToHost(block.data(), base.data(), 2 * kBlock, bench.stream()));
    Check(SynchronizeStream(bench.stream()));
    uint64_t state = 12345;
    for (uint16_t& bits : block) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      if (static_cast<int>((state >> 33) % 1000) < per_mille) bits ^= 1;
    }
    for (uint64_t at = 0; at < bytes; at += 2 * kBlock) {
      Check(CopyToDevice(target.As<uint8_t>() + at, block.data(), 2 * kBlock, bench.stream()));
    }
    Check(SynchronizeStream(bench.stream()));
    const std::vector<DeviceDeltaSource> sources = {
        {{"w", "BF16", 2, bytes}, base.As<uint8_t>(), target.As<uint8_t>()}};
    const DeviceBuffer work = bench.Allocate(MakeDeltaCudaWorkspaceBytes(sources));
    const DeviceBuffer body = bench.Allocate(DeltaBodyBytes(sources));
    const std::string shape = absl::StrCat("1 GiB BF16, ", per_mille / 10, " % changed");
    bench.Memory("delta make", shape, 2.0 * static_cast<double>(bytes), Limit::kRead, [&](int) {
      return MakeDeltaCuda(sources, work.data(), body.As<uint8_t>(), body.bytes(), bench.stream());
    });
    const DeltaLayout layout = OrDie(DownloadDeltaLayout(
        {}, sources, work.data(), body.As<uint8_t>(), body.bytes(), bench.stream()));
    const DeltaPatch patch = OrDie(DeltaPatch::FromLayout(layout, {sources[0].tensor}, {}));
    const DeviceDeltaPatch on_device = OrDie(DeviceDeltaPatch::Upload(patch, bench.stream()));
    const std::vector<absl::Span<uint8_t>> buffers = {{target.As<uint8_t>(), bytes}};
    bench.Time("delta apply", shape, [&](int) { return on_device.Apply(buffers, bench.stream()); });
  }
}

namespace {

struct Sequence {
  Sequence(GpuBench& bench, int64_t tokens, int64_t key_heads, int64_t value_heads)
      : q(bench.RandomHalves(static_cast<size_t>(tokens * key_heads * 128))),
        k(bench.RandomHalves(static_cast<size_t>(tokens * key_heads * 128))),
        v(bench.RandomHalves(static_cast<size_t>(tokens * value_heads * 128))),
        o(bench.Allocate(static_cast<size_t>(tokens * value_heads * 128 * 2))),
        state(bench.Allocate(static_cast<size_t>(value_heads * 128 * 128 * 4))) {
    p.tokens = tokens, p.key_heads = key_heads, p.value_heads = value_heads;
    p.key_dim = p.value_dim = 128;
    p.input_type = p.out_type = FloatType::kBf16;
    const size_t gates = static_cast<size_t>(tokens * value_heads);
    std::vector<float> decay(gates), strength(gates);
    uint64_t random = 99;
    for (size_t i = 0; i < gates; ++i) {
      random = random * 6364136223846793005ull + 1442695040888963407ull;
      const float uniform = static_cast<float>(random >> 40) * 0x1p-24f;
      decay[i] = -0.2f * uniform;
      strength[i] = uniform;
    }
    g = bench.Allocate(gates * 4), beta = bench.Allocate(gates * 4);
    Check(CopyToDevice(g.data(), decay.data(), gates * 4, bench.stream()));
    Check(CopyToDevice(beta.data(), strength.data(), gates * 4, bench.stream()));
    Check(SynchronizeStream(bench.stream()));
    p.q = q.data(), p.k = k.data(), p.v = v.data(), p.g = g.data(), p.beta = beta.data();
    p.o = o.data(), p.state = state.As<float>();
    work = bench.Allocate(GdnCudaWorkspaceBytes(p));
  }

  DeviceBuffer q, k, v, g, beta, o, state, work;
  GdnParams p;
};

// Multiply-adds of gdn/chunk64@v1 per token and head of K = V = 128, triangles counted once.
double ChunkOperations(const GdnParams& p) {
  constexpr double kC = 64, kD = 128;
  const double triangle = kC * (kC + 1) / 2;
  const double chunk = 2 * triangle * kD + kC * kC * kC / 3 + 2 * triangle * kD + 2 * kC * kD * kD +
                       triangle * kD + kC * kD * kD;
  return chunk * static_cast<double>(p.tokens) / kC * static_cast<double>(p.value_heads);
}

}  // namespace

void BenchGdn(GpuBench& bench) {
  if (!bench.Wants("gdn")) return;
  for (const int64_t tokens : {int64_t{8192}, int64_t{512}}) {
    Sequence s(bench, tokens, 16, 32);
    s.p.program = GdnProgram::kChunk64;
    const std::string shape = absl::StrCat("T ", tokens, " Hk 16 Hv 32 K V 128 BF16");
    bench.Arithmetic("gdn chunk64", shape, ChunkOperations(s.p),
                     [&](int) { return GdnCuda(s.p, s.work.data(), bench.stream()); });
  }
  Sequence one(bench, 1, 16, 32);
  one.p.program = GdnProgram::kRecurrent;
  one.p.s0 = one.p.state;
  bench.Time("gdn recurrent", "T 1 Hk 16 Hv 32 K V 128 BF16",
             [&](int) { return GdnCuda(one.p, one.work.data(), bench.stream()); });
  Sequence long_run(bench, 1024, 16, 32);
  long_run.p.program = GdnProgram::kRecurrent;
  bench.Time("gdn recurrent", "T 1024 Hk 16 Hv 32 K V 128 BF16",
             [&](int) { return GdnCuda(long_run.p, long_run.work.data(), bench.stream()); });
  Sequence whole(bench, 8192, 16, 32);
  for (const int cp : {1, 4}) {
    bench.Time(
        "gdn canonical fold", absl::StrCat("T 8192, ", cp, " ranks on one card, staged"), [&](int) {
          return GdnCpSimulatedCuda(whole.p, GdnCpProgram::kCanonicalFold, cp, 0, bench.stream());
        });
  }
}

void BenchShortConv(GpuBench& bench) {
  ShortConvParams p;
  p.tokens = 65536, p.channels = 8192;
  const size_t elements = static_cast<size_t>(p.tokens * p.channels);
  if (!bench.Wants("short_conv")) return;
  const DeviceBuffer x = bench.RandomHalves(elements);
  const DeviceBuffer weight = bench.RandomHalves(static_cast<size_t>(4 * p.channels));
  const DeviceBuffer out = bench.Allocate(2 * elements);
  p.x = x.data(), p.weight = weight.data(), p.out = out.data();
  bench.Memory("short_conv", "[65536, 8192] BF16", 4.0 * static_cast<double>(elements),
               Limit::kCopy, [&](int) { return ShortConvCuda(p, bench.stream()); });
}

}  // namespace lockstep::kernels
