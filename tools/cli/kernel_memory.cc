#include "tools/cli/kernel_memory.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"

namespace lockstep::tools {

absl::StatusOr<KernelMemory> KernelMemory::OnCuda() {
  LOCKSTEP_ASSIGN_OR_RETURN(const int devices, kernels::CudaDeviceCount());
  if (devices == 0) {
    return absl::UnavailableError("CUDA: this machine has no device; choose --device cpu");
  }
  LOCKSTEP_RETURN_IF_ERROR(kernels::UseCudaDevice(0));
  KernelMemory memory;
  LOCKSTEP_ASSIGN_OR_RETURN(memory.stream_, kernels::OwnedCudaStream::Create());
  return memory;
}

absl::StatusOr<void*> KernelMemory::Take(size_t bytes) {
  const size_t size = std::max<size_t>(bytes, 1);
  if (on_cuda()) {
    LOCKSTEP_ASSIGN_OR_RETURN(kernels::DeviceBuffer buffer, kernels::DeviceBuffer::Allocate(size));
    device_.push_back(std::move(buffer));
    return device_.back().data();
  }
  auto piece = std::unique_ptr<uint8_t[]>(new (std::nothrow) uint8_t[size]());
  if (piece == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot get ", size, " bytes of memory"));
  }
  host_.push_back(std::move(piece));
  return static_cast<void*>(host_.back().get());
}

absl::StatusOr<void*> KernelMemory::CopyIn(absl::Span<const uint8_t> bytes) {
  LOCKSTEP_ASSIGN_OR_RETURN(void* const to, Take(bytes.size()));
  if (bytes.empty()) return to;
  if (on_cuda()) {
    LOCKSTEP_RETURN_IF_ERROR(kernels::CopyToDevice(to, bytes.data(), bytes.size(), stream()));
  } else {
    memcpy(to, bytes.data(), bytes.size());
  }
  return to;
}

absl::Status KernelMemory::Finish() {
  return on_cuda() ? kernels::SynchronizeStream(stream()) : absl::OkStatus();
}

absl::Status KernelMemory::CopyOut(const void* from, absl::Span<uint8_t> to) {
  if (to.empty()) return absl::OkStatus();
  if (!on_cuda()) {
    memcpy(to.data(), from, to.size());
    return absl::OkStatus();
  }
  LOCKSTEP_RETURN_IF_ERROR(kernels::CopyToHost(to.data(), from, to.size(), stream()));
  return kernels::SynchronizeStream(stream());
}

}  // namespace lockstep::tools
