#ifndef LOCKSTEP_TESTS_GPU_TWIN_CHECK_H_
#define LOCKSTEP_TESTS_GPU_TWIN_CHECK_H_

// Compares a CUDA twin with its CPU function, byte for byte, and keeps the score per program.
// Outputs start as the same poison on both sides and are compared whole, so an element that was
// not written and one written outside its place both show.
//
// Example:
//   void CheckRopeTwins(TwinCheck& check) {
//     std::vector<uint16_t> x = check.Halves(n, FloatType::kBf16, Mix::kAdversarial);
//     std::vector<uint16_t> want = Poisoned<uint16_t>(n);
//     ... CPU function into want ...
//     DeviceArray<uint16_t> x_on_device = check.Upload(x);
//     DeviceArray<uint16_t> got = check.UploadPoison<uint16_t>(n);
//     check.Ran(kRopeNeoxId, label, RopeNeoxCuda(p, check.stream()));
//     check.Equal(kRopeNeoxId, label, want, got);
//   }

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda_support.h"
#include "kernels/types.h"

namespace lockstep::kernels {

// Ends the process with a message; a failed CUDA call leaves nothing to go on with.
[[noreturn]] void Die(const absl::Status& status);

template <class T>
T OrDie(absl::StatusOr<T> result) {
  if (!result.ok()) Die(result.status());
  return *std::move(result);
}

inline constexpr uint8_t kPoison = 0xA5;

template <class T>
std::vector<T> Poisoned(size_t count) {
  std::vector<T> values(count);
  if (count > 0) memset(values.data(), kPoison, count * sizeof(T));
  return values;
}

template <class T>
class DeviceArray {
 public:
  DeviceArray(DeviceBuffer buffer, size_t count) : buffer_(std::move(buffer)), count_(count) {}

  T* get() const { return buffer_.template As<T>(); }
  size_t size() const { return count_; }

 private:
  DeviceBuffer buffer_;
  size_t count_;
};

// What random operands hold.
enum class Mix {
  kNormal,       // N(0, 1)-like
  kSmall,        // the same, divided by 32: products and long sums stay in range
  kTiny,         // the same, times 2^-70 (F16: 2^-12): products are denormal or nothing
  kAdversarial,  // a tenth each: any bit pattern, NaN payloads, infinities, zeros, denormals, huge
};

class TwinCheck {
 public:
  TwinCheck(uint64_t seed, std::string only);

  CudaStream stream() const { return stream_.get(); }

  // Whether `program` was asked for (--only).
  bool Wants(absl::string_view program) const;

  uint64_t Random();
  // Uniform in [low, high].
  int64_t Between(int64_t low, int64_t high);
  std::vector<uint16_t> Halves(size_t count, FloatType type, Mix mix);
  std::vector<float> Floats(size_t count, Mix mix);

  template <class T>
  DeviceArray<T> Upload(const std::vector<T>& host) {
    return DeviceArray<T>(UploadBytes(host.data(), host.size() * sizeof(T)), host.size());
  }

  template <class T>
  DeviceArray<T> UploadPoison(size_t count) {
    return Upload(Poisoned<T>(count));
  }

  template <class T>
  std::vector<T> Download(const DeviceArray<T>& device) {
    std::vector<T> host(device.size());
    DownloadBytes(device.get(), host.data(), host.size() * sizeof(T));
    return host;
  }

  // A call that should have worked.
  void Ran(absl::string_view program, const std::string& label, const absl::Status& status);

  template <class T>
  void Equal(absl::string_view program, const std::string& label, const std::vector<T>& want,
             const DeviceArray<T>& got) {
    const std::vector<T> bytes = Download(got);
    Compare(program, label, want.data(), bytes.data(), want.size() * sizeof(T), sizeof(T));
  }

  // Any other fact of a program that must hold.
  void Expect(absl::string_view program, const std::string& label, bool holds);

  void Compare(absl::string_view program, const std::string& label, const void* want,
               const void* got, size_t bytes, size_t element_bytes);

  bool ComparedAnything() const { return !scores_.empty(); }

  // One line per program; whether all were equal.
  bool Report() const;

 private:
  struct Score {
    uint64_t bytes = 0;
    uint64_t cases = 0;
    std::string first_failure;
  };

  DeviceBuffer UploadBytes(const void* host, size_t bytes);
  void DownloadBytes(const void* device, void* host, size_t bytes);
  Score& ScoreOf(absl::string_view program);

  OwnedCudaStream stream_;
  uint64_t state_;
  std::string only_;
  std::map<std::string, Score> scores_;
};

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_TESTS_GPU_TWIN_CHECK_H_
