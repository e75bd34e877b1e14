#ifndef LOCKSTEP_KERNELS_GATE_TABLE_H_
#define LOCKSTEP_KERNELS_GATE_TABLE_H_

// A function of a 16-bit gate is a table of 65,536 float32 values, one per bit pattern. A SiLU
// realisation is identified by the BLAKE2b-256 of its table: little-endian float32, index = the
// gate's bit pattern, NaN entries canonicalised. So a production kernel's SiLU, recorded once,
// gives its bytes on any device (kernels/SPECIFICATION.md, "SiLU realisations").
//
// Example:
//   absl::StatusOr<const GateTable*> silu = FindSiluTable("silu/sm90_triton@v1", FloatType::kBf16);
//   if (!silu.ok()) return silu.status();
//   float s = (*silu)->values()[gate_bits];
// A user's own realisation is recorded, kept in a file and loaded by realisation_file.h.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/types.h"

namespace lockstep::kernels {

inline constexpr char kSiluIeee[] = "silu/ieee@v1";
inline constexpr char kSiluSm90Triton[] = "silu/sm90_triton@v1";
inline constexpr char kSiluTorchCuda[] = "silu/torch_cuda@v1";
inline constexpr char kSiluTorchCpu[] = "silu/torch_cpu@v1";
inline constexpr char kSigmoidIeee[] = "sigmoid/ieee@v1";

inline constexpr size_t kGateTableEntries = 65536;

// Immutable once made.
class GateTable {
 public:
  // Takes values[bit pattern of the gate]; NaNs are canonicalised. InvalidArgument unless there
  // are 65,536 of them and the gate is BF16 or F16.
  static absl::StatusOr<GateTable> FromValues(std::string id, FloatType gate,
                                              std::vector<float> values);

  const std::string& id() const { return id_; }
  FloatType gate() const { return gate_; }
  absl::Span<const float> values() const { return values_; }
  const Digest256& digest() const { return digest_; }

 private:
  GateTable(std::string id, FloatType gate, std::vector<float> values, const Digest256& digest);

  std::string id_;
  FloatType gate_;
  std::vector<float> values_;
  Digest256 digest_;
};

struct SiluRealisation {
  absl::string_view id;
  FloatType gate;
  absl::string_view digest_hex;  // BLAKE2b-256 of the table, lower-case hex
};

// Every realisation with a table in this build, recorded or computed.
absl::Span<const SiluRealisation> KnownSiluRealisations();

// Makes a table recorded from a user's kernel known to FindSiluTable for the life of the process;
// threads may call it. The same table again is harmless. AlreadyExists for the id of a realisation
// of this build, or of another table kept before.
absl::StatusOr<const GateTable*> KeepSiluTable(GateTable table);

// The table of a known or kept realisation, made on the first call for it and kept for the life of
// the process; threads may share it. NotFound, with the known ids, for another id; InvalidArgument
// for a gate type that this realisation was not recorded for; DataLoss when the table made does
// not have the digest of KnownSiluRealisations.
absl::StatusOr<const GateTable*> FindSiluTable(absl::string_view id, FloatType gate);

// `sigmoid/ieee@v1`, made and kept likewise. InvalidArgument unless the gate is BF16 or F16.
absl::StatusOr<const GateTable*> FindSigmoidTable(FloatType gate);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_GATE_TABLE_H_
