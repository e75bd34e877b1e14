#ifndef LOCKSTEP_TESTS_GPU_GPU_BENCH_H_
#define LOCKSTEP_TESTS_GPU_GPU_BENCH_H_

// Times CUDA twins with events and puts each figure beside the card's own limit, measured in the
// same run.
//
// Example:
//   void BenchRope(GpuBench& bench) {
//     DeviceBuffer x = bench.RandomHalves(count);
//     bench.Memory("rope", "T 4096", bytes, Limit::kCopy, [&](int) { return RopeNeoxCuda(...); });
//   }

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda_support.h"

namespace lockstep::kernels {

enum class Limit { kCopy, kRead };

class GpuBench {
 public:
  // One call; `turn` counts calls, so that a body can rotate among inputs larger than the cache.
  using Body = std::function<absl::Status(int turn)>;

  struct Row {
    std::string name, shape, unit;
    double microseconds = 0, figure = 0, limit = 0;
  };

  // Measures the limits. `only` is a substring of the names to run.
  explicit GpuBench(std::string only);

  CudaStream stream() const { return stream_.get(); }
  bool Wants(const char* name) const;

  DeviceBuffer Allocate(size_t bytes) const;
  // `count` BF16 elements like N(0, scale^2).
  DeviceBuffer RandomHalves(size_t count, float scale = 1.0f);
  // `count` float32 elements likewise.
  DeviceBuffer RandomFloats(size_t count, float scale = 1.0f);

  // `bytes` read and written once each.
  void Memory(const char* name, const std::string& shape, double bytes, Limit limit,
              const Body& body);
  // `operations` multiply-adds.
  void Arithmetic(const char* name, const std::string& shape, double operations, const Body& body);
  // Time alone.
  void Time(const char* name, const std::string& shape, const Body& body);

  const std::vector<Row>& rows() const { return rows_; }
  const CudaDeviceInfo& device() const { return device_; }

 private:
  // Median over groups of calls, in microseconds per call.
  double Measure(const Body& body);
  DeviceBuffer Repeat(const void* host, size_t host_bytes, size_t bytes);
  void Add(const Row& row);

  OwnedCudaStream stream_;
  CudaDeviceInfo device_;
  std::string only_;
  double copy_gb_s_ = 0, read_gb_s_ = 0, fma_tflop_s_ = 0;
  std::vector<Row> rows_;
};

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_TESTS_GPU_GPU_BENCH_H_
