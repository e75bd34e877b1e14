#ifndef LOCKSTEP_TOOLS_CLI_KERNEL_OP_H_
#define LOCKSTEP_TOOLS_CLI_KERNEL_OP_H_

// An op of `lockstep kernel run` is a row: the tensors it takes, the options, and the function
// that hands both to kernels/*.h or to the CUDA twin.
//
// Example, in kernel_run_matrix.cc:
//   constexpr TensorRule kGemmTensors[] = {{"a", "M,K", kHalf, 'a'}, {"b", "N,K", kHalf, 'a'}};
//   absl::Status RunGemm(KernelCall& call) {
//     kernels::GemmParams p;
//     p.m = call.Size("M"), ...
//     LOCKSTEP_ASSIGN_OR_RETURN(p.out, call.Out("out", call.DtypeOf("a"), {p.m, p.n}));
//     return call.on_cuda() ? kernels::GemmCuda(p, call.stream()) : kernels::Gemm(p);
//   }
//   {.name = "gemm", .tensors = kGemmTensors, .run = RunGemm}

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/types.h"
#include "policy/manifest.h"
#include "tools/cli/checkpoint_file.h"
#include "tools/cli/kernel_memory.h"

namespace lockstep::tools {

enum class TensorNeed : uint8_t {
  kRequired,
  kOptional,
  kPacked,    // instead of the separate ones
  kSeparate,  // instead of the packed one
};

struct TensorRule {
  absl::string_view name;
  // Sizes, outermost first. A name ("T", or "2N" for twice N) is the same size wherever the op's
  // tensors have it; a number is itself.
  absl::string_view shape;
  absl::string_view dtypes;  // safetensors spelling, separated by one space
  char same_dtype = 0;       // tensors with the same letter share their dtype
  TensorNeed need = TensorNeed::kRequired;
  bool batch_of_one = false;  // one more leading dimension, of size 1, is accepted
};

// Decimal text is rounded once to float32.
struct KernelOptions {
  float scale = 1;
  float eps = 1e-6f;
  float limit = 0;
  float theta = 10000;
  bool zero_centered = false;
  bool renormalise = false;
  int64_t tp = 1;
  int64_t cp = 1;
  int64_t topk = 1;
  int64_t rotary_dim = 0;  // 0: the whole head
  std::string score = "softmax";
};

class KernelCall;

struct KernelOp {
  absl::string_view name;
  absl::Span<const TensorRule> tensors;
  absl::Span<const absl::string_view> flags = {};  // of the options that it reads
  bool takes_realisation = false;
  // What it refuses it says as kernels/*.h do.
  absl::Status (*run)(KernelCall& call) = nullptr;
};

// All ops, in the order of kernels/SPECIFICATION.md.
const std::vector<KernelOp>& KernelOps();
// InvalidArgument, with the nearest names, when there is none.
absl::StatusOr<const KernelOp*> FindKernelOp(absl::string_view name);

struct KernelRequest {
  const KernelOp* op = nullptr;
  std::string program;
  std::string realisation = "silu/ieee@v1";
  KernelOptions options;
  int threads = 1;
};

// A tensor that owns its bytes.
struct KernelTensor {
  TensorSpec spec;
  std::vector<uint8_t> bytes;
};

// Runs the op in `memory`. Tensors named "want_..." are recorded answers and are not read.
// InvalidArgument for an input that does not fit the op's rules (an unknown or missing name, a
// shape, a dtype) or a program that is not the op's; FailedPrecondition for what the program
// refuses; Unavailable without a device. Outputs in the order the op makes them.
absl::StatusOr<std::vector<KernelTensor>> RunKernel(const KernelRequest& request,
                                                    absl::Span<const TensorToWrite> inputs,
                                                    KernelMemory& memory);

// One run of an op: its inputs, judged and copied to where it runs, and its outputs.
class KernelCall {
 public:
  // Errors as RunKernel's for the inputs. All three outlive the call.
  static absl::StatusOr<KernelCall> Make(const KernelRequest& request,
                                         absl::Span<const TensorToWrite> inputs,
                                         KernelMemory& memory);

  const std::string& program() const { return request_.program; }
  const std::string& realisation() const { return request_.realisation; }
  const KernelOptions& options() const { return request_.options; }
  int threads() const { return request_.threads; }
  bool on_cuda() const { return memory_.on_cuda(); }
  kernels::CudaStream stream() const { return memory_.stream(); }

  int64_t Size(absl::string_view name) const;  // of a rule's shape
  bool Has(absl::string_view tensor) const { return Find(tensor) != nullptr; }
  // nullptr when an optional tensor is not there.
  template <class T>
  const T* In(absl::string_view tensor) const {
    const Input* input = Find(tensor);
    return input == nullptr ? nullptr : static_cast<const T*>(input->data);
  }
  Dtype DtypeOf(absl::string_view tensor) const;
  kernels::FloatType TypeOf(absl::string_view tensor) const;
  bool HasBatch(absl::string_view tensor) const;
  // In host memory, at any alignment.
  absl::Span<const uint8_t> HostBytes(absl::string_view tensor) const;

  // Room for an output.
  absl::StatusOr<void*> Out(absl::string_view tensor, Dtype dtype, std::vector<int64_t> shape);
  absl::StatusOr<void*> Workspace(size_t bytes) { return memory_.Take(bytes); }
  // Waits for the device: before what a kernel reads is let go.
  absl::Status Finish() { return memory_.Finish(); }

  absl::StatusOr<std::vector<KernelTensor>> TakeOutputs();

 private:
  struct Input {
    const TensorToWrite* tensor = nullptr;
    bool batch = false;
    const void* data = nullptr;
  };
  struct Bound {
    int64_t size = 0;
    absl::string_view by;  // the tensor that said so
  };
  struct Output {
    KernelTensor tensor;
    const void* data = nullptr;
  };

  KernelCall(const KernelRequest& request, KernelMemory& memory)
      : request_(request), memory_(memory) {}

  const Input* Find(absl::string_view tensor) const;
  absl::Status CheckNames(absl::Span<const TensorToWrite> inputs) const;
  absl::Status CheckPacking(absl::Span<const TensorToWrite> inputs) const;
  absl::Status Bind(const TensorRule& rule, const TensorToWrite& tensor);
  absl::Status BindDtype(const TensorRule& rule, const TensorToWrite& tensor);
  absl::Status Mismatch(const TensorRule& rule, const TensorSpec& got) const;

  const KernelRequest& request_;
  KernelMemory& memory_;
  std::map<std::string, Input, std::less<>> inputs_;
  std::map<std::string, Bound, std::less<>> sizes_;
  std::map<char, absl::string_view> dtype_of_;  // the tensor that said so
  std::vector<Output> outputs_;
};

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_KERNEL_OP_H_
