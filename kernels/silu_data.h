#ifndef LOCKSTEP_KERNELS_SILU_DATA_H_
#define LOCKSTEP_KERNELS_SILU_DATA_H_

// The recorded SiLU tables, embedded at build time from kernels/data. Format of a
// `silu_NAME_bf16.delta.zst`: one zstd frame of 65,536 int8; entry i, added to the bits of entry i
// of the `silu/ieee@v1` bf16 table as uint32, gives the bits of entry i of the recorded table.
// (The recorded kernels never differ from it by more than 127 units in the last place.)

#include <cstdint>

#include "absl/types/span.h"

namespace lockstep::kernels {

absl::Span<const uint8_t> SiluSm90TritonDeltas();
absl::Span<const uint8_t> SiluTorchCudaDeltas();
absl::Span<const uint8_t> SiluTorchCpuDeltas();

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_SILU_DATA_H_
