#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/lora_cuda.h"
#include "kernels/lora_vjp_cuda.h"
#include "tests/gpu/twins.h"

namespace lockstep::kernels {
namespace {

constexpr FloatType kBf16 = FloatType::kBf16;

// A tensor on both sides.
template <class T>
struct Both {
  std::vector<T> host;
  DeviceArray<T> device;

  const T* On(bool cuda) const { return cuda ? device.get() : host.data(); }
  T* On(bool cuda) { return cuda ? device.get() : host.data(); }
};

template <class T>
Both<T> BothOf(TwinCheck& check, std::vector<T> host) {
  DeviceArray<T> device = check.Upload(host);
  return {std::move(host), std::move(device)};
}

Both<uint16_t> Halves(TwinCheck& check, int64_t count, Mix mix) {
  return BothOf(check, check.Halves(static_cast<size_t>(count), kBf16, mix));
}

Both<float> Singles(TwinCheck& check, int64_t count, Mix mix) {
  return BothOf(check, check.Floats(static_cast<size_t>(count), mix));
}

template <class T>
Both<T> Output(TwinCheck& check, int64_t count) {
  return BothOf(check, Poisoned<T>(static_cast<size_t>(count)));
}

struct MlpCase {
  int64_t rows, hidden, intermediate, rank, tp;
  bool masters;  // float32 factors
  bool saves;
  Mix mix;
};

std::string Label(const MlpCase& c) {
  return absl::StrCat("T ", c.rows, " H ", c.hidden, " I ", c.intermediate, " r ", c.rank, " tp ",
                      c.tp, c.masters ? " masters" : "", c.saves ? " saving" : "", " mix ",
                      static_cast<int>(c.mix));
}

// An adapter's factors, BF16 and float32 of which one is used.
struct Adapter {
  Both<uint16_t> half_a, half_b;
  Both<float> single_a, single_b;

  Adapter(TwinCheck& check, int64_t a_count, int64_t b_count, Mix mix)
      : half_a(Halves(check, a_count, mix)),
        half_b(Halves(check, b_count, mix)),
        single_a(Singles(check, a_count, mix)),
        single_b(Singles(check, b_count, mix)) {}

  LoraFactors On(bool cuda, bool masters) const {
    if (masters) return {single_a.On(cuda), single_b.On(cuda)};
    return {half_a.On(cuda), half_b.On(cuda)};
  }
};

// The forward's tensors on both sides, and their parameters for either.
struct Mlp {
  MlpCase c;
  Both<uint16_t> x, gate, up, down;
  Adapter gate_adapter, up_adapter, down_adapter;
  Both<uint16_t> out, partials, saved_gate, saved_up, saved_activated;

  Mlp(TwinCheck& check, const MlpCase& given)
      : c(given),
        x(Halves(check, c.rows * c.hidden, c.mix)),
        gate(Halves(check, c.intermediate * c.hidden, c.mix)),
        up(Halves(check, c.intermediate * c.hidden, c.mix)),
        down(Halves(check, c.hidden * c.intermediate, c.mix)),
        gate_adapter(check, c.rank * c.hidden, c.intermediate * c.rank, c.mix),
        up_adapter(check, c.rank * c.hidden, c.intermediate * c.rank, c.mix),
        down_adapter(check, c.rank * c.intermediate, c.hidden * c.rank, c.mix),
        out(Output<uint16_t>(check, c.rows * c.hidden)),
        partials(Output<uint16_t>(check, c.tp * c.rows * c.hidden)),
        saved_gate(Output<uint16_t>(check, c.rows * c.intermediate)),
        saved_up(Output<uint16_t>(check, c.rows * c.intermediate)),
        saved_activated(Output<uint16_t>(check, c.rows * c.intermediate)) {}

  LoraMlpParams On(bool cuda) {
    LoraMlpParams p;
    p.rows = c.rows, p.hidden = c.hidden, p.intermediate = c.intermediate, p.rank = c.rank;
    p.tp = c.tp, p.scale = 1.7f, p.threads = 2;
    p.factor_type = c.masters ? FloatType::kF32 : kBf16;
    p.x = x.On(cuda), p.gate = gate.On(cuda), p.up = up.On(cuda), p.down = down.On(cuda);
    p.gate_adapter = gate_adapter.On(cuda, c.masters);
    p.up_adapter = up_adapter.On(cuda, c.masters);
    p.down_adapter = down_adapter.On(cuda, c.masters);
    p.out = out.On(cuda);
    if (!c.saves) return p;
    p.partials = partials.On(cuda);
    p.saved_gate = saved_gate.On(cuda), p.saved_up = saved_up.On(cuda);
    p.saved_activated = saved_activated.On(cuda);
    return p;
  }
};

void CompareForward(TwinCheck& check, Mlp& mlp) {
  const std::string label = Label(mlp.c);
  check.Ran(kLoraActiveId, label, LoraMlp(mlp.On(false)));
  const LoraMlpParams p = mlp.On(true);
  const DeviceBuffer workspace = OrDie(DeviceBuffer::Allocate(LoraMlpCudaWorkspaceBytes(p)));
  check.Ran(kLoraActiveId, label, LoraMlpCuda(p, nullptr, workspace.data(), check.stream()));
  check.Equal(kLoraActiveId, label, mlp.out.host, mlp.out.device);
  check.Equal(kLoraActiveId, label + " partials", mlp.partials.host, mlp.partials.device);
  check.Equal(kLoraActiveId, label + " gate", mlp.saved_gate.host, mlp.saved_gate.device);
  check.Equal(kLoraActiveId, label + " up", mlp.saved_up.host, mlp.saved_up.device);
  check.Equal(kLoraActiveId, label + " activated", mlp.saved_activated.host,
              mlp.saved_activated.device);
}

void CompareBackward(TwinCheck& check, Mlp& mlp, bool frozen) {
  const MlpCase& c = mlp.c;
  Both<uint16_t> dout = Halves(check, c.rows * c.hidden, c.mix);
  Both<uint16_t> dx = Output<uint16_t>(check, c.rows * c.hidden);
  std::vector<Both<float>> gradients;  // a and b of gate, up, down; then the base weights
  for (const int64_t count :
       {c.rank * c.hidden, c.intermediate * c.rank, c.rank * c.hidden, c.intermediate * c.rank,
        c.rank * c.intermediate, c.hidden * c.rank, c.intermediate * c.hidden,
        c.intermediate * c.hidden, c.hidden * c.intermediate}) {
    gradients.push_back(Output<float>(check, count));
  }
  const auto on = [&](bool cuda) {
    LoraMlpVjpParams p;
    p.forward = mlp.On(cuda);
    p.dout = dout.On(cuda), p.dx = dx.On(cuda);
    p.gate_adapter = {gradients[0].On(cuda), gradients[1].On(cuda)};
    p.up_adapter = {gradients[2].On(cuda), gradients[3].On(cuda)};
    p.down_adapter = {gradients[4].On(cuda), gradients[5].On(cuda)};
    if (frozen) return p;
    p.dgate = gradients[6].On(cuda), p.dup = gradients[7].On(cuda);
    p.ddown = gradients[8].On(cuda);
    return p;
  };
  const std::string label = absl::StrCat(Label(c), frozen ? " frozen" : "");
  check.Ran(kLoraVjpId, label, LoraMlpVjp(on(false)));
  const LoraMlpVjpParams p = on(true);
  const DeviceBuffer workspace = OrDie(DeviceBuffer::Allocate(LoraMlpVjpCudaWorkspaceBytes(p)));
  check.Ran(kLoraVjpId, label, LoraMlpVjpCuda(p, workspace.data(), check.stream()));
  check.Equal(kLoraVjpId, label + " dx", dx.host, dx.device);
  for (size_t i = 0; i < gradients.size(); ++i) {
    check.Equal(kLoraVjpId, absl::StrCat(label, " gradient ", i), gradients[i].host,
                gradients[i].device);
  }
}

void CompareLinear(TwinCheck& check, int64_t rows, int64_t inputs, int64_t outputs, int64_t rank,
                   int64_t gap, Mix mix) {
  Both<uint16_t> x = Halves(check, rows * (inputs + gap), mix);
  Both<uint16_t> weight = Halves(check, outputs * (inputs + gap), mix);
  Both<uint16_t> a = Halves(check, rank * (inputs + gap), mix);
  Both<uint16_t> b = Halves(check, outputs * rank, mix);
  Both<uint16_t> out = Output<uint16_t>(check, rows * (outputs + gap));
  const auto on = [&](bool cuda) {
    LoraLinearParams p;
    p.rows = rows, p.in_features = inputs, p.out_features = outputs, p.rank = rank;
    p.x_row_stride = p.weight_row_stride = p.a_row_stride = inputs + gap;
    p.out_row_stride = outputs + gap, p.scale = 0.3f, p.threads = 2;
    p.x = x.On(cuda), p.weight = weight.On(cuda), p.a = a.On(cuda), p.b = b.On(cuda);
    p.out = out.On(cuda);
    return p;
  };
  const std::string label = absl::StrCat("linear T ", rows, " K ", inputs, " N ", outputs, " r ",
                                         rank, " gap ", gap, " mix ", static_cast<int>(mix));
  check.Ran(kLoraActiveId, label, LoraLinear(on(false)));
  const LoraLinearParams p = on(true);
  const DeviceBuffer workspace = OrDie(DeviceBuffer::Allocate(LoraLinearCudaWorkspaceBytes(p)));
  check.Ran(kLoraActiveId, label, LoraLinearCuda(p, workspace.data(), check.stream()));
  check.Equal(kLoraActiveId, label, out.host, out.device);
}

void CompareMerge(TwinCheck& check, int64_t inputs, int64_t outputs, int64_t rank, bool masters,
                  Mix mix) {
  Both<uint16_t> weight = Halves(check, outputs * inputs, mix);
  const Adapter adapter(check, rank * inputs, outputs * rank, mix);
  Both<uint16_t> out = Output<uint16_t>(check, outputs * inputs);
  const auto on = [&](bool cuda) {
    LoraMergeParams p;
    p.out_features = outputs, p.in_features = inputs, p.rank = rank, p.scale = 0.7f, p.threads = 2;
    p.factor_type = masters ? FloatType::kF32 : kBf16;
    p.weight = weight.On(cuda), p.factors = adapter.On(cuda, masters), p.out = out.On(cuda);
    return p;
  };
  const std::string label = absl::StrCat("K ", inputs, " N ", outputs, " r ", rank,
                                         masters ? " masters" : "", " mix ", static_cast<int>(mix));
  check.Ran(kLoraMergedId, label, LoraMerge(on(false)));
  const LoraMergeParams p = on(true);
  const DeviceBuffer workspace = OrDie(DeviceBuffer::Allocate(LoraMergeCudaWorkspaceBytes(p) + 1));
  check.Ran(kLoraMergedId, label, LoraMergeCuda(p, workspace.data(), check.stream()));
  check.Equal(kLoraMergedId, label, out.host, out.device);
}

}  // namespace

void CheckLoraTwins(TwinCheck& check) {
  for (const Mix mix : {Mix::kSmall, Mix::kAdversarial}) {
    if (check.Wants(kLoraActiveId)) {
      CompareLinear(check, 1, 64, 33, 4, 0, mix);
      CompareLinear(check, 9, 129, 200, 16, 3, mix);
      CompareLinear(check, 100, 256, 384, 32, 8, mix);
    }
    if (check.Wants(kLoraMergedId)) {
      CompareMerge(check, 65, 33, 3, false, mix);
      CompareMerge(check, 512, 300, 16, true, mix);
    }
    if (!check.Wants(kLoraActiveId) && !check.Wants(kLoraVjpId)) continue;
    for (const MlpCase& c :
         std::vector<MlpCase>{{1, 16, 24, 2, 1, false, true, mix},
                              {7, 40, 48, 3, 3, true, true, mix},
                              {33, 128, 256, 16, 16, false, true, mix},
                              {70, 200, 160, 8, 5, true, true, mix},
                              {check.Between(1, 90), check.Between(1, 100),
                               3 * check.Between(1, 60), check.Between(1, 20), 3, true, true, mix},
                              {5, 64, 96, 4, 2, true, false, mix}}) {
      Mlp mlp(check, c);
      CompareForward(check, mlp);
      if (!c.saves) continue;
      CompareBackward(check, mlp, true);
      CompareBackward(check, mlp, false);
    }
  }
}

}  // namespace lockstep::kernels
