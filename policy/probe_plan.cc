#include "policy/probe_plan.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "policy/probe_names.h"
#include "policy/registry.h"

namespace lockstep {
namespace {

constexpr char kGemm[] = "gemm/k_chain@v1";
constexpr char kRmsNorm[] = "rmsnorm/pair_tree@v2";
constexpr float kDefaultEps = 1e-6f;

bool TakenByGemm(Dtype dtype) { return dtype == Dtype::kBF16 || dtype == Dtype::kF16; }

// A number below `n` (> 0) that depends on the seed and the name alone.
uint64_t Choose(uint64_t seed, absl::string_view name, uint64_t n) {
  Blake2b256Hasher hasher;
  hasher.Update("lockstep probe choice@v1\n");
  hasher.UpdateU64(seed);
  hasher.UpdateString(name);
  const Digest256 digest = hasher.Finish();
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value |= static_cast<uint64_t>(digest[i]) << (8 * i);
  return value % n;
}

class Planner {
 public:
  Planner(const Manifest& manifest, const Contract& contract, uint64_t seed)
      : manifest_(manifest), contract_(contract) {
    plan_.seed = seed;
  }

  ProbePlan Plan() {
    const DecoderNames names = FindDecoder(manifest_);
    for (const auto& [number, layer] : names.layers) {
      if (plan_.components.size() + kMaxPerLayer + kTail > kProbeMaxComponents) break;
      Layer(absl::StrCat("layers.", number, "."), layer);
    }
    if (!plan_.components.empty()) {
      Tail(names);
    } else {
      Generic();
    }
    return std::move(plan_);
  }

 private:
  static constexpr size_t kMaxPerLayer = 10;  // a norm and three MLPs
  static constexpr size_t kTail = 2;

  size_t Add(ProbeComponent component) {
    plan_.components.push_back(std::move(component));
    return plan_.components.size() - 1;
  }

  // The first of `rows` rows of a matrix that has `of`.
  uint64_t BlockStart(const std::string& name, uint64_t rows, uint64_t of) const {
    return Choose(plan_.seed, name, of - rows + 1);
  }

  const Site* SiteOf(absl::string_view site) const { return FindSite(contract_, site); }

  // The program a site states, or the default where the contract says nothing of it.
  std::string Program(absl::string_view site, const char* fallback) const {
    const Site* found = SiteOf(site);
    return found == nullptr || found->program.empty() ? fallback : found->program;
  }

  size_t Norm(const std::string& name, size_t tensor) {
    const TensorSpec& spec = manifest_.tensors[tensor];
    const uint64_t hidden = spec.shape[0];
    ProbeComponent norm;
    norm.name = name;
    norm.op = ProbeOp::kRmsNorm;
    norm.program = Program("norm", kRmsNorm);
    norm.in_columns = norm.out_columns = hidden;
    norm.operands = {{tensor, 0, 1, hidden, hidden, spec.dtype}};
    norm.eps = kDefaultEps;
    if (const Site* site = SiteOf("norm")) {
      const auto eps = site->constants.find("eps");
      if (eps != site->constants.end()) norm.eps = eps->second;
      const auto centered = site->geometry.find("zero_centered");
      norm.zero_centered = centered != site->geometry.end() && centered->second != 0;
    }
    return Add(std::move(norm));
  }

  bool TooWide(const MlpNames& mlp) const { return mlp.hidden > kProbeMaxColumns; }

  // gate|up, SwiGLU, down. `first` is the first element of the expert in each tensor.
  void Mlp(const std::string& prefix, absl::string_view site, const MlpNames& mlp,
           std::optional<size_t> norm, uint64_t expert) {
    if (TooWide(mlp)) return;
    if (norm && plan_.components[*norm].out_columns != mlp.hidden) norm = std::nullopt;
    // A norm's output is BF16.
    if (mlp.dtype != Dtype::kBF16) norm = std::nullopt;
    const uint64_t h = mlp.hidden, i = mlp.intermediate;
    const uint64_t rows = std::min(i, kProbeMaxRows);
    const uint64_t start = BlockStart(prefix, rows, i);
    const bool packed = mlp.gate == mlp.up;
    const uint64_t gate_at = expert * i * h * (packed ? 2 : 1) + start * h;
    const uint64_t up_at = packed ? gate_at + i * h : gate_at;

    ProbeComponent gate_up;
    gate_up.name = prefix + "gate_up";
    gate_up.program = Program("gemm", kGemm);
    gate_up.dtype = mlp.dtype;
    gate_up.input = norm;
    gate_up.in_columns = h;
    gate_up.out_columns = 2 * rows;
    gate_up.operands = {{mlp.gate, gate_at, rows, h, h, mlp.dtype},
                        {mlp.up, up_at, rows, h, h, mlp.dtype}};
    std::optional<size_t> last = Add(std::move(gate_up));

    last = Swiglu(prefix, site, mlp.dtype, rows, *last);

    ProbeComponent down;
    down.name = prefix + "down";
    down.program = Program("gemm", kGemm);
    down.dtype = mlp.dtype;
    down.input = last;
    down.in_columns = rows;
    const uint64_t out_rows = std::min(h, kProbeMaxRows);
    const uint64_t out_start = BlockStart(down.name, out_rows, h);
    down.out_columns = out_rows;
    down.operands = {
        {mlp.down, expert * h * i + out_start * i + start, out_rows, rows, i, mlp.dtype}};
    Add(std::move(down));
  }

  // Nothing where the contract makes no claim: the down product then has a seeded input.
  std::optional<size_t> Swiglu(const std::string& prefix, absl::string_view site, Dtype dtype,
                               uint64_t columns, size_t input) {
    const Site* stated = SiteOf(site);
    if (stated == nullptr && site != "dense_mlp") stated = SiteOf("dense_mlp");
    if (stated == nullptr || !absl::StartsWith(stated->program, "swiglu/")) return std::nullopt;
    ProbeComponent swiglu;
    if (const auto limit = stated->constants.find("limit"); limit != stated->constants.end()) {
      swiglu.limit = limit->second;
    }
    swiglu.name = prefix + "swiglu";
    swiglu.op = ProbeOp::kSwiglu;
    swiglu.program = stated->program;
    swiglu.realisation = stated->realisation;
    swiglu.dtype = dtype;
    // The recorded realisations are tables over BF16 gates; F16 has the computed one only.
    if (swiglu.realisation.empty() || dtype == Dtype::kF16) {
      swiglu.realisation = std::string(kDefaultRealisation);
    }
    swiglu.input = input;
    swiglu.in_columns = 2 * columns;
    swiglu.out_columns = columns;
    return Add(std::move(swiglu));
  }

  void Layer(const std::string& prefix, const LayerNames& layer) {
    std::optional<size_t> norm;
    if (layer.norm && manifest_.tensors[*layer.norm].shape[0] <= kProbeMaxColumns) {
      norm = Norm(prefix + "norm", *layer.norm);
    }
    if (layer.dense) Mlp(prefix + "mlp.", "dense_mlp", *layer.dense, norm, 0);
    if (layer.shared) Mlp(prefix + "shared_expert.", "shared_expert", *layer.shared, norm, 0);
    if (layer.stacked) {
      const uint64_t expert = Choose(plan_.seed, prefix + "expert", layer.stacked->experts);
      Mlp(absl::StrCat(prefix, "experts.", expert, "."), "routed_experts", layer.stacked->one, norm,
          expert);
    } else if (!layer.experts.empty()) {
      const auto chosen = std::next(
          layer.experts.begin(),
          static_cast<std::ptrdiff_t>(Choose(plan_.seed, prefix + "expert", layer.experts.size())));
      Mlp(absl::StrCat(prefix, "experts.", chosen->first, "."), "routed_experts", chosen->second,
          norm, 0);
    }
  }

  void Tail(const DecoderNames& names) {
    std::optional<size_t> norm;
    if (names.final_norm) {
      const TensorSpec& spec = manifest_.tensors[*names.final_norm];
      const bool taken = (spec.dtype == Dtype::kBF16 || spec.dtype == Dtype::kF32) &&
                         spec.shape[0] > 0 && spec.shape[0] <= kProbeMaxColumns;
      if (taken) norm = Norm("norm", *names.final_norm);
    }
    if (names.head) Matrix("lm_head", *names.head, norm);
  }

  // The product of one [N, K] tensor; nothing when no program takes it.
  bool Matrix(const std::string& name, size_t tensor, std::optional<size_t> input) {
    const TensorSpec& spec = manifest_.tensors[tensor];
    if (spec.origin != TensorOrigin::kSynced || spec.shape.size() != 2) return false;
    const uint64_t n = spec.shape[0], k = spec.shape[1];
    if (!TakenByGemm(spec.dtype) || n == 0 || k == 0 || k > kProbeMaxColumns) return false;
    const bool fits =
        input && plan_.components[*input].out_columns == k && spec.dtype == Dtype::kBF16;
    const uint64_t rows = std::min(n, kProbeMaxRows);
    ProbeComponent product;
    product.name = name;
    product.program = Program("gemm", kGemm);
    product.dtype = spec.dtype;
    product.input = fits ? input : std::nullopt;
    product.in_columns = k;
    product.out_columns = rows;
    product.operands = {{tensor, BlockStart(name, rows, n) * k, rows, k, k, spec.dtype}};
    Add(std::move(product));
    return true;
  }

  // A name at the limit has no room for the prefix in a component's name, which has the same.
  std::string TensorName(size_t tensor) const {
    constexpr absl::string_view kPrefix = "tensor.";
    const std::string& name = manifest_.tensors[tensor].name;
    if (name.size() + kPrefix.size() > kMaxTensorNameBytes) return absl::StrCat("tensors.", tensor);
    return absl::StrCat(kPrefix, name);
  }

  void Generic() {
    uint64_t products = 0;
    for (size_t i = 0; i < manifest_.tensors.size() && products < kProbeMaxGeneric; ++i) {
      products += Matrix(TensorName(i), i, std::nullopt);
    }
    for (size_t i = 0; i < manifest_.tensors.size() && plan_.components.empty(); ++i) {
      Bytes(i);
    }
    // A version that moves no byte still shows that both sides run the same programs.
    if (plan_.components.empty()) plan_.components = RegistrationProbePlan().components;
  }

  void Bytes(size_t tensor) {
    const TensorSpec& spec = manifest_.tensors[tensor];
    const absl::StatusOr<uint64_t> bytes = TensorBytes(spec);
    if (spec.origin != TensorOrigin::kSynced || !bytes.ok() || *bytes == 0) return;
    const uint64_t count = std::min(*bytes, kProbeBlockBytes);
    ProbeComponent read;
    read.name = TensorName(tensor);
    read.op = ProbeOp::kBytes;
    read.rows = 1;
    read.in_columns = read.out_columns = count;
    read.operands = {{tensor, BlockStart(read.name, count, *bytes), 1, count, count, Dtype::kU8}};
    Add(std::move(read));
  }

  const Manifest& manifest_;
  const Contract& contract_;
  ProbePlan plan_;
};

}  // namespace

ProbePlan DeriveProbePlan(const Manifest& manifest, const Contract& contract, uint64_t seed) {
  return Planner(manifest, contract, seed).Plan();
}

ProbePlan RegistrationProbePlan() {
  // Odd sizes, so that vector tails and the tree's odd end are shown too.
  constexpr uint64_t kRows = 5, kColumns = 333;
  ProbePlan plan;
  plan.seed = kRegistrationProbeSeed;
  ProbeComponent norm;
  norm.name = norm.program = kRmsNorm;
  norm.op = ProbeOp::kRmsNorm;
  norm.rows = kRows;
  norm.in_columns = norm.out_columns = kColumns;
  norm.operands = {{std::nullopt, 0, 1, kColumns, kColumns, Dtype::kBF16}};
  norm.eps = kDefaultEps;
  plan.components.push_back(norm);
  for (const char* program : {kGemm, "gemm/k_tile@v1"}) {
    ProbeComponent product;
    product.name = product.program = program;
    product.rows = kRows;
    product.in_columns = kColumns;
    product.out_columns = 2 * kColumns;
    product.operands = {{std::nullopt, 0, 2 * kColumns, kColumns, kColumns, Dtype::kBF16}};
    plan.components.push_back(product);
  }
  for (absl::string_view program : {kOneRound, kTwoRound}) {
    ProbeComponent swiglu;
    swiglu.name = swiglu.program = std::string(program);
    swiglu.op = ProbeOp::kSwiglu;
    swiglu.realisation = std::string(kDefaultRealisation);
    swiglu.rows = kRows;
    swiglu.in_columns = 2 * kColumns;
    swiglu.out_columns = kColumns;
    plan.components.push_back(swiglu);
  }
  return plan;
}

}  // namespace lockstep
