// Every function of every *_cuda.h header, for builds without the CUDA toolkit: each refuses.

#include "kernels/attention_cuda.h"
#include "kernels/cp_exchange_cuda.h"
#include "kernels/cuda_support.h"
#include "kernels/delta_cuda.h"
#include "kernels/digest_cuda.h"
#include "kernels/gdn_cp_cuda.h"
#include "kernels/gdn_cuda.h"
#include "kernels/gemm_cuda.h"
#include "kernels/lm_head_cuda.h"
#include "kernels/lora_cuda.h"
#include "kernels/lora_vjp_cuda.h"
#include "kernels/moe_cuda.h"
#include "kernels/rmsnorm_cuda.h"
#include "kernels/rope_cuda.h"
#include "kernels/router_topk_cuda.h"
#include "kernels/short_conv_cuda.h"
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

// ---- cp_exchange_cuda.h ----

absl::Status StagedCpExchange::Send(int, absl::Span<const uint8_t>) { return Unavailable(); }
absl::Status StagedCpExchange::Receive(int, absl::Span<uint8_t>) { return Unavailable(); }
absl::Status StagedCpExchange::AllGather(absl::Span<const uint8_t>, absl::Span<uint8_t>) {
  return Unavailable();
}
absl::Status StagedCpExchange::Broadcast(int, absl::Span<uint8_t>) { return Unavailable(); }

// ---- delta_cuda.h ----

size_t MakeDeltaCudaWorkspaceBytes(absl::Span<const DeviceDeltaSource>) { return 1; }
uint64_t DeltaBodyBytes(absl::Span<const DeviceDeltaSource>) { return 1; }
absl::Status MakeDeltaCuda(absl::Span<const DeviceDeltaSource>, void*, uint8_t*, uint64_t,
                           CudaStream) {
  return Unavailable();
}
absl::StatusOr<DeltaLayout> DownloadDeltaLayout(const DeltaRoots&,
                                                absl::Span<const DeviceDeltaSource>, const void*,
                                                const uint8_t*, uint64_t, CudaStream) {
  return Unavailable();
}
absl::StatusOr<DeviceDeltaPatch> DeviceDeltaPatch::Upload(const DeltaPatch&, CudaStream) {
  return Unavailable();
}
absl::Status DeviceDeltaPatch::Apply(absl::Span<const absl::Span<uint8_t>>, CudaStream) const {
  return Unavailable();
}

// ---- digest_cuda.h ----

absl::Status ClearPageSumsCuda(PageSum*, uint64_t, CudaStream) { return Unavailable(); }
absl::Status AddBytesCuda(const DevicePageKeys&, uint64_t, const uint8_t*, uint64_t, uint64_t,
                          PageSum*, CudaStream) {
  return Unavailable();
}
absl::Status AddViewCuda(const DevicePageKeys&, const BoxView&, const uint8_t*, uint64_t, uint64_t,
                         PageSum*, CudaStream) {
  return Unavailable();
}
absl::Status CopyAndDigestCuda(const DevicePageKeys&, absl::Span<const DigestTask>, PageSum*,
                               uint64_t*, CudaStream) {
  return Unavailable();
}
absl::StatusOr<PageTable> DownloadPageTable(const PageSum*, uint64_t, CudaStream) {
  return Unavailable();
}

// ---- gdn_cp_cuda.h ----

size_t GdnCpRankCudaWorkspaceBytes(const GdnCpParams&, int, int) { return 1; }
absl::Status GdnCpRankCuda(const GdnCpParams&, CpExchange&, void*, CudaStream) {
  return Unavailable();
}
absl::Status GdnCpSimulatedCuda(const GdnParams&, GdnCpProgram, int, int, CudaStream) {
  return Unavailable();
}

// ---- gdn_cuda.h ----

size_t GdnCudaWorkspaceBytes(const GdnParams&) { return 1; }
absl::Status GdnCuda(const GdnParams&, void*, CudaStream) { return Unavailable(); }

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

// ---- short_conv_cuda.h ----

absl::Status ShortConvCuda(const ShortConvParams&, CudaStream) { return Unavailable(); }
size_t ShortConvCpRankCudaWorkspaceBytes(const ShortConvParams&, GdnCpProgram, int64_t, int) {
  return 1;
}
absl::Status ShortConvCpRankCuda(const ShortConvParams&, GdnCpProgram, int64_t, CpExchange&, void*,
                                 CudaStream) {
  return Unavailable();
}

// ---- swiglu_cuda.h ----

absl::Status SwigluCuda(const SwigluParams&, const DeviceGateTable*, CudaStream) {
  return Unavailable();
}
absl::Status SwigluVjpCuda(const SwigluVjpParams&, const DeviceGateTable*, CudaStream) {
  return Unavailable();
}

}  // namespace lockstep::kernels
