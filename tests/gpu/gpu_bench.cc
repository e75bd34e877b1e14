#include "tests/gpu/gpu_bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>

#include "kernels/float_formats.h"
#include "tests/gpu/floors.h"
#include "tests/gpu/twin_check.h"

namespace lockstep::kernels {
namespace {

constexpr int kGroups = 15;
// A group is long enough that the events' own time does not count.
constexpr double kGroupMicroseconds = 2000;
constexpr int kMaxCallsInGroup = 200;
constexpr size_t kFloorBytes = size_t{2} << 30;
constexpr size_t kScratchBytes = 4096;
constexpr size_t kRandomElements = size_t{1} << 22;

void Check(const absl::Status& status) {
  if (!status.ok()) Die(status);
}

std::vector<float> Normal(float scale) {
  std::mt19937 engine(20260801);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(kRandomElements);
  for (float& value : values) value = normal(engine);
  return values;
}

}  // namespace

GpuBench::GpuBench(std::string only)
    : stream_(OrDie(OwnedCudaStream::Create())),
      device_(OrDie(DescribeCudaDevice(0))),
      only_(std::move(only)) {
  const DeviceBuffer from = RandomHalves(kFloorBytes / sizeof(uint16_t));
  const DeviceBuffer to = Allocate(kFloorBytes);
  const DeviceBuffer scratch = Allocate(kScratchBytes);
  const double copy_us =
      Measure([&](int) { return CopyOnDevice(to.data(), from.data(), kFloorBytes, stream()); });
  const double read_us =
      Measure([&](int) { return ReadFloor(from.data(), kFloorBytes, scratch.data(), stream()); });
  const double fma_us =
      Measure([&](int) { return FmaFloor(device_.multiprocessors, scratch.data(), stream()); });
  copy_gb_s_ = 2.0 * kFloorBytes / copy_us / 1e3;
  read_gb_s_ = 1.0 * kFloorBytes / read_us / 1e3;
  fma_tflop_s_ =
      2.0 * static_cast<double>(FmaFloorOperations(device_.multiprocessors)) / fma_us / 1e6;
  printf("%s: copy %.0f GB/s, read %.0f GB/s, fp32 FMA %.1f TFLOP/s\n", device_.name.c_str(),
         copy_gb_s_, read_gb_s_, fma_tflop_s_);
}

bool GpuBench::Wants(const char* name) const { return strstr(name, only_.c_str()) != nullptr; }

DeviceBuffer GpuBench::Allocate(size_t bytes) const { return OrDie(DeviceBuffer::Allocate(bytes)); }

DeviceBuffer GpuBench::Repeat(const void* host, size_t host_bytes, size_t bytes) {
  DeviceBuffer buffer = Allocate(bytes);
  size_t filled = std::min(host_bytes, bytes);
  Check(CopyToDevice(buffer.data(), host, filled, stream()));
  while (filled < bytes) {
    const size_t more = std::min(filled, bytes - filled);
    Check(CopyOnDevice(buffer.As<char>() + filled, buffer.data(), more, stream()));
    filled += more;
  }
  Check(SynchronizeStream(stream()));
  return buffer;
}

DeviceBuffer GpuBench::RandomHalves(size_t count, float scale) {
  std::vector<uint16_t> halves;
  halves.reserve(kRandomElements);
  for (const float value : Normal(scale)) halves.push_back(Bf16::Store(value));
  return Repeat(halves.data(), halves.size() * sizeof(uint16_t), count * sizeof(uint16_t));
}

DeviceBuffer GpuBench::RandomFloats(size_t count, float scale) {
  const std::vector<float> values = Normal(scale);
  return Repeat(values.data(), values.size() * sizeof(float), count * sizeof(float));
}

double GpuBench::Measure(const Body& body) {
  CudaEvent start = OrDie(CudaEvent::Create());
  CudaEvent end = OrDie(CudaEvent::Create());
  int turn = 0;
  const auto group = [&](int calls) {
    Check(start.Record(stream()));
    for (int i = 0; i < calls; ++i) Check(body(turn++));
    Check(end.Record(stream()));
    Check(end.Synchronize());
    return 1e3 * static_cast<double>(OrDie(end.MillisecondsSince(start))) / calls;
  };
  group(3);  // module load, clocks
  const double once = group(3);
  const int calls =
      std::clamp(static_cast<int>(std::ceil(kGroupMicroseconds / once)), 1, kMaxCallsInGroup);
  std::vector<double> times;
  for (int g = 0; g < kGroups; ++g) times.push_back(group(calls));
  std::nth_element(times.begin(), times.begin() + kGroups / 2, times.end());
  return times[kGroups / 2];
}

void GpuBench::Add(const Row& row) {
  rows_.push_back(row);
  if (row.limit > 0) {
    printf("%-28s %-34s %10.1f us %9.1f %-8s %5.3f of limit\n", row.name.c_str(), row.shape.c_str(),
           row.microseconds, row.figure, row.unit.c_str(), row.figure / row.limit);
  } else {
    printf("%-28s %-34s %10.1f us\n", row.name.c_str(), row.shape.c_str(), row.microseconds);
  }
  fflush(stdout);
}

void GpuBench::Memory(const char* name, const std::string& shape, double bytes, Limit limit,
                      const Body& body) {
  if (!Wants(name)) return;
  const double us = Measure(body);
  Add({name, shape, "GB/s", us, bytes / us / 1e3, limit == Limit::kCopy ? copy_gb_s_ : read_gb_s_});
}

void GpuBench::Arithmetic(const char* name, const std::string& shape, double operations,
                          const Body& body) {
  if (!Wants(name)) return;
  const double us = Measure(body);
  Add({name, shape, "TFLOP/s", us, 2.0 * operations / us / 1e6, fma_tflop_s_});
}

void GpuBench::Time(const char* name, const std::string& shape, const Body& body) {
  if (!Wants(name)) return;
  Add({name, shape, "", Measure(body), 0, 0});
}

}  // namespace lockstep::kernels
