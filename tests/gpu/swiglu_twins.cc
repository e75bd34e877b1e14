#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/gate_table_cuda.h"
#include "kernels/swiglu_cuda.h"
#include "tests/gpu/twins.h"

namespace lockstep::kernels {
namespace {

struct Shape {
  int64_t rows, columns;
  // Elements added to each row stride, and before the first element of each operand.
  int64_t gap, offset;
};

// Sizes around the vector width, packed rows, odd strides and starts, and one that fills a window.
const Shape kShapes[] = {
    {1, 1, 0, 0},    {1, 7, 0, 0},     {3, 8, 0, 0},      {5, 9, 0, 1},       {2, 4097, 3, 5},
    {64, 512, 0, 0}, {17, 1000, 8, 8}, {300, 4096, 0, 0}, {257, 4104, 16, 0}, {128, 8191, 1, 3},
};

const char* Id(SwigluProgram program) {
  switch (program) {
    case SwigluProgram::kOneRoundFp32:
      return kSwigluOneRoundId;
    case SwigluProgram::kTwoRound:
      return kSwigluTwoRoundId;
    case SwigluProgram::kOneRoundFp32Clamped:
      return kSwigluClampedId;
  }
  return "";
}

// A table on the host and on the device, or neither.
struct Table {
  const GateTable* host = nullptr;
  const DeviceGateTable* device = nullptr;
};

std::string Label(const Shape& s, FloatType type, const Table& table, bool packed) {
  return absl::StrCat(Name(type), " [", s.rows, ", ", s.columns, "] gap ", s.gap, " offset ",
                      s.offset, packed ? " packed" : "", " by ",
                      table.host == nullptr ? "computing" : table.host->id());
}

void CompareForward(TwinCheck& check, SwigluProgram program, FloatType type, const Shape& s,
                    const Table& table, Mix mix, bool packed) {
  const int64_t in_stride = packed ? 2 * s.columns : s.columns + s.gap;
  const int64_t out_stride = s.columns + s.gap;
  const size_t in_size = static_cast<size_t>(s.rows * in_stride + s.offset);
  const size_t out_size = static_cast<size_t>(s.rows * out_stride + s.offset);
  std::vector<uint16_t> gate = check.Halves(in_size, type, mix);
  // Zeros and tiny gates lie outside the table's window beside ordinary ones inside it.
  if (mix == Mix::kNormal) {
    for (size_t i = 0; i < in_size; i += 5)
      gate[i] = static_cast<uint16_t>(i % 3 == 0 ? 0 : i % 97);
  }
  const std::vector<uint16_t> up = check.Halves(in_size, type, mix);
  std::vector<uint16_t> want = Poisoned<uint16_t>(out_size);
  const DeviceArray<uint16_t> gate_on_device = check.Upload(gate);
  const DeviceArray<uint16_t> up_on_device = check.Upload(up);
  const DeviceArray<uint16_t> got = check.UploadPoison<uint16_t>(out_size);
  SwigluParams p;
  p.program = program, p.type = type;
  p.rows = s.rows, p.columns = s.columns;
  p.out_row_stride = out_stride;
  p.limit = program == SwigluProgram::kOneRoundFp32Clamped ? 1.75f : 0;
  const auto point = [&](const uint16_t* g, const uint16_t* u, uint16_t* out) {
    if (packed) {
      p.SetPackedGateUp(g + s.offset);
    } else {
      p.gate = g + s.offset, p.up = u + s.offset;
      p.gate_row_stride = p.up_row_stride = in_stride;
    }
    p.out = out + s.offset;
  };
  point(gate.data(), up.data(), want.data());
  p.silu = table.host;
  const std::string label = Label(s, type, table, packed);
  check.Ran(Id(program), label, Swiglu(p));
  point(gate_on_device.get(), up_on_device.get(), got.get());
  check.Ran(Id(program), label, SwigluCuda(p, table.device, check.stream()));
  check.Equal(Id(program), label, want, got);
}

void CompareBackward(TwinCheck& check, FloatType type, const Shape& s, const Table& table,
                     Mix mix) {
  const int64_t stride = s.columns + s.gap;
  const size_t size = static_cast<size_t>(s.rows * stride + s.offset);
  const std::vector<uint16_t> gate = check.Halves(size, type, mix);
  const std::vector<uint16_t> up = check.Halves(size, type, mix);
  const std::vector<uint16_t> dout = check.Halves(size, type, mix);
  std::vector<uint16_t> want_dgate = Poisoned<uint16_t>(size), want_dup = want_dgate;
  const DeviceArray<uint16_t> gate_d = check.Upload(gate), up_d = check.Upload(up);
  const DeviceArray<uint16_t> dout_d = check.Upload(dout);
  const DeviceArray<uint16_t> got_dgate = check.UploadPoison<uint16_t>(size);
  const DeviceArray<uint16_t> got_dup = check.UploadPoison<uint16_t>(size);
  SwigluVjpParams p;
  p.type = type, p.rows = s.rows, p.columns = s.columns;
  p.gate_row_stride = p.up_row_stride = p.dout_row_stride = stride;
  p.dgate_row_stride = p.dup_row_stride = stride;
  const auto point = [&](const uint16_t* g, const uint16_t* u, const uint16_t* d, uint16_t* dg,
                         uint16_t* du) {
    p.gate = g + s.offset, p.up = u + s.offset, p.dout = d + s.offset;
    p.dgate = dg + s.offset, p.dup = du + s.offset;
  };
  point(gate.data(), up.data(), dout.data(), want_dgate.data(), want_dup.data());
  p.sigmoid = table.host;
  const std::string label = Label(s, type, table, false);
  check.Ran(kSwigluVjpId, label, SwigluVjp(p));
  point(gate_d.get(), up_d.get(), dout_d.get(), got_dgate.get(), got_dup.get());
  check.Ran(kSwigluVjpId, label, SwigluVjpCuda(p, table.device, check.stream()));
  check.Equal(kSwigluVjpId, label + " dgate", want_dgate, got_dgate);
  check.Equal(kSwigluVjpId, label + " dup", want_dup, got_dup);
}

// Every gate bit pattern beside a set of ups that has each class of float.
void CompareEveryGate(TwinCheck& check, SwigluProgram program, FloatType type, const Table& table) {
  std::vector<uint16_t> ups = {0x0000, 0x8000, 0x0001, 0x807F, 0x0080, 0x3F80, 0x3F81, 0xBFFF,
                               0x4049, 0xC2F7, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC1, 0xFF81};
  for (int i = 0; i < 48; ++i) ups.push_back(static_cast<uint16_t>(check.Random()));
  const int64_t rows = static_cast<int64_t>(ups.size());
  std::vector<uint16_t> gate(kGateTableEntries), up(ups.size() * kGateTableEntries);
  for (size_t i = 0; i < gate.size(); ++i) gate[i] = static_cast<uint16_t>(i);
  for (size_t i = 0; i < up.size(); ++i) up[i] = ups[i / kGateTableEntries];
  std::vector<uint16_t> all_gates;
  for (size_t i = 0; i < ups.size(); ++i)
    all_gates.insert(all_gates.end(), gate.begin(), gate.end());
  std::vector<uint16_t> want = Poisoned<uint16_t>(up.size());
  const DeviceArray<uint16_t> gate_d = check.Upload(all_gates), up_d = check.Upload(up);
  const DeviceArray<uint16_t> got = check.UploadPoison<uint16_t>(up.size());
  SwigluParams p;
  p.program = program, p.type = type;
  p.rows = rows, p.columns = kGateTableEntries;
  p.limit = program == SwigluProgram::kOneRoundFp32Clamped ? 7.0f : 0;
  p.gate = all_gates.data(), p.up = up.data(), p.out = want.data(), p.silu = table.host;
  const std::string label =
      absl::StrCat("every gate, ", Label({rows, p.columns, 0, 0}, type, table, false));
  check.Ran(Id(program), label, Swiglu(p));
  p.gate = gate_d.get(), p.up = up_d.get(), p.out = got.get();
  check.Ran(Id(program), label, SwigluCuda(p, table.device, check.stream()));
  check.Equal(Id(program), label, want, got);
}

Shape RandomShape(TwinCheck& check) {
  return {check.Between(1, 70), check.Between(1, 3000), check.Between(0, 17), check.Between(0, 9)};
}

void CompareProgram(TwinCheck& check, SwigluProgram program, FloatType type,
                    const std::vector<Table>& tables) {
  if (!check.Wants(Id(program))) return;
  for (const Table& table : tables) {
    CompareEveryGate(check, program, type, table);
    for (const Shape& shape : kShapes) {
      CompareForward(check, program, type, shape, table, Mix::kNormal, false);
      CompareForward(check, program, type, shape, table, Mix::kAdversarial, false);
      CompareForward(check, program, type, shape, table, Mix::kAdversarial, true);
    }
    for (int i = 0; i < kRandomShapes; ++i) {
      CompareForward(check, program, type, RandomShape(check), table, Mix::kAdversarial,
                     i % 2 == 1);
    }
  }
}

}  // namespace

void CheckSwigluTwins(TwinCheck& check) {
  for (const FloatType type : {FloatType::kBf16, FloatType::kF16}) {
    const GateTable* sigmoid = OrDie(FindSigmoidTable(type));
    const DeviceGateTable sigmoid_d = OrDie(DeviceGateTable::Upload(*sigmoid, check.stream()));
    std::vector<DeviceGateTable> on_device;
    on_device.reserve(KnownSiluRealisations().size());
    std::vector<Table> tables = {Table()};
    std::vector<Table> ieee_tables = {Table()};
    for (const SiluRealisation& known : KnownSiluRealisations()) {
      if (known.gate != type) continue;
      const GateTable* table = OrDie(FindSiluTable(known.id, type));
      on_device.push_back(OrDie(DeviceGateTable::Upload(*table, check.stream())));
      tables.push_back({table, &on_device.back()});
      if (known.id == kSiluIeee) ieee_tables.push_back(tables.back());
    }
    CompareProgram(check, SwigluProgram::kOneRoundFp32, type, tables);
    CompareProgram(check, SwigluProgram::kTwoRound, type, tables);
    CompareProgram(check, SwigluProgram::kOneRoundFp32Clamped, type, ieee_tables);
    if (!check.Wants(kSwigluVjpId)) continue;
    for (const Table& table : {Table(), Table{sigmoid, &sigmoid_d}}) {
      for (const Shape& shape : kShapes) {
        CompareBackward(check, type, shape, table, Mix::kNormal);
        CompareBackward(check, type, shape, table, Mix::kAdversarial);
      }
      for (int i = 0; i < kRandomShapes; ++i) {
        CompareBackward(check, type, RandomShape(check), table, Mix::kAdversarial);
      }
    }
  }
}

}  // namespace lockstep::kernels
