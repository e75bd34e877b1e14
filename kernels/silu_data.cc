#include "kernels/silu_data.h"

namespace lockstep::kernels {
namespace {

// The .inc files are the bytes of kernels/data as C array elements; see the genrule in BUILD.
constexpr uint8_t kSm90Triton[] = {
#include "kernels/silu_sm90_triton_bf16.inc"
};
constexpr uint8_t kTorchCuda[] = {
#include "kernels/silu_torch_cuda_bf16.inc"
};
constexpr uint8_t kTorchCpu[] = {
#include "kernels/silu_torch_cpu_bf16.inc"
};

}  // namespace

absl::Span<const uint8_t> SiluSm90TritonDeltas() { return kSm90Triton; }
absl::Span<const uint8_t> SiluTorchCudaDeltas() { return kTorchCuda; }
absl::Span<const uint8_t> SiluTorchCpuDeltas() { return kTorchCpu; }

}  // namespace lockstep::kernels
