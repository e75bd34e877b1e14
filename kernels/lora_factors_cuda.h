#ifndef LOCKSTEP_KERNELS_LORA_FACTORS_CUDA_H_
#define LOCKSTEP_KERNELS_LORA_FACTORS_CUDA_H_

// The CUDA side of lora_factors.h: an adapter's factors as the BF16 that every product reads,
// borrowed or viewed in the workspace.
//
// Example:
//   const CudaFactors gate(p.gate_adapter, p.factor_type, a_count, b_count, cut);
//   LOCKSTEP_RETURN_IF_ERROR(gate.Enqueue(stream));   // gate.a() and gate.b() are BF16

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda_workspace.h"
#include "kernels/lora.h"
#include "kernels/lora_cuda.h"
#include "kernels/types.h"

namespace lockstep::kernels {

class CudaFactors {
 public:
  CudaFactors(const LoraFactors& factors, FloatType type, int64_t a_count, int64_t b_count,
              WorkspaceCutter& cut)
      : factors_(factors), a_count_(a_count), b_count_(b_count), viewed_(type == FloatType::kF32) {
    if (!viewed_) return;
    view_a_ = cut.Take<uint16_t>(a_count);
    view_b_ = cut.Take<uint16_t>(b_count);
  }

  const uint16_t* a() const { return viewed_ ? view_a_ : Half(factors_.a); }
  const uint16_t* b() const { return viewed_ ? view_b_ : Half(factors_.b); }

  absl::Status Enqueue(CudaStream stream) const {
    if (!viewed_) return absl::OkStatus();
    if (absl::Status s = ViewAsBf16Cuda(Single(factors_.a), a_count_, view_a_, stream); !s.ok()) {
      return s;
    }
    return ViewAsBf16Cuda(Single(factors_.b), b_count_, view_b_, stream);
  }

 private:
  static const uint16_t* Half(const void* data) { return static_cast<const uint16_t*>(data); }
  static const float* Single(const void* data) { return static_cast<const float*>(data); }

  LoraFactors factors_;
  int64_t a_count_, b_count_;
  bool viewed_;
  uint16_t* view_a_ = nullptr;
  uint16_t* view_b_ = nullptr;
};

struct CudaMlpFactors {
  CudaMlpFactors(const LoraMlpParams& p, WorkspaceCutter& cut)
      : gate(p.gate_adapter, p.factor_type, p.rank * p.hidden, p.intermediate * p.rank, cut),
        up(p.up_adapter, p.factor_type, p.rank * p.hidden, p.intermediate * p.rank, cut),
        down(p.down_adapter, p.factor_type, p.rank * p.intermediate, p.hidden * p.rank, cut) {}

  absl::Status Enqueue(CudaStream stream) const {
    if (absl::Status s = gate.Enqueue(stream); !s.ok()) return s;
    if (absl::Status s = up.Enqueue(stream); !s.ok()) return s;
    return down.Enqueue(stream);
  }

  CudaFactors gate, up, down;
};

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_LORA_FACTORS_CUDA_H_
