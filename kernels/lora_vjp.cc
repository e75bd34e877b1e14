#include "kernels/lora_vjp.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/float_formats.h"
#include "kernels/gemm_engine.h"
#include "kernels/lora_factors.h"
#include "kernels/moe.h"
#include "kernels/scaled_add.h"
#include "kernels/swiglu.h"

namespace lockstep::kernels {
namespace {

// One projection of one ordinal, as views into the whole tensors; strides in elements.
struct Projection {
  size_t rows, inputs, outputs, rank;
  const uint16_t* x;
  size_t x_stride;
  const uint16_t* weight;
  size_t weight_stride;
  const uint16_t* a;
  size_t a_stride;
  const uint16_t* b;  // [outputs, rank]
  float scale;
  int threads;
  const uint16_t* dy;
  size_t dy_stride;
};

// Where a projection's gradients go.
struct ProjectionGradients {
  float* da;
  size_t da_stride;
  float* db;       // [outputs, rank]
  float* dweight;  // null where the base is frozen
  size_t dweight_stride;
  uint16_t* dx;  // [rows, inputs], contiguous
};

ChainOperand Half(const uint16_t* data, size_t row_stride, size_t k_stride) {
  return {data, FloatType::kBf16, row_stride, k_stride};
}

ChainOperand Single(const float* data, size_t row_stride, size_t k_stride) {
  return {data, FloatType::kF32, row_stride, k_stride};
}

void Product(const ChainOperand& a, const ChainOperand& b, size_t m, size_t n, size_t k,
             int threads, FloatType out_type, void* out, size_t out_stride) {
  ChainProduct p;
  p.a = a, p.b = b;
  p.m = m, p.n = n, p.k = k;
  p.out = out, p.out_type = out_type, p.out_row_stride = out_stride;
  p.threads = threads;
  RunChainProduct(p);
}

void ProjectionVjp(const Projection& p, const ProjectionGradients& g) {
  constexpr FloatType kF32 = FloatType::kF32;
  std::vector<uint16_t> a0(p.rows * p.rank);  // as in the forward
  Product(Half(p.x, p.x_stride, 1), Half(p.a, p.a_stride, 1), p.rows, p.rank, p.inputs, p.threads,
          FloatType::kBf16, a0.data(), p.rank);
  // dB = scale * (dy^T a0), chains over the rows.
  Product(Half(p.dy, 1, p.dy_stride), Half(a0.data(), 1, p.rank), p.outputs, p.rank, p.rows,
          p.threads, kF32, g.db, p.rank);
  ScaleF32(p.scale, p.outputs * p.rank, g.db);
  // da0 = scale * (dy B), kept in float32.
  std::vector<float> da0(p.rows * p.rank);
  Product(Half(p.dy, p.dy_stride, 1), Half(p.b, 1, p.rank), p.rows, p.rank, p.outputs, p.threads,
          kF32, da0.data(), p.rank);
  ScaleF32(p.scale, p.rows * p.rank, da0.data());
  // dA = da0^T x, chains over the rows.
  Product(Single(da0.data(), 1, p.rank), Half(p.x, 1, p.x_stride), p.rank, p.inputs, p.rows,
          p.threads, kF32, g.da, g.da_stride);
  if (g.dweight != nullptr) {
    Product(Half(p.dy, 1, p.dy_stride), Half(p.x, 1, p.x_stride), p.outputs, p.inputs, p.rows,
            p.threads, kF32, g.dweight, g.dweight_stride);
  }
  // dx = round(dy W + da0 A).
  std::vector<float> base(p.rows * p.inputs);
  Product(Half(p.dy, p.dy_stride, 1), Half(p.weight, 1, p.weight_stride), p.rows, p.inputs,
          p.outputs, p.threads, kF32, base.data(), p.inputs);
  std::vector<float> adapter(p.rows * p.inputs);
  Product(Single(da0.data(), p.rank, 1), Half(p.a, 1, p.a_stride), p.rows, p.inputs, p.rank,
          p.threads, kF32, adapter.data(), p.inputs);
  AddToBf16(base.data(), adapter.data(), p.rows * p.inputs, g.dx);
}

// The gradient of a factor that every ordinal holds whole: the ordinals' own, summed by an
// adjacent-pair tree in ordinal order.
void FoldReplicated(std::vector<std::vector<float>>& parts, float* out) {
  size_t count = parts.size();
  while (count > 1) {
    for (size_t i = 0; i < count / 2; ++i) {
      const std::vector<float>& left = parts[2 * i];
      const std::vector<float>& right = parts[2 * i + 1];
      for (size_t j = 0; j < left.size(); ++j) parts[i][j] = left[j] + right[j];
    }
    if (count % 2 == 1) parts[count / 2] = parts[count - 1];
    count = count / 2 + count % 2;
  }
  for (size_t j = 0; j < parts[0].size(); ++j) out[j] = F32::Store(parts[0][j]);
}

// dx of a sum of branches is the bf16 fold of theirs, [count, rows, hidden] in `parts`.
absl::Status FoldBranches(const LoraMlpParams& f, int64_t count, const uint16_t* parts,
                          uint16_t* out) {
  MoeFoldParams fold;
  fold.program = MoeFoldProgram::kBf16Tree;
  fold.contributors = count, fold.rows = f.rows, fold.columns = f.hidden;
  fold.partials = parts, fold.out = out, fold.threads = f.threads;
  return MoeFold(fold);
}

// The backward of one ordinal after another; replicated factors' gradients wait for the fold.
class MlpBackward {
 public:
  explicit MlpBackward(const LoraMlpVjpParams& params)
      : p_(params),
        f_(params.forward),
        factors_(params.forward),
        rows_(static_cast<size_t>(f_.rows)),
        hidden_(static_cast<size_t>(f_.hidden)),
        intermediate_(static_cast<size_t>(f_.intermediate)),
        rank_(static_cast<size_t>(f_.rank)),
        tp_(static_cast<size_t>(f_.tp)),
        shard_(intermediate_ / tp_),
        dactivated_(rows_ * shard_),
        dgate_(rows_ * shard_),
        dup_(rows_ * shard_),
        branches_(2 * rows_ * hidden_),
        dx_partials_(tp_ * rows_ * hidden_),
        da_gate_(tp_, std::vector<float>(rank_ * hidden_)),
        da_up_(tp_, std::vector<float>(rank_ * hidden_)),
        db_down_(tp_, std::vector<float>(hidden_ * rank_)) {}

  absl::Status Run() {
    for (size_t ordinal = 0; ordinal < tp_; ++ordinal) {
      if (absl::Status status = Ordinal(ordinal); !status.ok()) return status;
    }
    FoldReplicated(da_gate_, p_.gate_adapter.a);
    FoldReplicated(da_up_, p_.up_adapter.a);
    FoldReplicated(db_down_, p_.down_adapter.b);
    return FoldBranches(f_, f_.tp, dx_partials_.data(), p_.dx);
  }

 private:
  absl::Status Ordinal(size_t ordinal) {
    const size_t begin = ordinal * shard_;
    Down(ordinal, begin);
    if (absl::Status status = Activation(begin); !status.ok()) return status;
    uint16_t* gate_branch = branches_.data();
    uint16_t* up_branch = gate_branch + rows_ * hidden_;
    Input(begin, f_.gate, factors_.gate, dgate_.data(), da_gate_[ordinal].data(), p_.gate_adapter.b,
          p_.dgate, gate_branch);
    Input(begin, f_.up, factors_.up, dup_.data(), da_up_[ordinal].data(), p_.up_adapter.b, p_.dup,
          up_branch);
    return FoldBranches(f_, 2, branches_.data(), dx_partials_.data() + ordinal * rows_ * hidden_);
  }

  Projection Sized(size_t inputs, size_t outputs) const {
    Projection projection = {};
    projection.rows = rows_, projection.inputs = inputs, projection.outputs = outputs;
    projection.rank = rank_, projection.scale = f_.scale, projection.threads = f_.threads;
    return projection;
  }

  void Down(size_t ordinal, size_t begin) {
    Projection projection = Sized(shard_, hidden_);
    projection.x = f_.saved_activated + begin, projection.x_stride = intermediate_;
    projection.weight = f_.down + begin, projection.weight_stride = intermediate_;
    projection.a = factors_.down.a + begin, projection.a_stride = intermediate_;
    projection.b = factors_.down.b;
    projection.dy = p_.dout, projection.dy_stride = hidden_;
    ProjectionVjp(projection, {p_.down_adapter.a + begin, intermediate_, db_down_[ordinal].data(),
                               p_.ddown == nullptr ? nullptr : p_.ddown + begin, intermediate_,
                               dactivated_.data()});
  }

  absl::Status Activation(size_t begin) {
    SwigluVjpParams vjp;
    vjp.rows = f_.rows, vjp.columns = static_cast<int64_t>(shard_);
    vjp.gate = f_.saved_gate + begin, vjp.gate_row_stride = f_.intermediate;
    vjp.up = f_.saved_up + begin, vjp.up_row_stride = f_.intermediate;
    vjp.dout = dactivated_.data(), vjp.dgate = dgate_.data(), vjp.dup = dup_.data();
    vjp.threads = f_.threads;
    return SwigluVjp(vjp);
  }

  // The gate or the up projection.
  void Input(size_t begin, const uint16_t* weight, const Bf16Factors& factors, const uint16_t* dy,
             float* da, float* db, float* dweight, uint16_t* branch) {
    Projection projection = Sized(hidden_, shard_);
    projection.x = f_.x, projection.x_stride = hidden_;
    projection.weight = weight + begin * hidden_, projection.weight_stride = hidden_;
    projection.a = factors.a, projection.a_stride = hidden_;
    projection.b = factors.b + begin * rank_;
    projection.dy = dy, projection.dy_stride = shard_;
    ProjectionVjp(projection,
                  {da, hidden_, db + begin * rank_,
                   dweight == nullptr ? nullptr : dweight + begin * hidden_, hidden_, branch});
  }

  const LoraMlpVjpParams& p_;
  const LoraMlpParams& f_;
  const LoraMlpFactors factors_;
  const size_t rows_, hidden_, intermediate_, rank_, tp_, shard_;
  std::vector<uint16_t> dactivated_, dgate_, dup_, branches_, dx_partials_;
  std::vector<std::vector<float>> da_gate_, da_up_, db_down_;
};

}  // namespace

absl::Status CheckLoraMlpVjp(const LoraMlpVjpParams& p) {
  if (absl::Status status = CheckLoraMlp(p.forward); !status.ok()) return status;
  if (p.forward.saved_gate == nullptr || p.forward.saved_up == nullptr ||
      p.forward.saved_activated == nullptr) {
    return absl::InvalidArgumentError(
        "lora_mlp_vjp: expected saved_gate, saved_up and saved_activated of the forward; pass "
        "them to LoraMlp");
  }
  if (p.dout == nullptr || p.dx == nullptr) {
    return absl::InvalidArgumentError("lora_mlp_vjp: expected non-null dout and dx");
  }
  for (const LoraFactorGradients* g : {&p.gate_adapter, &p.up_adapter, &p.down_adapter}) {
    if (g->a == nullptr || g->b == nullptr) {
      return absl::InvalidArgumentError(
          "lora_mlp_vjp: expected non-null gradients of all six factors");
    }
  }
  return absl::OkStatus();
}

absl::Status LoraMlpVjp(const LoraMlpVjpParams& p) {
  if (absl::Status status = CheckLoraMlpVjp(p); !status.ok()) return status;
  return MlpBackward(p).Run();
}

}  // namespace lockstep::kernels
