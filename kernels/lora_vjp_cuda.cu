#include <cstdint>

#include "kernels/cuda_launch.h"
#include "kernels/cuda_workspace.h"
#include "kernels/float_formats.h"
#include "kernels/gemm_engine_cuda.h"
#include "kernels/lora_factors_cuda.h"
#include "kernels/lora_vjp_cuda.h"
#include "kernels/moe_cuda.h"
#include "kernels/swiglu_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 256;

// One projection of one ordinal, as views into the whole tensors; strides in elements.
struct Projection {
  int64_t inputs, outputs;
  const uint16_t* x;
  int64_t x_stride;
  const uint16_t* weight;
  int64_t weight_stride;
  const uint16_t* a;
  int64_t a_stride;
  const uint16_t* b;  // [outputs, rank]
  const uint16_t* dy;
  int64_t dy_stride;
};

// Where a projection's gradients go.
struct ProjectionGradients {
  float* da;
  int64_t da_stride;
  float* db;       // [outputs, rank]
  float* dweight;  // null where the base is frozen
  int64_t dweight_stride;
  uint16_t* dx;  // [rows, inputs], contiguous
};

struct Scratch {
  CudaMlpFactors factors;
  uint16_t* dactivated;  // [rows, shard]
  uint16_t* dgate;
  uint16_t* dup;
  uint16_t* branches;     // [2, rows, hidden]
  uint16_t* dx_partials;  // [tp, rows, hidden]
  float* da_gate;         // [tp, rank, hidden]
  float* da_up;
  float* db_down;  // [tp, hidden, rank]
  uint16_t* a0;    // [rows, rank]
  float* da0;      // [rows, rank]
  float* base;     // [rows, the larger of hidden and shard]
};

Scratch Lay(const LoraMlpVjpParams& params, WorkspaceCutter& cut) {
  const LoraMlpParams& f = params.forward;
  const int64_t shard = f.intermediate / f.tp;
  const int64_t widest = shard > f.hidden ? shard : f.hidden;
  return {CudaMlpFactors(f, cut),
          cut.Take<uint16_t>(f.rows * shard),
          cut.Take<uint16_t>(f.rows * shard),
          cut.Take<uint16_t>(f.rows * shard),
          cut.Take<uint16_t>(2 * f.rows * f.hidden),
          cut.Take<uint16_t>(f.tp * f.rows * f.hidden),
          cut.Take<float>(f.tp * f.rank * f.hidden),
          cut.Take<float>(f.tp * f.rank * f.hidden),
          cut.Take<float>(f.tp * f.rank * f.hidden),
          cut.Take<uint16_t>(f.rows * f.rank),
          cut.Take<float>(f.rows * f.rank),
          cut.Take<float>(f.rows * widest)};
}

ChainOperand Half(const uint16_t* data, int64_t row_stride, int64_t k_stride) {
  return {data, FloatType::kBf16, static_cast<size_t>(row_stride), static_cast<size_t>(k_stride)};
}

ChainOperand Single(const float* data, int64_t row_stride, int64_t k_stride) {
  return {data, FloatType::kF32, static_cast<size_t>(row_stride), static_cast<size_t>(k_stride)};
}

CudaChainProduct Product(const ChainOperand& a, const ChainOperand& b, int64_t m, int64_t n,
                         int64_t k, FloatType out_type, void* out, int64_t out_stride) {
  CudaChainProduct p;
  p.a = a, p.b = b;
  p.m = m, p.n = n, p.k = k;
  p.out = out, p.out_type = out_type, p.out_row_stride = out_stride;
  return p;
}

// The adjacent-pair sum of `parts` arrays of `count`, odd tails passed up: a stack of pending sums,
// one per complete subtree, joined from the right at the end.
__global__ void __launch_bounds__(kThreads)
    FoldReplicatedKernel(const float* from, int64_t parts, int64_t count, float* out) {
  constexpr int kMaxLevels = 32;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  float pending[kMaxLevels];
  int depth = 0;
  for (int64_t part = 0; part < parts; ++part) {
    float node = from[part * count + i];
    for (int64_t complete = part; complete % 2 == 1; complete /= 2) node = pending[--depth] + node;
    pending[depth++] = node;
  }
  while (depth > 1) {
    --depth;
    pending[depth - 1] = pending[depth - 1] + pending[depth];
  }
  out[i] = F32::Store(pending[0]);
}

// Enqueues the backward of one ordinal after another; replicated factors' gradients wait for the
// fold.
class MlpBackward {
 public:
  MlpBackward(const LoraMlpVjpParams& params, const Scratch& scratch, CudaStream stream)
      : p_(params),
        f_(params.forward),
        s_(scratch),
        stream_(stream),
        shard_(params.forward.intermediate / params.forward.tp) {}

  absl::Status Enqueue() const {
    if (absl::Status s = s_.factors.Enqueue(stream_); !s.ok()) return s;
    for (int64_t ordinal = 0; ordinal < f_.tp; ++ordinal) {
      if (absl::Status s = Ordinal(ordinal); !s.ok()) return s;
    }
    if (absl::Status s = FoldReplicated(s_.da_gate, p_.gate_adapter.a); !s.ok()) return s;
    if (absl::Status s = FoldReplicated(s_.da_up, p_.up_adapter.a); !s.ok()) return s;
    if (absl::Status s = FoldReplicated(s_.db_down, p_.down_adapter.b); !s.ok()) return s;
    return FoldBranches(f_.tp, s_.dx_partials, p_.dx);
  }

 private:
  absl::Status Ordinal(int64_t ordinal) const {
    const int64_t begin = ordinal * shard_;
    const int64_t replicated = ordinal * f_.rank * f_.hidden;
    uint16_t* gate_branch = s_.branches;
    uint16_t* up_branch = gate_branch + f_.rows * f_.hidden;
    if (absl::Status s = Down(begin, s_.db_down + replicated); !s.ok()) return s;
    if (absl::Status s = Activation(begin); !s.ok()) return s;
    if (absl::Status s = Input(begin, f_.gate, s_.factors.gate, s_.dgate, s_.da_gate + replicated,
                               p_.gate_adapter.b, p_.dgate, gate_branch);
        !s.ok()) {
      return s;
    }
    if (absl::Status s = Input(begin, f_.up, s_.factors.up, s_.dup, s_.da_up + replicated,
                               p_.up_adapter.b, p_.dup, up_branch);
        !s.ok()) {
      return s;
    }
    return FoldBranches(2, s_.branches, s_.dx_partials + ordinal * f_.rows * f_.hidden);
  }

  absl::Status Down(int64_t begin, float* db) const {
    Projection projection = {};
    projection.inputs = shard_, projection.outputs = f_.hidden;
    projection.x = f_.saved_activated + begin, projection.x_stride = f_.intermediate;
    projection.weight = f_.down + begin, projection.weight_stride = f_.intermediate;
    projection.a = s_.factors.down.a() + begin, projection.a_stride = f_.intermediate;
    projection.b = s_.factors.down.b();
    projection.dy = p_.dout, projection.dy_stride = f_.hidden;
    return Vjp(projection,
               {p_.down_adapter.a + begin, f_.intermediate, db,
                p_.ddown == nullptr ? nullptr : p_.ddown + begin, f_.intermediate, s_.dactivated});
  }

  absl::Status Activation(int64_t begin) const {
    SwigluVjpParams vjp;
    vjp.rows = f_.rows, vjp.columns = shard_;
    vjp.gate = f_.saved_gate + begin, vjp.gate_row_stride = f_.intermediate;
    vjp.up = f_.saved_up + begin, vjp.up_row_stride = f_.intermediate;
    vjp.dout = s_.dactivated, vjp.dgate = s_.dgate, vjp.dup = s_.dup;
    return SwigluVjpCuda(vjp, nullptr, stream_);
  }

  // The gate or the up projection.
  absl::Status Input(int64_t begin, const uint16_t* weight, const CudaFactors& factors,
                     const uint16_t* dy, float* da, float* db, float* dweight,
                     uint16_t* branch) const {
    Projection projection = {};
    projection.inputs = f_.hidden, projection.outputs = shard_;
    projection.x = f_.x, projection.x_stride = f_.hidden;
    projection.weight = weight + begin * f_.hidden, projection.weight_stride = f_.hidden;
    projection.a = factors.a(), projection.a_stride = f_.hidden;
    projection.b = factors.b() + begin * f_.rank;
    projection.dy = dy, projection.dy_stride = shard_;
    return Vjp(projection,
               {da, f_.hidden, db + begin * f_.rank,
                dweight == nullptr ? nullptr : dweight + begin * f_.hidden, f_.hidden, branch});
  }

  absl::Status Vjp(const Projection& p, const ProjectionGradients& g) const {
    constexpr FloatType kF32 = FloatType::kF32;
    const int64_t rows = f_.rows, rank = f_.rank;
    CudaChainProduct a0 = Product(Half(p.x, p.x_stride, 1), Half(p.a, p.a_stride, 1), rows, rank,
                                  p.inputs, FloatType::kBf16, s_.a0, rank);
    // dB = scale * (dy^T a0), chains over the rows.
    CudaChainProduct db = Product(Half(p.dy, 1, p.dy_stride), Half(s_.a0, 1, rank), p.outputs, rank,
                                  rows, kF32, g.db, rank);
    db.scale = f_.scale;
    // da0 = scale * (dy B), kept in float32.
    CudaChainProduct da0 = Product(Half(p.dy, p.dy_stride, 1), Half(p.b, 1, rank), rows, rank,
                                   p.outputs, kF32, s_.da0, rank);
    da0.scale = f_.scale;
    // dA = da0^T x, chains over the rows.
    CudaChainProduct da = Product(Single(s_.da0, 1, rank), Half(p.x, 1, p.x_stride), rank, p.inputs,
                                  rows, kF32, g.da, g.da_stride);
    // dx = round(dy W + da0 A).
    CudaChainProduct base = Product(Half(p.dy, p.dy_stride, 1), Half(p.weight, 1, p.weight_stride),
                                    rows, p.inputs, p.outputs, kF32, s_.base, p.inputs);
    CudaChainProduct dx = Product(Single(s_.da0, rank, 1), Half(p.a, 1, p.a_stride), rows, p.inputs,
                                  rank, FloatType::kBf16, g.dx, p.inputs);
    dx.base = s_.base, dx.base_type = kF32, dx.base_row_stride = p.inputs;
    for (const CudaChainProduct* product : {&a0, &db, &da0, &da, &base, &dx}) {
      if (absl::Status s = EnqueueChainProduct(*product, stream_); !s.ok()) return s;
    }
    if (g.dweight == nullptr) return absl::OkStatus();
    return EnqueueChainProduct(
        Product(Half(p.dy, 1, p.dy_stride), Half(p.x, 1, p.x_stride), p.outputs, p.inputs, rows,
                kF32, g.dweight, g.dweight_stride),
        stream_);
  }

  // The gradient of a factor that every ordinal holds whole.
  absl::Status FoldReplicated(const float* parts, float* out) const {
    const int64_t count = f_.rank * f_.hidden;
    return Launch("lora_mlp_vjp", FoldReplicatedKernel,
                  {DivideUp(count, kThreads), kThreads, 0, stream_}, parts, f_.tp, count, out);
  }

  // dx of a sum of branches is the bf16 fold of theirs, [count, rows, hidden] in `parts`.
  absl::Status FoldBranches(int64_t count, const uint16_t* parts, uint16_t* out) const {
    MoeFoldParams fold;
    fold.program = MoeFoldProgram::kBf16Tree;
    fold.contributors = count, fold.rows = f_.rows, fold.columns = f_.hidden;
    fold.partials = parts, fold.out = out;
    return MoeFoldCuda(fold, stream_);
  }

  const LoraMlpVjpParams& p_;
  const LoraMlpParams& f_;
  const Scratch& s_;
  CudaStream stream_;
  int64_t shard_;
};

}  // namespace

size_t LoraMlpVjpCudaWorkspaceBytes(const LoraMlpVjpParams& p) {
  WorkspaceCutter size(nullptr);
  Lay(p, size);
  return size.bytes();
}

absl::Status LoraMlpVjpCuda(const LoraMlpVjpParams& p, void* workspace, CudaStream stream) {
  if (absl::Status s = CheckLoraMlpVjp(p); !s.ok()) return s;
  if (absl::Status s = CheckWorkspace("lora_mlp_vjp", workspace); !s.ok()) return s;
  WorkspaceCutter cut(workspace);
  const Scratch scratch = Lay(p, cut);
  return MlpBackward(p, scratch, stream).Enqueue();
}

}  // namespace lockstep::kernels
