#include <cstdint>

#include "kernels/cuda_half.h"
#include "kernels/cuda_launch.h"
#include "kernels/cuda_workspace.h"
#include "kernels/gemm_engine_cuda.h"
#include "kernels/lora_cuda.h"
#include "kernels/lora_factors.h"
#include "kernels/lora_factors_cuda.h"
#include "kernels/moe_cuda.h"
#include "kernels/swiglu_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    ViewKernel(const float* masters, int64_t count, uint16_t* view) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) view[i] = StoreHalf<Bf16>(masters[i]);
}

int64_t StrideOr(int64_t stride, int64_t columns) { return stride == 0 ? columns : stride; }

ChainOperand Half(const uint16_t* data, int64_t row_stride) {
  return {data, FloatType::kBf16, static_cast<size_t>(row_stride), 1};
}

// x * aᵀ, rounded: what LoraLinear's workspace holds.
uint16_t* LayLinear(const LoraLinearParams& p, WorkspaceCutter& cut) {
  return cut.Take<uint16_t>(p.rows * p.rank);
}

absl::Status EnqueueLinear(const LoraLinearParams& p, uint16_t* a0, CudaStream stream) {
  const int64_t out_stride = StrideOr(p.out_row_stride, p.out_features);
  CudaChainProduct base;  // b0, in out
  base.a = Half(p.x, StrideOr(p.x_row_stride, p.in_features));
  base.b = Half(p.weight, StrideOr(p.weight_row_stride, p.in_features));
  base.m = p.rows, base.n = p.out_features, base.k = p.in_features;
  base.out = p.out, base.out_type = FloatType::kBf16, base.out_row_stride = out_stride;
  if (absl::Status s = EnqueueChainProduct(base, stream); !s.ok()) return s;

  CudaChainProduct down = base;
  down.b = Half(p.a, StrideOr(p.a_row_stride, p.in_features));
  down.n = p.rank, down.out = a0, down.out_row_stride = p.rank;
  if (absl::Status s = EnqueueChainProduct(down, stream); !s.ok()) return s;

  CudaChainProduct up;
  up.a = Half(a0, p.rank), up.b = Half(p.b, p.rank);
  up.m = p.rows, up.n = p.out_features, up.k = p.rank;
  up.out = p.out, up.out_type = FloatType::kBf16, up.out_row_stride = out_stride;
  up.scale = p.scale, up.base = p.out, up.base_row_stride = out_stride;
  return EnqueueChainProduct(up, stream);
}

// One ordinal's tensors at a time; those that the caller saves go straight to him.
struct MlpScratch {
  CudaMlpFactors factors;
  uint16_t* gate;
  uint16_t* up;
  uint16_t* activated;
  uint16_t* partials;
  uint16_t* a0;
};

MlpScratch LayMlp(const LoraMlpParams& p, WorkspaceCutter& cut) {
  const int64_t cells = p.rows * (p.intermediate / p.tp);
  const auto unless_given = [&](const uint16_t* given, int64_t count) {
    return given != nullptr ? nullptr : cut.Take<uint16_t>(count);
  };
  return {CudaMlpFactors(p, cut),
          unless_given(p.saved_gate, cells),
          unless_given(p.saved_up, cells),
          unless_given(p.saved_activated, cells),
          unless_given(p.partials, p.tp * p.rows * p.hidden),
          cut.Take<uint16_t>(p.rows * p.rank)};
}

// [rows, shard] of an ordinal, inside a saved tensor or by itself.
struct ShardView {
  uint16_t* data;
  int64_t stride;
};

class MlpOrdinal {
 public:
  MlpOrdinal(const LoraMlpParams& params, const MlpScratch& scratch, const DeviceGateTable* silu,
             CudaStream stream)
      : p_(params),
        scratch_(scratch),
        silu_(silu),
        stream_(stream),
        shard_(params.intermediate / params.tp) {}

  absl::Status Enqueue(int64_t ordinal, uint16_t* partial) const {
    const int64_t begin = ordinal * shard_;
    const ShardView gate = View(p_.saved_gate, scratch_.gate, begin);
    const ShardView up = View(p_.saved_up, scratch_.up, begin);
    const ShardView activated = View(p_.saved_activated, scratch_.activated, begin);
    if (absl::Status s = Project(p_.gate, scratch_.factors.gate, begin, gate); !s.ok()) return s;
    if (absl::Status s = Project(p_.up, scratch_.factors.up, begin, up); !s.ok()) return s;
    if (absl::Status s = Activate(gate, up, activated); !s.ok()) return s;
    return Down(activated, begin, partial);
  }

 private:
  ShardView View(uint16_t* saved, uint16_t* own, int64_t begin) const {
    if (saved != nullptr) return {saved + begin, p_.intermediate};
    return {own, shard_};
  }

  LoraLinearParams Sized(int64_t inputs, int64_t outputs) const {
    LoraLinearParams linear;
    linear.rows = p_.rows, linear.in_features = inputs, linear.out_features = outputs;
    linear.rank = p_.rank, linear.scale = p_.scale;
    return linear;
  }

  absl::Status Project(const uint16_t* weight, const CudaFactors& factors, int64_t begin,
                       const ShardView& out) const {
    LoraLinearParams linear = Sized(p_.hidden, shard_);
    linear.x = p_.x, linear.weight = weight + begin * p_.hidden;
    linear.a = factors.a(), linear.b = factors.b() + begin * p_.rank;
    linear.out = out.data, linear.out_row_stride = out.stride;
    return EnqueueLinear(linear, scratch_.a0, stream_);
  }

  absl::Status Activate(const ShardView& gate, const ShardView& up, const ShardView& out) const {
    SwigluParams swiglu;
    swiglu.program = SwigluProgram::kOneRoundFp32;
    swiglu.rows = p_.rows, swiglu.columns = shard_;
    swiglu.gate = gate.data, swiglu.up = up.data, swiglu.out = out.data;
    swiglu.gate_row_stride = gate.stride, swiglu.up_row_stride = up.stride;
    swiglu.out_row_stride = out.stride;
    swiglu.silu = p_.silu;
    return SwigluCuda(swiglu, silu_, stream_);
  }

  absl::Status Down(const ShardView& activated, int64_t begin, uint16_t* partial) const {
    LoraLinearParams linear = Sized(shard_, p_.hidden);
    linear.x = activated.data, linear.x_row_stride = activated.stride;
    linear.weight = p_.down + begin, linear.weight_row_stride = p_.intermediate;
    linear.a = scratch_.factors.down.a() + begin, linear.a_row_stride = p_.intermediate;
    linear.b = scratch_.factors.down.b();
    linear.out = partial;
    return EnqueueLinear(linear, scratch_.a0, stream_);
  }

  const LoraMlpParams& p_;
  const MlpScratch& scratch_;
  const DeviceGateTable* silu_;
  CudaStream stream_;
  int64_t shard_;
};

CudaFactors LayMerge(const LoraMergeParams& p, WorkspaceCutter& cut) {
  return CudaFactors(p.factors, p.factor_type, p.rank * p.in_features, p.out_features * p.rank,
                     cut);
}

template <class Params, class Lay>
size_t BytesOf(const Params& p, const Lay& lay) {
  WorkspaceCutter size(nullptr);
  lay(p, size);
  return size.bytes();
}

}  // namespace

absl::Status ViewAsBf16Cuda(const float* masters, int64_t count, uint16_t* view,
                            CudaStream stream) {
  return Launch("lora", ViewKernel, {DivideUp(count, kThreads), kThreads, 0, stream}, masters,
                count, view);
}

size_t LoraLinearCudaWorkspaceBytes(const LoraLinearParams& p) { return BytesOf(p, LayLinear); }
size_t LoraMlpCudaWorkspaceBytes(const LoraMlpParams& p) { return BytesOf(p, LayMlp); }
size_t LoraMergeCudaWorkspaceBytes(const LoraMergeParams& p) { return BytesOf(p, LayMerge); }

absl::Status LoraLinearCuda(const LoraLinearParams& p, void* workspace, CudaStream stream) {
  if (absl::Status s = CheckLoraLinear(p); !s.ok()) return s;
  if (absl::Status s = CheckWorkspace("lora", workspace); !s.ok()) return s;
  WorkspaceCutter cut(workspace);
  return EnqueueLinear(p, LayLinear(p, cut), stream);
}

absl::Status LoraMlpCuda(const LoraMlpParams& p, const DeviceGateTable* silu, void* workspace,
                         CudaStream stream) {
  if (absl::Status s = CheckLoraMlp(p); !s.ok()) return s;
  if (p.out == nullptr) return absl::InvalidArgumentError("lora_mlp: expected a non-null out");
  if (absl::Status s = CheckWorkspace("lora_mlp", workspace); !s.ok()) return s;
  WorkspaceCutter cut(workspace);
  const MlpScratch scratch = LayMlp(p, cut);
  if (absl::Status s = scratch.factors.Enqueue(stream); !s.ok()) return s;
  uint16_t* partials = p.partials != nullptr ? p.partials : scratch.partials;
  const MlpOrdinal mlp(p, scratch, silu, stream);
  for (int64_t o = 0; o < p.tp; ++o) {
    if (absl::Status s = mlp.Enqueue(o, partials + o * p.rows * p.hidden); !s.ok()) return s;
  }
  MoeFoldParams fold;
  fold.program = MoeFoldProgram::kBf16Tree;
  fold.contributors = p.tp, fold.rows = p.rows, fold.columns = p.hidden;
  fold.partials = partials, fold.out = p.out;
  return MoeFoldCuda(fold, stream);
}

absl::Status LoraMergeCuda(const LoraMergeParams& p, void* workspace, CudaStream stream) {
  if (absl::Status s = CheckLoraMerge(p); !s.ok()) return s;
  if (p.factor_type == FloatType::kF32) {
    if (absl::Status s = CheckWorkspace("lora merge", workspace); !s.ok()) return s;
  }
  WorkspaceCutter cut(workspace);
  const CudaFactors factors = LayMerge(p, cut);
  if (absl::Status s = factors.Enqueue(stream); !s.ok()) return s;
  CudaChainProduct product;
  product.a = Half(factors.b(), p.rank);
  product.b = {factors.a(), FloatType::kBf16, 1, static_cast<size_t>(p.in_features)};  // transposed
  product.m = p.out_features, product.n = p.in_features, product.k = p.rank;
  product.scale = p.scale;
  product.base = p.weight, product.base_row_stride = p.in_features;
  product.out = p.out, product.out_type = FloatType::kBf16;
  product.out_row_stride = p.in_features;
  return EnqueueChainProduct(product, stream);
}

}  // namespace lockstep::kernels
