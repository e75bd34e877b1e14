#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/float_formats.h"
#include "kernels/gdn_cp_cuda.h"
#include "kernels/gdn_cuda.h"
#include "tests/gpu/state_twins.h"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 4;

struct Shape {
  int64_t tokens, key_heads, value_heads, key_dim, value_dim;
};

std::string Text(const Shape& s) {
  return absl::StrCat("T ", s.tokens, " Hk ", s.key_heads, " Hv ", s.value_heads, " K ", s.key_dim,
                      " V ", s.value_dim);
}

// Elements of a type as bytes.
std::vector<uint8_t> Encode(const std::vector<float>& values, FloatType type) {
  std::vector<uint8_t> bytes(values.size() * SizeOf(type));
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == FloatType::kBf16) {
      const uint16_t bits = static_cast<uint16_t>(BitsOf(values[i]) >> 16);
      memcpy(bytes.data() + 2 * i, &bits, 2);
    } else {
      memcpy(bytes.data() + 4 * i, &values[i], 4);
    }
  }
  return bytes;
}

// One call's operands on both sides. Everything may lie `shift` bytes off.
class Case {
 public:
  Case(TwinCheck& check, const Shape& s, FloatType input, FloatType gate, FloatType out, Mix mix,
       bool with_s0, size_t shift)
      : check_(check), shift_(shift), with_s0_(with_s0) {
    host_.tokens = s.tokens, host_.key_heads = s.key_heads, host_.value_heads = s.value_heads;
    host_.key_dim = s.key_dim, host_.value_dim = s.value_dim;
    host_.input_type = input, host_.gate_type = gate, host_.out_type = out;
    host_.threads = kThreads;
    const size_t qk = static_cast<size_t>(s.tokens * s.key_heads * s.key_dim);
    const size_t v = static_cast<size_t>(s.tokens * s.value_heads * s.value_dim);
    const size_t gates = static_cast<size_t>(s.tokens * s.value_heads);
    const size_t state = static_cast<size_t>(s.value_heads * s.key_dim * s.value_dim);
    std::vector<float> g = check.Floats(gates, mix), beta = check.Floats(gates, mix);
    if (mix == Mix::kNormal) {
      for (float& x : g) x = -0.1f * x * x;
      for (float& x : beta) x = 1.0f / (1.0f + x * x);
    }
    inputs_ = {Encode(check.Floats(qk, mix), input),
               Encode(check.Floats(qk, mix), input),
               Encode(check.Floats(v, mix), input),
               Encode(g, gate),
               Encode(beta, gate),
               Encode(check.Floats(state, Mix::kNormal), FloatType::kF32)};
    for (const std::vector<uint8_t>& bytes : inputs_) {
      std::vector<uint8_t> moved(shift, 0);
      moved.insert(moved.end(), bytes.begin(), bytes.end());
      device_inputs_.push_back(check.Upload(moved));
    }
    out_bytes_ = v * SizeOf(out);
    state_bytes_ = state * sizeof(float);
  }

  GdnParams Host(std::vector<uint8_t>& o, std::vector<uint8_t>& state) const {
    GdnParams p = host_;
    p.q = inputs_[0].data(), p.k = inputs_[1].data(), p.v = inputs_[2].data();
    p.g = inputs_[3].data(), p.beta = inputs_[4].data();
    p.s0 = with_s0_ ? reinterpret_cast<const float*>(inputs_[5].data()) : nullptr;
    p.o = o.data(), p.state = reinterpret_cast<float*>(state.data());
    return p;
  }

  GdnParams Device(const DeviceArray<uint8_t>& o, const DeviceArray<uint8_t>& state) const {
    GdnParams p = host_;
    const auto at = [&](size_t i) { return device_inputs_[i].get() + shift_; };
    p.q = at(0), p.k = at(1), p.v = at(2), p.g = at(3), p.beta = at(4);
    p.s0 = with_s0_ ? reinterpret_cast<const float*>(at(5)) : nullptr;
    p.o = o.get() + shift_, p.state = reinterpret_cast<float*>(state.get() + shift_);
    return p;
  }

  // Runs both sides and compares outputs and states whole.
  template <class HostFn, class DeviceFn>
  void Compare(const char* program, const std::string& label, HostFn host, DeviceFn device) {
    std::vector<uint8_t> o = Poisoned<uint8_t>(out_bytes_ + shift_);
    std::vector<uint8_t> state = Poisoned<uint8_t>(state_bytes_ + shift_);
    const DeviceArray<uint8_t> device_o = check_.UploadPoison<uint8_t>(o.size());
    const DeviceArray<uint8_t> device_state = check_.UploadPoison<uint8_t>(state.size());
    std::vector<uint8_t> want_o = Poisoned<uint8_t>(out_bytes_);
    std::vector<uint8_t> want_state = Poisoned<uint8_t>(state_bytes_);
    check_.Ran(program, label, host(Host(want_o, want_state)));
    std::copy(want_o.begin(), want_o.end(), o.begin() + static_cast<ptrdiff_t>(shift_));
    std::copy(want_state.begin(), want_state.end(), state.begin() + static_cast<ptrdiff_t>(shift_));
    check_.Ran(program, label, device(Device(device_o, device_state)));
    check_.Equal(program, label + ": o", o, device_o);
    check_.Equal(program, label + ": state", state, device_state);
  }

 private:
  TwinCheck& check_;
  const size_t shift_;
  const bool with_s0_;
  GdnParams host_;
  std::vector<std::vector<uint8_t>> inputs_;
  std::vector<DeviceArray<uint8_t>> device_inputs_;
  size_t out_bytes_ = 0, state_bytes_ = 0;
};

FloatType AnyType(TwinCheck& check) {
  return check.Random() % 2 == 0 ? FloatType::kF32 : FloatType::kBf16;
}

void CompareGdn(TwinCheck& check, GdnProgram program, const Shape& shape, Mix mix, size_t shift) {
  const char* id = program == GdnProgram::kChunk64 ? kGdnChunk64Id : kGdnRecurrentId;
  const bool with_s0 = check.Random() % 2 == 0;
  const FloatType input = AnyType(check), gate = AnyType(check), out = AnyType(check);
  Case c(check, shape, input, gate, out, mix, with_s0, shift);
  const std::string label = absl::StrCat(
      Text(shape), " ", Name(input), " ", Name(gate), " ", Name(out), with_s0 ? " s0" : "",
      mix == Mix::kAdversarial ? " adversarial" : "", shift > 0 ? " shifted" : "");
  c.Compare(
      id, label,
      [&](GdnParams p) {
        p.program = program;
        return Gdn(p);
      },
      [&](GdnParams p) {
        p.program = program;
        const DeviceBuffer work = OrDie(DeviceBuffer::Allocate(GdnCudaWorkspaceBytes(p)));
        const absl::Status ran = GdnCuda(p, work.data(), check.stream());
        return ran.ok() ? SynchronizeStream(check.stream()) : ran;
      });
}

void CompareCp(TwinCheck& check, GdnCpProgram program, const Shape& shape, int cp) {
  const char* id = program == GdnCpProgram::kRelay ? kGdnRelayId : kGdnCanonicalFoldId;
  const bool with_s0 = check.Random() % 2 == 0;
  Case c(check, shape, AnyType(check), AnyType(check), AnyType(check), Mix::kNormal, with_s0, 0);
  c.Compare(
      id, absl::StrCat(Text(shape), " cp ", cp, with_s0 ? " s0" : ""),
      // The CPU's one rank: the bytes do not depend on cp.
      [&](const GdnParams& p) { return GdnCpSimulated(p, program, 1); },
      [&](const GdnParams& p) { return GdnCpSimulatedCuda(p, program, cp, 0, check.stream()); });
}

}  // namespace

void CheckGdnTwins(TwinCheck& check) {
  for (const GdnProgram program : {GdnProgram::kChunk64, GdnProgram::kRecurrent}) {
    if (!check.Wants(program == GdnProgram::kChunk64 ? kGdnChunk64Id : kGdnRecurrentId)) continue;
    for (const Shape& shape :
         {Shape{1, 1, 1, 1, 1}, Shape{5, 1, 3, 7, 5}, Shape{64, 2, 4, 16, 33},
          Shape{65, 2, 2, 64, 32}, Shape{63, 3, 4, 128, 40}, Shape{130, 1, 2, 130, 72},
          Shape{200, 2, 4, 128, 128}, Shape{70, 1, 1, 300, 260}}) {
      for (const Mix mix : {Mix::kNormal, Mix::kAdversarial}) {
        CompareGdn(check, program, shape, mix, 0);
        CompareGdn(check, program, shape, mix, 4);
      }
    }
    for (int round = 0; round < 12; ++round) {
      const int64_t key_heads = check.Between(1, 4);
      const Shape shape = {check.Between(1, 400), key_heads, key_heads * check.Between(1, 3), 128,
                           128};
      CompareGdn(check, program, shape, round % 3 == 2 ? Mix::kAdversarial : Mix::kNormal, 0);
    }
    // Longer than a group of chunks.
    CompareGdn(check, program, {2500, 2, 3, 128, 128}, Mix::kNormal, 0);
    CompareGdn(check, program, {2113, 1, 1, 24, 16}, Mix::kNormal, 0);
  }
}

void CheckGdnCpTwins(TwinCheck& check) {
  for (const int cp : {1, 2, 4, 8}) {
    if (check.Wants(kGdnRelayId)) {
      CompareCp(check, GdnCpProgram::kRelay, {1024, 2, 4, 128, 128}, cp);
      CompareCp(check, GdnCpProgram::kRelay, {2048, 1, 2, 40, 24}, cp);
    }
    if (check.Wants(kGdnCanonicalFoldId)) {
      CompareCp(check, GdnCpProgram::kCanonicalFold, {4500, 2, 2, 128, 128}, cp);
      CompareCp(check, GdnCpProgram::kCanonicalFold, {3072, 1, 2, 40, 24}, cp);
      CompareCp(check, GdnCpProgram::kCanonicalFold, {700, 1, 1, 17, 9}, cp);
    }
  }
}

}  // namespace lockstep::kernels
