#include "kernels/layer_mlp.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/float_formats.h"
#include "kernels/layer_ops.h"

namespace lockstep::kernels {
namespace {

using Rows = std::vector<uint16_t>;  // BF16, dense

// One MLP over gathered rows. `down_row_stride` and the pointers select a shard.
struct MlpPart {
  SwigluProgram program = SwigluProgram::kOneRoundFp32;
  int64_t rows = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  const uint16_t* gate = nullptr;
  const uint16_t* up = nullptr;
  const uint16_t* down = nullptr;
  int64_t down_row_stride = 0;
  const GateTable* silu = nullptr;
  int threads = 1;
};

// Where the MLP's own intermediates go when somebody observes.
struct MlpScratch {
  Rows gate;
  Rows up;
  Rows activated;
};

absl::Status RunMlpPart(const MlpPart& part, const uint16_t* x, MlpScratch& scratch,
                        uint16_t* out) {
  const size_t count = static_cast<size_t>(part.rows * part.intermediate);
  scratch.gate.resize(count), scratch.up.resize(count), scratch.activated.resize(count);
  Projection in;
  in.rows = part.rows, in.n = part.intermediate, in.k = part.hidden;
  in.x = x, in.threads = part.threads;
  in.weight = part.gate, in.out = scratch.gate.data();
  if (absl::Status status = Project(in); !status.ok()) return status;
  in.weight = part.up, in.out = scratch.up.data();
  if (absl::Status status = Project(in); !status.ok()) return status;
  SwigluParams swiglu;
  swiglu.program = part.program;
  swiglu.rows = part.rows, swiglu.columns = part.intermediate;
  swiglu.gate = scratch.gate.data(), swiglu.up = scratch.up.data();
  swiglu.out = scratch.activated.data();
  swiglu.silu = part.silu, swiglu.threads = part.threads;
  if (absl::Status status = Swiglu(swiglu); !status.ok()) return status;
  Projection down;
  down.rows = part.rows, down.n = part.hidden, down.k = part.intermediate;
  down.x = scratch.activated.data(), down.weight = part.down;
  down.weight_row_stride = part.down_row_stride;
  down.out = out, down.threads = part.threads;
  return Project(down);
}

absl::Status CheckMlp(const char* op, const MlpWeights& w, int64_t hidden, int64_t intermediate) {
  if (hidden < 1 || intermediate < 1) {
    return absl::InvalidArgumentError(absl::StrCat(op,
                                                   ": expected sizes of at least 1, got hidden ",
                                                   hidden, ", intermediate ", intermediate));
  }
  const int64_t elements = hidden * intermediate;
  if (absl::Status s = CheckLayerWeight(op, "gate", w.gate, elements); !s.ok()) return s;
  if (absl::Status s = CheckLayerWeight(op, "up", w.up, elements); !s.ok()) return s;
  return CheckLayerWeight(op, "down", w.down, elements);
}

absl::Status CheckMoe(const MoeSite& site, const MoeWeights& w, const LayerRun& run) {
  constexpr char kOp[] = "moe_site";
  if (absl::Status s = CheckLayerRun(run); !s.ok()) return s;
  const int64_t experts = static_cast<int64_t>(w.experts.size());
  if (experts < 1 || site.contributors < 1 || site.topk < 1 || site.topk > experts ||
      site.shared_intermediate % site.contributors != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        kOp, ": expected experts, topk of at most their number and a shared intermediate that the ",
        "contributors divide, got ", experts, " experts, topk ", site.topk, ", intermediate ",
        site.shared_intermediate, ", ", site.contributors, " contributors"));
  }
  if (absl::Status s = CheckLayerWeight(kOp, "router", w.router, experts * site.hidden); !s.ok()) {
    return s;
  }
  if (w.router_bias.data != nullptr) {
    absl::Status s = CheckLayerWeight(kOp, "router_bias", w.router_bias, experts, true);
    if (!s.ok()) return s;
  }
  if (w.shared_expert_gate.data != nullptr) {
    absl::Status s = CheckLayerWeight(kOp, "shared_expert_gate", w.shared_expert_gate, site.hidden);
    if (!s.ok()) return s;
  }
  for (const MlpWeights& expert : w.experts) {
    absl::Status s = CheckMlp(kOp, expert, site.hidden, site.intermediate);
    if (!s.ok()) return s;
  }
  return CheckMlp(kOp, w.shared, site.hidden, site.shared_intermediate);
}

struct Routing {
  std::vector<int32_t> ids;    // [rows, topk]
  std::vector<float> weights;  // [rows, topk]
};

absl::Status Route(const MoeSite& site, const MoeWeights& w, const LayerRun& run, const uint16_t* x,
                   Routing& routing) {
  const int64_t rows = run.rows();
  const int64_t experts = static_cast<int64_t>(w.experts.size());
  std::vector<float> logits(static_cast<size_t>(rows * experts));
  Projection project;
  project.rows = rows, project.n = experts, project.k = site.hidden;
  project.x = x, project.weight = w.router.bf16();
  project.out_type = FloatType::kF32, project.out = logits.data();
  project.threads = run.threads;
  if (absl::Status status = Project(project); !status.ok()) return status;
  run.Observe("router_logits", FloatType::kF32, rows, experts, logits.data());
  std::vector<float> bias;
  if (w.router_bias.data != nullptr) {
    bias.resize(static_cast<size_t>(experts));
    for (size_t e = 0; e < bias.size(); ++e) {
      bias[e] = w.router_bias.type == FloatType::kBf16
                    ? Bf16::Load(w.router_bias.bf16()[e])
                    : static_cast<const float*>(w.router_bias.data)[e];
    }
  }
  routing.ids.resize(static_cast<size_t>(rows * site.topk));
  routing.weights.resize(routing.ids.size());
  RouterTopkParams p;
  p.score = site.score;
  p.rows = rows, p.experts = experts, p.topk = site.topk;
  p.logits = logits.data(), p.bias = bias.empty() ? nullptr : bias.data();
  p.renormalise = site.renormalise;
  p.ids = routing.ids.data(), p.weights = routing.weights.data();
  p.threads = run.threads;
  if (absl::Status status = RouterTopk(p); !status.ok()) return status;
  run.Observe("router_weights", FloatType::kF32, rows, site.topk, routing.weights.data());
  return absl::OkStatus();
}

// Each expert over the rows that chose it; `outputs` [rows, topk, hidden].
absl::Status RunExperts(const MoeSite& site, const MoeWeights& w, const LayerRun& run,
                        const uint16_t* x, const Routing& routing, Rows& outputs) {
  const size_t hidden = static_cast<size_t>(site.hidden);
  const size_t topk = static_cast<size_t>(site.topk);
  outputs.resize(routing.ids.size() * hidden);
  std::vector<std::vector<size_t>> slots(w.experts.size());
  for (size_t slot = 0; slot < routing.ids.size(); ++slot) {
    slots[static_cast<size_t>(routing.ids[slot])].push_back(slot);
  }
  MlpScratch scratch;
  for (size_t e = 0; e < slots.size(); ++e) {
    if (slots[e].empty()) continue;
    Rows gathered(slots[e].size() * hidden);
    Rows result(gathered.size());
    for (size_t i = 0; i < slots[e].size(); ++i) {
      std::copy_n(x + slots[e][i] / topk * hidden, hidden, gathered.data() + i * hidden);
    }
    MlpPart part;
    part.program = SwigluProgram::kTwoRound;
    part.rows = static_cast<int64_t>(slots[e].size());
    part.hidden = site.hidden, part.intermediate = site.intermediate;
    part.gate = w.experts[e].gate.bf16(), part.up = w.experts[e].up.bf16();
    part.down = w.experts[e].down.bf16();
    part.silu = run.silu, part.threads = run.threads;
    absl::Status status = RunMlpPart(part, gathered.data(), scratch, result.data());
    if (!status.ok()) return status;
    for (size_t i = 0; i < slots[e].size(); ++i) {
      std::copy_n(result.data() + i * hidden, hidden, outputs.data() + slots[e][i] * hidden);
    }
  }
  run.Observe("routed_experts", FloatType::kBf16, static_cast<int64_t>(routing.ids.size()),
              site.hidden, outputs.data());
  return absl::OkStatus();
}

// The shared expert's partial of one contributor, gated where the family gates it.
absl::Status RunSharedPart(const MoeSite& site, const MoeWeights& w, const LayerRun& run,
                           const uint16_t* x, int64_t contributor, Rows& out) {
  const int64_t share = site.shared_intermediate / site.contributors;
  const int64_t first = contributor * share;
  MlpPart part;
  part.rows = run.rows(), part.hidden = site.hidden, part.intermediate = share;
  part.gate = w.shared.gate.bf16() + first * site.hidden;
  part.up = w.shared.up.bf16() + first * site.hidden;
  part.down = w.shared.down.bf16() + first;
  part.down_row_stride = site.shared_intermediate;
  part.silu = run.silu, part.threads = run.threads;
  MlpScratch scratch;
  absl::Status status = RunMlpPart(part, x, scratch, out.data());
  if (!status.ok() || w.shared_expert_gate.data == nullptr) return status;
  Rows gate(static_cast<size_t>(run.rows()));
  Projection project;
  project.rows = run.rows(), project.n = 1, project.k = site.hidden;
  project.x = x, project.weight = w.shared_expert_gate.bf16(), project.out = gate.data();
  project.threads = run.threads;
  status = Project(project);
  if (!status.ok()) return status;
  SigmoidGateParams p;
  p.rows = run.rows(), p.columns = site.hidden;
  p.x = out.data(), p.gate = gate.data(), p.gate_per_row = true, p.out = out.data();
  p.threads = run.threads;
  return SigmoidGate(p);
}

// The leaf of one contributor.
absl::Status RunContributor(const MoeSite& site, const MoeWeights& w, const LayerRun& run,
                            const uint16_t* x, const Routing& routing, const Rows& outputs,
                            int64_t contributor, uint16_t* leaf) {
  const int64_t experts = static_cast<int64_t>(w.experts.size());
  Rows routed(static_cast<size_t>(run.rows() * site.hidden));
  Rows shared(routed.size());
  MoeCombineParams combine;
  combine.rows = run.rows(), combine.topk = site.topk, combine.columns = site.hidden;
  combine.first_expert = contributor * experts / site.contributors;
  combine.end_expert = (contributor + 1) * experts / site.contributors;
  combine.ids = routing.ids.data(), combine.weights = routing.weights.data();
  combine.outputs = outputs.data(), combine.out = routed.data();
  combine.threads = run.threads;
  if (absl::Status status = MoeCombine(combine); !status.ok()) return status;
  absl::Status status = RunSharedPart(site, w, run, x, contributor, shared);
  if (!status.ok()) return status;
  run.Observe(absl::StrCat("routed_partial.", contributor), FloatType::kBf16, run.rows(),
              site.hidden, routed.data());
  run.Observe(absl::StrCat("shared_partial.", contributor), FloatType::kBf16, run.rows(),
              site.hidden, shared.data());
  MoeLeafParams p;
  p.program = site.leaf;
  p.rows = run.rows(), p.columns = site.hidden, p.scale = site.routed_scale;
  p.routed = routed.data(), p.shared = shared.data(), p.out = leaf;
  p.threads = run.threads;
  return MoeLeaf(p);
}

}  // namespace

absl::Status RunDenseMlp(const MlpWeights& weights, int64_t hidden, int64_t intermediate,
                         const LayerRun& run, const uint16_t* x, uint16_t* out) {
  if (absl::Status s = CheckLayerRun(run); !s.ok()) return s;
  if (absl::Status s = CheckMlp("dense_mlp", weights, hidden, intermediate); !s.ok()) return s;
  MlpPart part;
  part.rows = run.rows(), part.hidden = hidden, part.intermediate = intermediate;
  part.gate = weights.gate.bf16(), part.up = weights.up.bf16(), part.down = weights.down.bf16();
  part.silu = run.silu, part.threads = run.threads;
  MlpScratch scratch;
  if (absl::Status s = RunMlpPart(part, x, scratch, out); !s.ok()) return s;
  run.Observe("mlp.gate", FloatType::kBf16, part.rows, intermediate, scratch.gate.data());
  run.Observe("mlp.up", FloatType::kBf16, part.rows, intermediate, scratch.up.data());
  run.Observe("mlp.swiglu", FloatType::kBf16, part.rows, intermediate, scratch.activated.data());
  run.Observe("mlp.down", FloatType::kBf16, part.rows, hidden, out);
  return absl::OkStatus();
}

MoeSite Qwen35MoeSite() { return {}; }

MoeSite Glm52MoeSite() {
  MoeSite site;
  site.score = RouterScore::kSigmoid;
  site.contributors = 16;
  return site;
}

std::vector<MlpWeights> StackedExperts(const LayerWeight& gate_up, const LayerWeight& down,
                                       int64_t experts, int64_t intermediate, int64_t hidden) {
  const int64_t one = intermediate * hidden;
  if (experts < 1 || one < 1 || gate_up.type != FloatType::kBf16 || down.type != FloatType::kBf16 ||
      gate_up.elements != experts * 2 * one || down.elements != experts * one) {
    return {};
  }
  std::vector<MlpWeights> all;
  for (int64_t e = 0; e < experts; ++e) {
    MlpWeights expert;
    expert.gate = {FloatType::kBf16, gate_up.bf16() + 2 * e * one, one};
    expert.up = {FloatType::kBf16, gate_up.bf16() + (2 * e + 1) * one, one};
    expert.down = {FloatType::kBf16, down.bf16() + e * one, one};
    all.push_back(expert);
  }
  return all;
}

absl::Status RunMoeSite(const MoeSite& site, const MoeWeights& weights, const LayerRun& run,
                        const uint16_t* x, uint16_t* out) {
  if (absl::Status s = CheckMoe(site, weights, run); !s.ok()) return s;
  Routing routing;
  if (absl::Status s = Route(site, weights, run, x, routing); !s.ok()) return s;
  Rows outputs;
  if (absl::Status s = RunExperts(site, weights, run, x, routing, outputs); !s.ok()) return s;
  const int64_t elements = run.rows() * site.hidden;
  Rows leaves(static_cast<size_t>(site.contributors * elements));
  for (int64_t o = 0; o < site.contributors; ++o) {
    absl::Status s =
        RunContributor(site, weights, run, x, routing, outputs, o, leaves.data() + o * elements);
    if (!s.ok()) return s;
  }
  MoeFoldParams fold;
  fold.program = site.fold;
  fold.contributors = site.contributors, fold.rows = run.rows(), fold.columns = site.hidden;
  fold.partials = leaves.data(), fold.out = out;
  fold.threads = run.threads;
  if (absl::Status s = MoeFold(fold); !s.ok()) return s;
  run.Observe("moe_fold", FloatType::kBf16, run.rows(), site.hidden, out);
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
