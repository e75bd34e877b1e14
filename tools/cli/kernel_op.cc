#include "tools/cli/kernel_op.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "policy/nearest.h"
#include "policy/registry.h"
#include "policy/status_macros.h"
#include "tools/cli/kernel_programs.h"

namespace lockstep::tools {
namespace {

constexpr absl::string_view kRecordedAnswer = "want_";

std::string ShapeText(const std::vector<uint64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ","), "]");
}

std::string DtypesText(absl::string_view dtypes) {
  return absl::StrJoin(absl::StrSplit(dtypes, ' '), " or ");
}

const TensorToWrite* FindTensor(absl::Span<const TensorToWrite> tensors, absl::string_view name) {
  for (const TensorToWrite& tensor : tensors) {
    if (tensor.spec.name == name) return &tensor;
  }
  return nullptr;
}

std::string NamesWith(absl::Span<const TensorRule> rules, TensorNeed need) {
  std::vector<std::string> names;
  for (const TensorRule& rule : rules) {
    if (rule.need == need) names.push_back(absl::StrCat("'", rule.name, "' [", rule.shape, "]"));
  }
  return absl::StrJoin(names, " and ");
}

// "2N" is {2, "N"}, "Hk" {1, "Hk"}, "4" {4, ""}.
struct SizeRule {
  int64_t factor = 1;
  absl::string_view name;
};

SizeRule ParseSize(absl::string_view text) {
  size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  SizeRule rule{1, text.substr(digits)};
  if (digits > 0 && !absl::SimpleAtoi(text.substr(0, digits), &rule.factor)) rule.factor = 0;
  return rule;
}

kernels::FloatType FloatTypeOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF16:
      return kernels::FloatType::kF16;
    case Dtype::kF32:
      return kernels::FloatType::kF32;
    case Dtype::kF64:
      return kernels::FloatType::kF64;
    default:
      return kernels::FloatType::kBf16;
  }
}

}  // namespace

absl::StatusOr<const KernelOp*> FindKernelOp(absl::string_view name) {
  std::vector<std::string> known;
  for (const KernelOp& op : KernelOps()) {
    if (op.name == name) return &op;
    known.emplace_back(op.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(UnknownNameText("op", name, known), "; all: ", absl::StrJoin(known, ", ")));
}

// ---- inputs ----

absl::Status KernelCall::CheckNames(absl::Span<const TensorToWrite> inputs) const {
  std::vector<std::string> known;
  for (const TensorRule& rule : request_.op->tensors) known.emplace_back(rule.name);
  for (const TensorToWrite& input : inputs) {
    const std::string& name = input.spec.name;
    if (absl::StartsWith(name, kRecordedAnswer)) continue;
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", UnknownNameText("input", name, known), "; ", request_.op->name,
                       " takes ", absl::StrJoin(known, ", ")));
    }
  }
  return absl::OkStatus();
}

absl::Status KernelCall::CheckPacking(absl::Span<const TensorToWrite> inputs) const {
  std::vector<std::string> packed, separate;
  for (const TensorRule& rule : request_.op->tensors) {
    if (FindTensor(inputs, rule.name) == nullptr) continue;
    if (rule.need == TensorNeed::kPacked) packed.emplace_back(rule.name);
    if (rule.need == TensorNeed::kSeparate) separate.emplace_back(rule.name);
  }
  const auto count = [&](TensorNeed need) {
    return static_cast<size_t>(
        std::count_if(request_.op->tensors.begin(), request_.op->tensors.end(),
                      [&](const TensorRule& rule) { return rule.need == need; }));
  };
  const size_t all_packed = count(TensorNeed::kPacked);
  const size_t all_separate = count(TensorNeed::kSeparate);
  if (all_packed + all_separate == 0) return absl::OkStatus();
  if (packed.size() == all_packed && separate.empty()) return absl::OkStatus();
  if (packed.empty() && separate.size() == all_separate) return absl::OkStatus();
  packed.insert(packed.end(), separate.begin(), separate.end());
  return absl::InvalidArgumentError(absl::StrCat(
      "expected tensor ", NamesWith(request_.op->tensors, TensorNeed::kPacked), ", or ",
      NamesWith(request_.op->tensors, TensorNeed::kSeparate), "; got ",
      packed.empty() ? "none of them" : absl::StrCat("'", absl::StrJoin(packed, "', '"), "'")));
}

absl::Status KernelCall::Mismatch(const TensorRule& rule, const TensorSpec& got) const {
  std::vector<std::string> known;
  for (const absl::string_view text : absl::StrSplit(rule.shape, ',')) {
    const auto bound = sizes_.find(ParseSize(text).name);
    if (bound == sizes_.end() || bound->second.by == rule.name) continue;
    known.push_back(
        absl::StrCat(bound->first, "=", bound->second.size, " as in '", bound->second.by, "'"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor '", rule.name, "': expected ", DtypesText(rule.dtypes), " [", rule.shape, "]",
      known.empty() ? "" : absl::StrCat(" with ", absl::StrJoin(known, ", ")),
      ", every size at least 1; got ", DtypeName(got.dtype), " ", ShapeText(got.shape)));
}

absl::Status KernelCall::BindDtype(const TensorRule& rule, const TensorToWrite& tensor) {
  const std::vector<absl::string_view> allowed = absl::StrSplit(rule.dtypes, ' ');
  const absl::string_view name = DtypeName(tensor.spec.dtype);
  if (std::find(allowed.begin(), allowed.end(), name) == allowed.end()) {
    return Mismatch(rule, tensor.spec);
  }
  if (rule.same_dtype == 0) return absl::OkStatus();
  const auto [said, first] = dtype_of_.emplace(rule.same_dtype, rule.name);
  if (first || DtypeOf(said->second) == tensor.spec.dtype) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor '", rule.name, "': expected ", DtypeName(DtypeOf(said->second)), ", the dtype of '",
      said->second, "', got ", name, " ", ShapeText(tensor.spec.shape)));
}

absl::Status KernelCall::Bind(const TensorRule& rule, const TensorToWrite& tensor) {
  LOCKSTEP_RETURN_IF_ERROR(BindDtype(rule, tensor));
  const std::vector<absl::string_view> sizes = absl::StrSplit(rule.shape, ',');
  absl::Span<const uint64_t> shape = tensor.spec.shape;
  const bool batch = rule.batch_of_one && shape.size() == sizes.size() + 1;
  if (batch && shape[0] != 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("tensor '", rule.name, "': a leading batch of 1 is accepted, got ", shape[0],
                     " in ", ShapeText(tensor.spec.shape), "; run each document by itself"));
  }
  if (batch) shape.remove_prefix(1);
  if (shape.size() != sizes.size()) return Mismatch(rule, tensor.spec);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const SizeRule size = ParseSize(sizes[i]);
    const auto factor = static_cast<uint64_t>(size.factor);
    if (shape[i] == 0 || shape[i] > uint64_t{std::numeric_limits<int64_t>::max()} ||
        shape[i] % factor != 0) {
      return Mismatch(rule, tensor.spec);
    }
    const auto value = static_cast<int64_t>(shape[i] / factor);
    if (size.name.empty()) {
      if (value != 1) return Mismatch(rule, tensor.spec);
      continue;
    }
    const auto [bound, first] = sizes_.emplace(size.name, Bound{value, rule.name});
    if (!first && bound->second.size != value) return Mismatch(rule, tensor.spec);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const void* data, memory_.CopyIn(tensor.bytes));
  inputs_[std::string(rule.name)] = {&tensor, batch, data};
  return absl::OkStatus();
}

absl::StatusOr<KernelCall> KernelCall::Make(const KernelRequest& request,
                                            absl::Span<const TensorToWrite> inputs,
                                            KernelMemory& memory) {
  KernelCall call(request, memory);
  LOCKSTEP_RETURN_IF_ERROR(call.CheckNames(inputs));
  LOCKSTEP_RETURN_IF_ERROR(call.CheckPacking(inputs));
  for (const TensorRule& rule : request.op->tensors) {
    const TensorToWrite* tensor = FindTensor(inputs, rule.name);
    if (tensor != nullptr) {
      LOCKSTEP_RETURN_IF_ERROR(call.Bind(rule, *tensor));
    } else if (rule.need == TensorNeed::kRequired) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", rule.name, "' is missing: ", request.op->name, " expects it as ",
                       DtypesText(rule.dtypes), " [", rule.shape, "]"));
    }
  }
  return call;
}

const KernelCall::Input* KernelCall::Find(absl::string_view tensor) const {
  const auto found = inputs_.find(tensor);
  return found == inputs_.end() ? nullptr : &found->second;
}

int64_t KernelCall::Size(absl::string_view name) const {
  const auto found = sizes_.find(name);
  return found == sizes_.end() ? 0 : found->second.size;
}

Dtype KernelCall::DtypeOf(absl::string_view tensor) const {
  const Input* input = Find(tensor);
  return input == nullptr ? Dtype::kBF16 : input->tensor->spec.dtype;
}

kernels::FloatType KernelCall::TypeOf(absl::string_view tensor) const {
  return FloatTypeOf(DtypeOf(tensor));
}

bool KernelCall::HasBatch(absl::string_view tensor) const {
  const Input* input = Find(tensor);
  return input != nullptr && input->batch;
}

absl::Span<const uint8_t> KernelCall::HostBytes(absl::string_view tensor) const {
  const Input* input = Find(tensor);
  return input == nullptr ? absl::Span<const uint8_t>() : input->tensor->bytes;
}

// ---- outputs ----

absl::StatusOr<void*> KernelCall::Out(absl::string_view tensor, Dtype dtype,
                                      std::vector<int64_t> shape) {
  Output output;
  output.tensor.spec.name = std::string(tensor);
  output.tensor.spec.dtype = dtype;
  output.tensor.spec.shape.assign(shape.begin(), shape.end());
  LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t bytes, TensorBytes(output.tensor.spec));
  LOCKSTEP_ASSIGN_OR_RETURN(void* const data, memory_.Take(bytes));
  output.tensor.bytes.resize(bytes);
  output.data = data;
  outputs_.push_back(std::move(output));
  return data;
}

absl::StatusOr<std::vector<KernelTensor>> KernelCall::TakeOutputs() {
  LOCKSTEP_RETURN_IF_ERROR(memory_.Finish());
  std::vector<KernelTensor> tensors;
  for (Output& output : outputs_) {
    LOCKSTEP_RETURN_IF_ERROR(memory_.CopyOut(output.data, absl::MakeSpan(output.tensor.bytes)));
    tensors.push_back(std::move(output.tensor));
  }
  return tensors;
}

absl::StatusOr<std::vector<KernelTensor>> RunKernel(const KernelRequest& request,
                                                    absl::Span<const TensorToWrite> inputs,
                                                    KernelMemory& memory) {
  const std::vector<std::string> programs = ProgramsOf(request.op->name);
  if (std::find(programs.begin(), programs.end(), request.program) == programs.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        UnknownNameText(absl::StrCat("program of ", request.op->name), request.program, programs),
        "; all: ", absl::StrJoin(programs, ", ")));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(KernelCall call, KernelCall::Make(request, inputs, memory));
  const absl::Status ran = request.op->run(call);
  // The inputs fit the op: what is left is the program's own refusal of their values.
  if (absl::IsInvalidArgument(ran)) return absl::FailedPreconditionError(ran.message());
  LOCKSTEP_RETURN_IF_ERROR(ran);
  return call.TakeOutputs();
}

}  // namespace lockstep::tools
