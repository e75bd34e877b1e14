#include "bridge/transport/probe_runner.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bridge/transport/little_endian.h"
#include "kernels/float_formats.h"
#include "kernels/gate_table.h"
#include "kernels/gemm.h"
#include "kernels/rmsnorm.h"
#include "kernels/swiglu.h"
#include "policy/ids.h"
#include "policy/status_macros.h"

namespace lockstep::transport {
namespace {

using kernels::FloatType;

absl::StatusOr<FloatType> TypeOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBF16:
      return FloatType::kBf16;
    case Dtype::kF16:
      return FloatType::kF16;
    case Dtype::kF32:
      return FloatType::kF32;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("no exact program takes ", DtypeName(dtype), " operands"));
  }
}

absl::Status UnknownProgram(const ProbeComponent& component) {
  return absl::InvalidArgumentError(absl::StrCat("this build cannot probe ", component.name,
                                                 ": it has no program '", component.program,
                                                 "' for it; install the same build as the peer"));
}

// BF16 or F16 values, in memory of their own.
std::vector<uint16_t> SeededValues(uint64_t seed, const std::string& name, uint64_t count,
                                   Dtype dtype) {
  std::vector<uint16_t> values(count);
  Digest256 block{};
  constexpr size_t kPerBlock = sizeof(block) / 2;
  for (uint64_t i = 0; i < count; ++i) {
    if (i % kPerBlock == 0) {
      Blake2b256Hasher hasher;
      hasher.Update("lockstep probe input@v1\n");
      hasher.UpdateU64(seed);
      hasher.UpdateString(name);
      hasher.UpdateU64(i / kPerBlock);
      block = hasher.Finish();
    }
    const auto bits = LoadLe<uint16_t>(block.data() + 2 * (i % kPerBlock));
    const float value = static_cast<float>(static_cast<int16_t>(bits)) / 16384.0f;
    values[i] = dtype == Dtype::kF16 ? kernels::F16::Store(value) : kernels::Bf16::Store(value);
  }
  return values;
}

// An operand as a kernel wants it.
struct Matrix {
  const void* data = nullptr;
  int64_t row_stride = 0;
  std::vector<uint8_t> copy;  // holds `data` when it could not be used where it lies
};

class Runner {
 public:
  Runner(const ProbePlan& plan, TensorBytesRef tensor_bytes, int threads)
      : plan_(plan), tensor_bytes_(tensor_bytes), threads_(threads) {}

  absl::StatusOr<std::vector<ComponentDigest>> Run() {
    std::vector<size_t> last_use(plan_.components.size());
    for (size_t i = 0; i < plan_.components.size(); ++i) {
      if (plan_.components[i].input) last_use[*plan_.components[i].input] = i;
    }
    outputs_.resize(plan_.components.size());
    std::vector<ComponentDigest> digests;
    digests.reserve(plan_.components.size());
    for (size_t i = 0; i < plan_.components.size(); ++i) {
      const ProbeComponent& component = plan_.components[i];
      LOCKSTEP_ASSIGN_OR_RETURN(std::vector<uint8_t> output, RunOne(component));
      digests.push_back({component.name, DigestOf(component, output)});
      outputs_[i] = std::move(output);
      for (const std::optional<size_t> used : {component.input, std::optional<size_t>(i)}) {
        if (used && last_use[*used] <= i) outputs_[*used] = {};
      }
    }
    return digests;
  }

 private:
  static Digest256 DigestOf(const ProbeComponent& component, const std::vector<uint8_t>& output) {
    Blake2b256Hasher hasher;
    hasher.Update("lockstep probe component@v1\n");
    hasher.UpdateString(component.name);
    hasher.UpdateString(component.program);
    hasher.UpdateString(component.realisation);
    hasher.UpdateString(DtypeName(component.dtype));
    hasher.UpdateU64(component.rows);
    hasher.UpdateU64(component.out_columns);
    hasher.Update(absl::MakeConstSpan(output));
    return hasher.Finish();
  }

  absl::StatusOr<std::vector<uint8_t>> RunOne(const ProbeComponent& component) {
    switch (component.op) {
      case ProbeOp::kRmsNorm:
        return Norm(component);
      case ProbeOp::kGemm:
        return Product(component);
      case ProbeOp::kSwiglu:
        return Activation(component);
      case ProbeOp::kBytes:
        break;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const Matrix read, Operand(component, 0, 1));
    const auto* bytes = static_cast<const uint8_t*>(read.data);
    return std::vector<uint8_t>(bytes, bytes + component.operands[0].columns);
  }

  // [rows, in_columns], contiguous and aligned.
  std::vector<uint8_t> Input(const ProbeComponent& component) const {
    if (component.input) return outputs_[*component.input];
    return Bytes(SeededValues(plan_.seed, component.name, component.rows * component.in_columns,
                              component.dtype));
  }

  static std::vector<uint8_t> Bytes(const std::vector<uint16_t>& values) {
    std::vector<uint8_t> bytes(2 * values.size());
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }

  absl::StatusOr<Matrix> Operand(const ProbeComponent& component, size_t index,
                                 uint64_t element_bytes) const {
    const ProbeOperand& operand = component.operands[index];
    Matrix matrix;
    if (!operand.tensor) {
      matrix.copy = Bytes(SeededValues(plan_.seed, absl::StrCat(component.name, ".operand.", index),
                                       operand.rows * operand.columns, operand.dtype));
      matrix.data = matrix.copy.data();
      matrix.row_stride = static_cast<int64_t>(operand.columns);
      return matrix;
    }
    const absl::Span<const uint8_t> tensor = tensor_bytes_(*operand.tensor);
    const uint64_t elements = tensor.size() / element_bytes;
    const uint64_t end = operand.offset + (operand.rows - 1) * operand.row_stride + operand.columns;
    if (end > elements) {
      return absl::InvalidArgumentError(
          absl::StrCat("probe of ", component.name, ": tensor ", *operand.tensor, " has ", elements,
                       " elements, its manifest says at least ", end));
    }
    const uint8_t* const start = tensor.data() + operand.offset * element_bytes;
    matrix.data = start;
    matrix.row_stride = static_cast<int64_t>(operand.row_stride);
    if (reinterpret_cast<uintptr_t>(start) % element_bytes == 0) return matrix;
    // A file maps its tensors at any byte.
    matrix.copy.resize(operand.rows * operand.columns * element_bytes);
    const uint64_t row_bytes = operand.columns * element_bytes;
    for (uint64_t row = 0; row < operand.rows; ++row) {
      std::memcpy(matrix.copy.data() + row * row_bytes,
                  start + row * operand.row_stride * element_bytes, row_bytes);
    }
    matrix.data = matrix.copy.data();
    matrix.row_stride = static_cast<int64_t>(operand.columns);
    return matrix;
  }

  absl::StatusOr<std::vector<uint8_t>> Norm(const ProbeComponent& component) {
    if (component.program != kernels::kRmsNormId) return UnknownProgram(component);
    LOCKSTEP_ASSIGN_OR_RETURN(const FloatType weight_type, TypeOf(component.operands[0].dtype));
    LOCKSTEP_ASSIGN_OR_RETURN(const Matrix weight,
                              Operand(component, 0, kernels::SizeOf(weight_type)));
    const std::vector<uint8_t> input = Input(component);
    std::vector<uint8_t> output(2 * component.rows * component.out_columns);
    kernels::RmsNormParams params;
    params.rows = static_cast<int64_t>(component.rows);
    params.columns = static_cast<int64_t>(component.in_columns);
    params.x = reinterpret_cast<const uint16_t*>(input.data());
    params.weight = weight.data;
    params.weight_type = weight_type;
    params.zero_centered = component.zero_centered;
    params.eps = component.eps;
    params.out = reinterpret_cast<uint16_t*>(output.data());
    LOCKSTEP_RETURN_IF_ERROR(kernels::RmsNorm(params));
    return output;
  }

  absl::StatusOr<std::vector<uint8_t>> Product(const ProbeComponent& component) {
    kernels::GemmParams params;
    if (component.program == kernels::kGemmTileId) {
      params.program = kernels::GemmProgram::kTile;
    } else if (component.program != kernels::kGemmChainId) {
      return UnknownProgram(component);
    }
    LOCKSTEP_ASSIGN_OR_RETURN(params.operand_type, TypeOf(component.dtype));
    params.out_type = params.operand_type;
    const std::vector<uint8_t> input = Input(component);
    std::vector<uint8_t> output(2 * component.rows * component.out_columns);
    params.m = static_cast<int64_t>(component.rows);
    params.k = static_cast<int64_t>(component.in_columns);
    params.a = input.data();
    params.out_row_stride = static_cast<int64_t>(component.out_columns);
    params.threads = threads_;
    uint64_t column = 0;
    for (size_t i = 0; i < component.operands.size(); ++i) {
      LOCKSTEP_ASSIGN_OR_RETURN(const Matrix weight, Operand(component, i, 2));
      params.n = static_cast<int64_t>(component.operands[i].rows);
      params.b = weight.data;
      params.b_row_stride = weight.row_stride;
      params.out = output.data() + 2 * column;
      LOCKSTEP_RETURN_IF_ERROR(kernels::Gemm(params));
      column += component.operands[i].rows;
    }
    return output;
  }

  absl::StatusOr<std::vector<uint8_t>> Activation(const ProbeComponent& component) {
    kernels::SwigluParams params;
    LOCKSTEP_ASSIGN_OR_RETURN(params.type, TypeOf(component.dtype));
    params.rows = static_cast<int64_t>(component.rows);
    params.columns = static_cast<int64_t>(component.out_columns);
    if (component.program == kernels::kSwigluTwoRoundId) {
      params.program = kernels::SwigluProgram::kTwoRound;
    } else if (component.program == kernels::kSwigluClampedId) {
      params.program = kernels::SwigluProgram::kOneRoundFp32Clamped;
      params.limit = component.limit;
    } else if (component.program != kernels::kSwigluOneRoundId) {
      return UnknownProgram(component);
    }
    if (component.realisation != kernels::kSiluIeee) {
      LOCKSTEP_ASSIGN_OR_RETURN(params.silu,
                                kernels::FindSiluTable(component.realisation, params.type));
    }
    const std::vector<uint8_t> input = Input(component);
    std::vector<uint8_t> output(2 * component.rows * component.out_columns);
    params.SetPackedGateUp(input.data());
    params.out = output.data();
    LOCKSTEP_RETURN_IF_ERROR(kernels::Swiglu(params));
    return output;
  }

  const ProbePlan& plan_;
  TensorBytesRef tensor_bytes_;
  int threads_;
  std::vector<std::vector<uint8_t>> outputs_;  // by component; emptied after the last use
};

}  // namespace

absl::StatusOr<std::vector<ComponentDigest>> RunProbe(const ProbePlan& plan,
                                                      TensorBytesRef tensor_bytes, int threads) {
  return Runner(plan, tensor_bytes, threads).Run();
}

absl::StatusOr<Evidence> MakeEvidence() {
  Evidence evidence;
  for (const kernels::SiluRealisation& known : kernels::KnownSiluRealisations()) {
    // Contracts name realisations of BF16 gates; one id has one digest in evidence.
    if (known.gate != FloatType::kBf16) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(const kernels::GateTable* table,
                              kernels::FindSiluTable(known.id, known.gate));
    evidence.tables.emplace(known.id, table->digest());
  }
  const auto no_tensor = [](size_t) { return absl::Span<const uint8_t>(); };
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<ComponentDigest> digests,
                            RunProbe(RegistrationProbePlan(), no_tensor, 1));
  for (const ComponentDigest& digest : digests) evidence.probe.emplace(digest.name, digest.digest);
  return evidence;
}

}  // namespace lockstep::transport
