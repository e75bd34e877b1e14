#include "kernels/gate_table.h"

#include <sodium.h>
#include <zstd.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/float_formats.h"
#include "kernels/silu_data.h"
#include "kernels/silu_ieee.h"

namespace lockstep::kernels {
namespace {

constexpr size_t kKnownCount = 5;

const std::array<SiluRealisation, kKnownCount>& Known() {
  static const std::array<SiluRealisation, kKnownCount> known = {{
      {kSiluIeee, FloatType::kBf16,
       "274ebf0ac6bccfe960ce26de023946959df3384ebdc1dd08b1643ae8f05d9cd1"},
      {kSiluIeee, FloatType::kF16,
       "2e14d77bb5a081a710eac9572751acf0add09981f16292b9f86935720e94fb6f"},
      {kSiluSm90Triton, FloatType::kBf16,
       "e1b2e9e64ae5bb65c19bb118940f3b0ada7684124a0413b5d977acff7f7f663f"},
      {kSiluTorchCuda, FloatType::kBf16,
       "ad9dc434bb1acf2f1b5f13417d107e5f64c0c70619988c0419439382b21adf94"},
      {kSiluTorchCpu, FloatType::kBf16,
       "aad4b7a5fc11114c6fb348753112530ef0d412dbc1b38dcba7ee35242cdff6eb"},
  }};
  return known;
}

Digest256 TableDigest(absl::Span<const float> values) {
  std::vector<uint8_t> bytes;
  bytes.reserve(values.size() * sizeof(float));
  for (const float value : values) {
    const uint32_t bits = BitsOf(value);
    for (int shift = 0; shift < 32; shift += 8)
      bytes.push_back(static_cast<uint8_t>(bits >> shift));
  }
  Digest256 digest;
  crypto_generichash(digest.data(), digest.size(), bytes.data(), bytes.size(), nullptr, 0);
  return digest;
}

template <class Format>
std::vector<float> Tabulate(float (*function)(float)) {
  std::vector<float> values(kGateTableEntries);
  for (size_t i = 0; i < kGateTableEntries; ++i) {
    values[i] = function(Format::Load(static_cast<uint16_t>(i)));
  }
  return values;
}

std::vector<float> Tabulate(float (*function)(float), FloatType gate) {
  return gate == FloatType::kBf16 ? Tabulate<Bf16>(function) : Tabulate<F16>(function);
}

// silu_data.h states the format.
absl::StatusOr<std::vector<float>> DecodeRecorded(absl::string_view id,
                                                  absl::Span<const uint8_t> compressed) {
  std::vector<int8_t> deltas(kGateTableEntries);
  const size_t size =
      ZSTD_decompress(deltas.data(), deltas.size(), compressed.data(), compressed.size());
  if (ZSTD_isError(size) != 0 || size != deltas.size()) {
    return absl::DataLossError(
        absl::StrCat("the embedded table of ", id, " does not decompress: rebuild the program"));
  }
  std::vector<float> values = Tabulate<Bf16>(SiluIeee);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = F32FromBits(BitsOf(values[i]) + static_cast<uint32_t>(int32_t{deltas[i]}));
  }
  return values;
}

absl::StatusOr<std::vector<float>> MakeValues(const SiluRealisation& known) {
  if (known.id == kSiluSm90Triton) return DecodeRecorded(known.id, SiluSm90TritonDeltas());
  if (known.id == kSiluTorchCuda) return DecodeRecorded(known.id, SiluTorchCudaDeltas());
  if (known.id == kSiluTorchCpu) return DecodeRecorded(known.id, SiluTorchCpuDeltas());
  return Tabulate(SiluIeee, known.gate);
}

absl::StatusOr<GateTable> MakeKnown(const SiluRealisation& known) {
  absl::StatusOr<std::vector<float>> values = MakeValues(known);
  if (!values.ok()) return values.status();
  absl::StatusOr<GateTable> table =
      GateTable::FromValues(std::string(known.id), known.gate, *std::move(values));
  if (!table.ok()) return table.status();
  const Digest256& digest = table->digest();
  const std::string hex = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
  if (hex != known.digest_hex) {
    return absl::DataLossError(absl::StrCat(
        "the table of ", known.id, " for ", Name(known.gate), " has digest ", hex, ", expected ",
        known.digest_hex, ": this build's arithmetic or embedded data is broken; do not use it"));
  }
  return table;
}

// One cache slot per realisation; each is built once, and never freed so that a caller's pointer
// outlives static destruction.
template <size_t kIndex>
const absl::StatusOr<GateTable>& Kept() {
  static const auto* const table = new absl::StatusOr<GateTable>(MakeKnown(Known()[kIndex]));
  return *table;
}

using KeptFunction = const absl::StatusOr<GateTable>& (*)();
constexpr KeptFunction kKept[] = {Kept<0>, Kept<1>, Kept<2>, Kept<3>, Kept<4>};
static_assert(std::size(kKept) == kKnownCount);

absl::StatusOr<const GateTable*> Borrow(const absl::StatusOr<GateTable>& table) {
  if (!table.ok()) return table.status();
  return &*table;
}

// Tables of users' kernels; never freed, as those above.
struct UserTables {
  std::mutex mutex;
  std::map<std::pair<std::string, FloatType>, std::unique_ptr<const GateTable>> by_id;
};

UserTables& Users() {
  static auto* const users = new UserTables;
  return *users;
}

template <FloatType kGate>
const absl::StatusOr<GateTable>& KeptSigmoid() {
  static const auto* const table = new absl::StatusOr<GateTable>(
      GateTable::FromValues(kSigmoidIeee, kGate, Tabulate(SigmoidIeee, kGate)));
  return *table;
}

}  // namespace

GateTable::GateTable(std::string id, FloatType gate, std::vector<float> values,
                     const Digest256& digest)
    : id_(std::move(id)), gate_(gate), values_(std::move(values)), digest_(digest) {}

absl::StatusOr<GateTable> GateTable::FromValues(std::string id, FloatType gate,
                                                std::vector<float> values) {
  if (gate != FloatType::kBf16 && gate != FloatType::kF16) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", id, ": a gate of type ", Name(gate),
                     " has no table; expected BF16 or F16, whose bit patterns are the indices"));
  }
  if (values.size() != kGateTableEntries) {
    return absl::InvalidArgumentError(absl::StrCat("table ", id, ": expected ", kGateTableEntries,
                                                   " values, one per bit pattern of the gate, got ",
                                                   values.size()));
  }
  for (float& value : values) value = Canonicalise(value);
  const Digest256 digest = TableDigest(values);
  return GateTable(std::move(id), gate, std::move(values), digest);
}

absl::Span<const SiluRealisation> KnownSiluRealisations() { return Known(); }

absl::StatusOr<const GateTable*> KeepSiluTable(GateTable table) {
  for (const SiluRealisation& known : Known()) {
    if (known.id == table.id()) {
      return absl::AlreadyExistsError(
          absl::StrCat("SiLU realisation ", table.id(),
                       " is built in; a recorded table needs an id of its own"));
    }
  }
  UserTables& users = Users();
  const std::lock_guard<std::mutex> lock(users.mutex);
  std::unique_ptr<const GateTable>& kept = users.by_id[{table.id(), table.gate()}];
  if (kept != nullptr && kept->digest() != table.digest()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "SiLU realisation ", table.id(), " is already kept with another table; record it anew"));
  }
  if (kept == nullptr) kept = std::make_unique<const GateTable>(std::move(table));
  return kept.get();
}

absl::StatusOr<const GateTable*> FindSiluTable(absl::string_view id, FloatType gate) {
  {
    UserTables& users = Users();
    const std::lock_guard<std::mutex> lock(users.mutex);
    const auto it = users.by_id.find({std::string(id), gate});
    if (it != users.by_id.end()) return it->second.get();
  }
  std::vector<absl::string_view> ids;
  std::vector<absl::string_view> gates;
  for (size_t i = 0; i < kKnownCount; ++i) {
    const SiluRealisation& known = Known()[i];
    if (ids.empty() || ids.back() != known.id) ids.push_back(known.id);
    if (known.id != id) continue;
    if (known.gate == gate) return Borrow(kKept[i]());
    gates.push_back(Name(known.gate));
  }
  if (gates.empty()) {
    return absl::NotFoundError(absl::StrCat("unknown SiLU realisation '", id,
                                            "'; known: ", absl::StrJoin(ids, ", "),
                                            "; record a new one from your kernel"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("SiLU realisation ", id, " has no table for a ", Name(gate),
                   " gate, only for: ", absl::StrJoin(gates, ", "), "; use ", kSiluIeee));
}

absl::StatusOr<const GateTable*> FindSigmoidTable(FloatType gate) {
  if (gate == FloatType::kF16) return Borrow(KeptSigmoid<FloatType::kF16>());
  if (gate == FloatType::kBf16) return Borrow(KeptSigmoid<FloatType::kBf16>());
  return absl::InvalidArgumentError(absl::StrCat("table ", kSigmoidIeee, ": a gate of type ",
                                                 Name(gate),
                                                 " has no table; expected BF16 or F16"));
}

}  // namespace lockstep::kernels
