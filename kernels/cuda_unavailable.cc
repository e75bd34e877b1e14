// Every function of every *_cuda.h header, for builds without the CUDA toolkit: each refuses.

#include "kernels/attention_cuda.h"
#include "kernels/cuda_support.h"
#include "kernels/gemm_cuda.h"
#include "kernels/lm_head_cuda.h"
#include "kernels/lora_cuda.h"
#include "kernels/lora_vjp_cuda.h"
#include "kernels/moe_cuda.h"
#include "kernels/rmsnorm_cuda.h"
#include "kernels/rope_cuda.h"
#include "kernels/router_topk_cuda.h"
#include "kernels/swiglu_cuda.h"

namespace lockstep::kernels {
namespace {

absl::Status Unavailable() {
  return absl::UnavailableError(
      "CUDA: this program was built without the CUDA toolkit; install it and build again, or "
      "choose the CPU");
}

}  // namespace

// ---- cuda_support.h ----

bool BuiltWithCuda() { return false; }
absl::StatusOr<int> CudaDeviceCount() { return Unavailable(); }
absl::StatusOr<CudaDeviceInfo> DescribeCudaDevice(int) { return Unavailable(); }
absl::Status UseCudaDevice(int) { return Unavailable(); }
absl::StatusOr<DeviceBuffer> DeviceBuffer::Allocate(size_t) { return Unavailable(); }
DeviceBuffer::DeviceBuffer(DeviceBuffer&&) noexcept = default;
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&&) noexcept = default;
DeviceBuffer::~DeviceBuffer() = default;
absl::StatusOr<OwnedCudaStream> OwnedCudaStream::Create() { return Unavailable(); }
OwnedCudaStream::OwnedCudaStream(OwnedCudaStream&&) noexcept = default;
OwnedCudaStream& OwnedCudaStream::operator=(OwnedCudaStream&&) noexcept = default;
OwnedCudaStream::~OwnedCudaStream() = default;
absl::StatusOr<CudaEvent> CudaEvent::Create() { return Unavailable(); }
CudaEvent::CudaEvent(CudaEvent&&) noexcept = default;
CudaEvent& CudaEvent::operator=(CudaEvent&&) noexcept = default;
CudaEvent::~CudaEvent() = default;
absl::Status CudaEvent::Record(CudaStream) { return Unavailable(); }
absl::Status CudaEvent::Synchronize() { return Unavailable(); }
absl::StatusOr<float> CudaEvent::MillisecondsSince(const CudaEvent&) const { return Unavailable(); }
absl::Status CopyToDevice(void*, const void*, size_t, CudaStream) { return Unavailable(); }
absl::Status CopyToHost(void*, const void*, size_t, CudaStream) { return Unavailable(); }
absl::Status CopyOnDevice(void*, const void*, size_t, CudaStream) { return Unavailable(); }
absl::Status FillDevice(void*, uint8_t, size_t, CudaStream) { return Unavailable(); }
absl::Status SynchronizeStream(CudaStream) { return Unavailable(); }
absl::Status CudaStatus(int, const char*) { return Unavailable(); }

// ---- attention_cuda.h ----

size_t SoftmaxAttentionCudaWorkspaceBytes(const AttentionParams&) { return 0; }
absl::Status SoftmaxAttentionCuda(const AttentionParams&, void*, CudaStream) {
  return Unavailable();
}

// ---- gemm_cuda.h ----

absl::Status GemmCuda(const GemmParams&, CudaStream) { return Unavailable(); }

// ---- lm_head_cuda.h ----

size_t SelectedLogprobCudaWorkspaceBytes(const LmHeadParams&) { return 0; }
absl::Status SelectedLogprobCuda(const LmHeadParams&, void*, CudaStream) { return Unavailable(); }
size_t LmHeadShardCudaWorkspaceBytes(const LmHeadShardParams&) { return 0; }
absl::Status LmHeadShardCuda(const LmHeadShardParams&, void*, CudaStream) { return Unavailable(); }
size_t LmHeadMergeCudaWorkspaceBytes(const LmHeadMergeParams&) { return 0; }
absl::Status LmHeadMergeCuda(const LmHeadMergeParams&, void*, CudaStream) { return Unavailable(); }

// ---- lora_cuda.h, lora_vjp_cuda.h ----

absl::Status ViewAsBf16Cuda(const float*, int64_t, uint16_t*, CudaStream) { return Unavailable(); }
size_t LoraLinearCudaWorkspaceBytes(const LoraLinearParams&) { return 0; }
absl::Status LoraLinearCuda(const LoraLinearParams&, void*, CudaStream) { return Unavailable(); }
size_t LoraMlpCudaWorkspaceBytes(const LoraMlpParams&) { return 0; }
absl::Status LoraMlpCuda(const LoraMlpParams&, const DeviceGateTable*, void*, CudaStream) {
  return Unavailable();
}
size_t LoraMergeCudaWorkspaceBytes(const LoraMergeParams&) { return 0; }
absl::Status LoraMergeCuda(const LoraMergeParams&, void*, CudaStream) { return Unavailable(); }
size_t LoraMlpVjpCudaWorkspaceBytes(const LoraMlpVjpParams&) { return 0; }
absl::Status LoraMlpVjpCuda(const LoraMlpVjpParams&, void*, CudaStream) { return Unavailable(); }

// ---- moe_cuda.h ----

absl::Status MoeLeafCuda(const MoeLeafParams&, CudaStream) { return Unavailable(); }
absl::Status MoeFoldCuda(const MoeFoldParams&, CudaStream) { return Unavailable(); }

// ---- rmsnorm_cuda.h ----

absl::Status RmsNormCuda(const RmsNormParams&, CudaStream) { return Unavailable(); }

// ---- rope_cuda.h, router_topk_cuda.h ----

absl::Status RopeNeoxCuda(const RopeParams&, CudaStream) { return Unavailable(); }
absl::Status RouterTopkCuda(const RouterTopkParams&, CudaStream) { return Unavailable(); }

// ---- swiglu_cuda.h ----

absl::Status SwigluCuda(const SwigluParams&, const DeviceGateTable*, CudaStream) {
  return Unavailable();
}
absl::Status SwigluVjpCuda(const SwigluVjpParams&, const DeviceGateTable*, CudaStream) {
  return Unavailable();
}

}  // namespace lockstep::kernels
