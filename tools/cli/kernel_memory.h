#ifndef LOCKSTEP_TOOLS_CLI_KERNEL_MEMORY_H_
#define LOCKSTEP_TOOLS_CLI_KERNEL_MEMORY_H_

// Where a program's tensors lie while it runs: this process's memory, or the first CUDA device's.
// Everything taken lives as long as the object.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(KernelMemory memory, KernelMemory::OnCuda());
//   LOCKSTEP_ASSIGN_OR_RETURN(void* x, memory.CopyIn(bytes));
//   LOCKSTEP_ASSIGN_OR_RETURN(void* out, memory.Take(bytes.size()));
//   ... enqueue on memory.stream() ...
//   LOCKSTEP_RETURN_IF_ERROR(memory.Finish());
//   LOCKSTEP_RETURN_IF_ERROR(memory.CopyOut(out, absl::MakeSpan(result)));

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda_support.h"

namespace lockstep::tools {

class KernelMemory {
 public:
  static KernelMemory OnHost() { return KernelMemory(); }
  // Unavailable when this build has no CUDA kernels or this machine no device.
  static absl::StatusOr<KernelMemory> OnCuda();

  bool on_cuda() const { return stream_.has_value(); }
  // Of on_cuda() only.
  kernels::CudaStream stream() const { return stream_->get(); }

  // Aligned for any element type. ResourceExhausted when the device has no room.
  absl::StatusOr<void*> Take(size_t bytes);
  absl::StatusOr<void*> CopyIn(absl::Span<const uint8_t> bytes);

  // Waits for everything enqueued on the stream.
  absl::Status Finish();
  // After Finish.
  absl::Status CopyOut(const void* from, absl::Span<uint8_t> to);

 private:
  KernelMemory() = default;

  std::optional<kernels::OwnedCudaStream> stream_;
  std::vector<std::unique_ptr<uint8_t[]>> host_;
  std::vector<kernels::DeviceBuffer> device_;
};

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_KERNEL_MEMORY_H_
