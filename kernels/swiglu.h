#ifndef LOCKSTEP_KERNELS_SWIGLU_H_
#define LOCKSTEP_KERNELS_SWIGLU_H_

// Exact SwiGLU and its derivative (kernels/SPECIFICATION.md, "SwiGLU"): out = silu(gate) * up,
// element by element, BF16 or F16 [rows, columns]. Bytes depend on the program, the SiLU
// realisation and the operands alone: never on strides, alignment, instruction set, threads or on
// whether SiLU comes from its table or is computed.
//
// Example, gate|up packed in one [rows, 2 * columns] tensor:
//   SwigluParams p;
//   p.program = SwigluProgram::kOneRoundFp32;
//   p.rows = tokens, p.columns = intermediate;
//   p.silu = *FindSiluTable("silu/sm90_triton@v1", FloatType::kBf16);
//   p.SetPackedGateUp(gate_up);
//   p.out = activated;
//   absl::Status status = Swiglu(p);

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/gate_table.h"
#include "kernels/types.h"

namespace lockstep::kernels {

enum class SwigluProgram : uint8_t { kOneRoundFp32, kTwoRound, kOneRoundFp32Clamped };

inline constexpr char kSwigluOneRoundId[] = "swiglu/one_round_fp32@v1";
inline constexpr char kSwigluTwoRoundId[] = "swiglu/two_round@v1";
inline constexpr char kSwigluClampedId[] = "swiglu/one_round_fp32_clamped@v1";
inline constexpr char kSwigluVjpId[] = "swiglu_vjp/analytic@v1";

struct SwigluParams {
  SwigluProgram program = SwigluProgram::kOneRoundFp32;
  FloatType type = FloatType::kBf16;  // of every operand: BF16 or F16
  int64_t rows = 0;
  int64_t columns = 0;
  const void* gate = nullptr;  // [rows, columns]
  const void* up = nullptr;    // [rows, columns]
  void* out = nullptr;         // [rows, columns]; overlaps neither operand
  // Elements between consecutive rows; 0 means contiguous.
  int64_t gate_row_stride = 0;
  int64_t up_row_stride = 0;
  int64_t out_row_stride = 0;
  // The realisation's table for `type`; null computes silu/ieee@v1. The clamped program takes
  // that realisation only.
  const GateTable* silu = nullptr;
  float limit = 0;  // the clamped program's L, finite and > 0; 0 for the others
  int threads = 1;

  // Points gate and up at the halves of each row of `gate_up` [rows, 2 * columns], contiguous.
  // Set type and columns first.
  void SetPackedGateUp(const void* gate_up);
};

// InvalidArgument for an unsupported type, a size below 1, a stride shorter than its row, a null
// pointer, a table of another gate type, a limit that does not fit the program;
// FailedPrecondition when the thread's floating-point environment is not IEEE's.
absl::Status Swiglu(const SwigluParams& params);

// The errors alone, nothing computed; the CUDA twin refuses the same.
absl::Status CheckSwiglu(const SwigluParams& params);

// `swiglu_vjp/analytic@v1`, the derivative of every unclamped program and realisation.
struct SwigluVjpParams {
  FloatType type = FloatType::kBf16;  // of every operand: BF16 or F16
  int64_t rows = 0;
  int64_t columns = 0;
  const void* gate = nullptr;  // [rows, columns]
  const void* up = nullptr;    // [rows, columns]
  const void* dout = nullptr;  // [rows, columns]
  void* dgate = nullptr;       // [rows, columns]; overlaps no operand
  void* dup = nullptr;         // [rows, columns]; overlaps no operand
  // Elements between consecutive rows; 0 means contiguous.
  int64_t gate_row_stride = 0;
  int64_t up_row_stride = 0;
  int64_t dout_row_stride = 0;
  int64_t dgate_row_stride = 0;
  int64_t dup_row_stride = 0;
  const GateTable* sigmoid = nullptr;  // FindSigmoidTable(type); null computes it
  int threads = 1;

  // As in SwigluParams; the gradients' twin points dgate and dup at the halves of each row.
  void SetPackedGateUp(const void* gate_up);
  void SetPackedGradients(void* dgate_up);
};

// Errors as for Swiglu.
absl::Status SwigluVjp(const SwigluVjpParams& params);
absl::Status CheckSwigluVjp(const SwigluVjpParams& params);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_SWIGLU_H_
