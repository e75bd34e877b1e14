#ifndef LOCKSTEP_KERNELS_GATE_TABLE_CUDA_H_
#define LOCKSTEP_KERNELS_GATE_TABLE_CUDA_H_

// A GateTable's copy in device memory, made once and used by any number of calls.
//
// Example:
//   absl::StatusOr<const GateTable*> silu = FindSiluTable("silu/sm90_triton@v1", FloatType::kBf16);
//   absl::StatusOr<DeviceGateTable> on_device = DeviceGateTable::Upload(**silu, stream);

#include <utility>

#include "absl/status/statusor.h"
#include "kernels/cuda_support.h"
#include "kernels/gate_table.h"

namespace lockstep::kernels {

class DeviceGateTable {
 public:
  // Enqueues the copy on `stream`. `table` must outlive the result.
  static absl::StatusOr<DeviceGateTable> Upload(const GateTable& table, CudaStream stream) {
    const size_t bytes = table.values().size() * sizeof(float);
    absl::StatusOr<DeviceBuffer> buffer = DeviceBuffer::Allocate(bytes);
    if (!buffer.ok()) return buffer.status();
    absl::Status copied = CopyToDevice(buffer->data(), table.values().data(), bytes, stream);
    if (!copied.ok()) return copied;
    return DeviceGateTable(table, *std::move(buffer));
  }

  const GateTable& table() const { return *table_; }
  const float* values() const { return values_.As<float>(); }

 private:
  DeviceGateTable(const GateTable& table, DeviceBuffer values)
      : table_(&table), values_(std::move(values)) {}

  const GateTable* table_;
  DeviceBuffer values_;
};

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_GATE_TABLE_CUDA_H_
