#include "kernels/swiglu.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "kernels/row_blocks.h"
#include "kernels/swiglu_engine.h"

namespace lockstep::kernels {
namespace {

absl::Status CheckType(const char* op, FloatType type) {
  if (type == FloatType::kBf16 || type == FloatType::kF16) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": expected operands as BF16 or F16, got ", Name(type)));
}

absl::Status CheckTable(const char* op, const GateTable* table, FloatType type) {
  if (table == nullptr || table->gate() == type) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(op, ": expected a table for ", Name(type),
                                                 " gates, got ", table->id(), " for ",
                                                 Name(table->gate()), " gates"));
}

absl::Status CheckLimit(const SwigluParams& p) {
  if (p.program != SwigluProgram::kOneRoundFp32Clamped) {
    if (p.limit == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("swiglu: only ", kSwigluClampedId,
                                                   " takes a limit, got ", p.limit,
                                                   " for another program"));
  }
  if (!(p.limit > 0) || std::isinf(p.limit)) {
    return absl::InvalidArgumentError(
        absl::StrCat("swiglu: ", kSwigluClampedId, " needs a finite limit above 0, got ", p.limit));
  }
  if (p.silu != nullptr && p.silu->id() != kSiluIeee) {
    return absl::InvalidArgumentError(absl::StrCat(
        "swiglu: ", kSwigluClampedId, " is defined with ", kSiluIeee, " only, got ", p.silu->id()));
  }
  return absl::OkStatus();
}

// Element (row, begin) of a 16-bit operand.
const uint16_t* At(const void* data, int64_t row, int64_t begin, int64_t stride, int64_t columns) {
  return static_cast<const uint16_t*>(data) + row * RowStride(stride, columns) + begin;
}

uint16_t* At(void* data, int64_t row, int64_t begin, int64_t stride, int64_t columns) {
  return static_cast<uint16_t*>(data) + row * RowStride(stride, columns) + begin;
}

}  // namespace

absl::Status CheckSwiglu(const SwigluParams& p) {
  if (absl::Status s = CheckType("swiglu", p.type); !s.ok()) return s;
  if (absl::Status s = CheckTable("swiglu", p.silu, p.type); !s.ok()) return s;
  if (absl::Status s = CheckLimit(p); !s.ok()) return s;
  return CheckRowOperands("swiglu", p.rows, p.columns,
                          {{"gate", p.gate, p.gate_row_stride},
                           {"up", p.up, p.up_row_stride},
                           {"out", p.out, p.out_row_stride}});
}

absl::Status CheckSwigluVjp(const SwigluVjpParams& p) {
  if (absl::Status s = CheckType("swiglu_vjp", p.type); !s.ok()) return s;
  if (absl::Status s = CheckTable("swiglu_vjp", p.sigmoid, p.type); !s.ok()) return s;
  if (p.sigmoid != nullptr && p.sigmoid->id() != kSigmoidIeee) {
    return absl::InvalidArgumentError(absl::StrCat("swiglu_vjp: ", kSwigluVjpId,
                                                   " is defined with ", kSigmoidIeee, " only, got ",
                                                   p.sigmoid->id()));
  }
  return CheckRowOperands("swiglu_vjp", p.rows, p.columns,
                          {{"gate", p.gate, p.gate_row_stride},
                           {"up", p.up, p.up_row_stride},
                           {"dout", p.dout, p.dout_row_stride},
                           {"dgate", p.dgate, p.dgate_row_stride},
                           {"dup", p.dup, p.dup_row_stride}});
}

void SwigluParams::SetPackedGateUp(const void* gate_up) {
  gate = gate_up;
  up = static_cast<const uint16_t*>(gate_up) + columns;
  gate_row_stride = up_row_stride = 2 * columns;
}

void SwigluVjpParams::SetPackedGateUp(const void* gate_up) {
  gate = gate_up;
  up = static_cast<const uint16_t*>(gate_up) + columns;
  gate_row_stride = up_row_stride = 2 * columns;
}

void SwigluVjpParams::SetPackedGradients(void* dgate_up) {
  dgate = dgate_up;
  dup = static_cast<uint16_t*>(dgate_up) + columns;
  dgate_row_stride = dup_row_stride = 2 * columns;
}

absl::Status Swiglu(const SwigluParams& p) {
  if (absl::Status status = CheckSwiglu(p); !status.ok()) return status;
  ForEachRowBlock(p.rows, p.columns, p.threads, [&](int64_t row, int64_t begin, int64_t count) {
    RunSwigluStretch({.program = p.program,
                      .type = p.type,
                      .silu = p.silu != nullptr ? p.silu->values().data() : nullptr,
                      .limit = p.limit,
                      .count = static_cast<size_t>(count),
                      .gate = At(p.gate, row, begin, p.gate_row_stride, p.columns),
                      .up = At(p.up, row, begin, p.up_row_stride, p.columns),
                      .out = At(p.out, row, begin, p.out_row_stride, p.columns)});
  });
  return absl::OkStatus();
}

absl::Status SwigluVjp(const SwigluVjpParams& p) {
  if (absl::Status status = CheckSwigluVjp(p); !status.ok()) return status;
  ForEachRowBlock(p.rows, p.columns, p.threads, [&](int64_t row, int64_t begin, int64_t count) {
    RunSwigluVjpStretch({.type = p.type,
                         .sigmoid = p.sigmoid != nullptr ? p.sigmoid->values().data() : nullptr,
                         .count = static_cast<size_t>(count),
                         .gate = At(p.gate, row, begin, p.gate_row_stride, p.columns),
                         .up = At(p.up, row, begin, p.up_row_stride, p.columns),
                         .dout = At(p.dout, row, begin, p.dout_row_stride, p.columns),
                         .dgate = At(p.dgate, row, begin, p.dgate_row_stride, p.columns),
                         .dup = At(p.dup, row, begin, p.dup_row_stride, p.columns)});
  });
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
