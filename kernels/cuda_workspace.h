#ifndef LOCKSTEP_KERNELS_CUDA_WORKSPACE_H_
#define LOCKSTEP_KERNELS_CUDA_WORKSPACE_H_

// Cuts a caller's workspace into arrays. A twin lays its arrays out with one function, once over
// nothing to learn the size and once over the caller's memory.
//
// Example:
//   Scratch Lay(const FooParams& p, WorkspaceCutter& cut) { return {cut.Take<float>(p.rows)}; }
//   ...
//   WorkspaceCutter size(nullptr);
//   Lay(p, size);
//   return size.bytes();

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lockstep::kernels {

class WorkspaceCutter {
 public:
  explicit WorkspaceCutter(void* memory) : memory_(static_cast<char*>(memory)) {}

  // `count` elements at a multiple of kAlignment; nullptr without memory.
  template <class T>
  T* Take(int64_t count) {
    const size_t at = bytes_;
    const size_t needed = static_cast<size_t>(count) * sizeof(T);
    bytes_ += (needed + kAlignment - 1) / kAlignment * kAlignment;
    return memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + at);
  }

  size_t bytes() const { return bytes_; }

 private:
  static constexpr size_t kAlignment = 256;

  char* memory_;
  size_t bytes_ = 0;
};

// A twin with a workspace refuses to run without one.
inline absl::Status CheckWorkspace(const char* op, const void* workspace) {
  if (workspace != nullptr && reinterpret_cast<uintptr_t>(workspace) % 16 == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": expected a workspace in device memory at a multiple of 16 bytes, got ",
                   workspace == nullptr ? "none" : "one that is not; allocate it by itself"));
}

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_CUDA_WORKSPACE_H_
