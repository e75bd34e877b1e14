#ifndef LOCKSTEP_KERNELS_REALISATION_FILE_H_
#define LOCKSTEP_KERNELS_REALISATION_FILE_H_

// SiLU realisations that users record from production kernels of their own: a table is made from
// their function, named by its digest, kept in a file and looked up by id beside the built-in
// ones (kernels/SPECIFICATION.md, "SiLU realisations").
//
// File format, all integers little-endian:
//   bytes 0..7       "LKSTSILU"
//   bytes 8..11      uint32 1, the format's version
//   bytes 12..15     uint32 n, the id's length, at most kMaxRealisationIdBytes
//   n bytes          the id, "silu/user_<first 16 hex digits of the digest>@v1"
//   4 bytes          the gate's type, "BF16" or "F16 "
//   32 bytes         the digest: BLAKE2b-256 of the table as below
//   262,144 bytes    65,536 float32, index = the gate's bit pattern, NaNs canonical
// and nothing after. A reader computes the digest and the id anew and refuses a file that states
// others.
//
// Example:
//   absl::StatusOr<GateTable> table = RecordSiluTable(FloatType::kBf16, my_kernel, &my_stream);
//   if (!table.ok()) return table.status();
//   absl::Status status = WriteRealisationFile(*table, "my_kernel.silu");
//   ...
//   RealisationSet set;
//   absl::StatusOr<std::string> id = set.Load("my_kernel.silu");   //
//   "silu/user_0123456789abcdef@v1" absl::StatusOr<const GateTable*> silu = set.Find(*id,
//   FloatType::kBf16);

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/gate_table.h"
#include "kernels/types.h"

namespace lockstep::kernels {

inline constexpr size_t kMaxRealisationIdBytes = 256;

// The user's SiLU: out[i] = silu of the gate with bit pattern gates[i], kept in float32. Called
// with all 65,536 patterns in ascending order; returns 0 when `out` is filled. A C function, so
// that one from a shared library or a CUDA program can be passed.
extern "C" typedef int (*LockstepSiluFunction)(const uint16_t* gates, size_t count, float* out,
                                               void* context);

// "silu/user_<first 16 hex digits of the digest>@v1".
std::string UserSiluId(const Digest256& digest);

// Calls `silu` twice. InvalidArgument for a null function or a gate other than BF16 and F16;
// Aborted when the function fails; FailedPrecondition when the two calls differ in a bit, since
// such a function cannot be a contract.
absl::StatusOr<GateTable> RecordSiluTable(FloatType gate, LockstepSiluFunction silu, void* context);

// The file's bytes, and a table from them. DataLoss, saying what is wrong, for bytes that are not
// a realisation file or whose digest or id does not fit the table.
std::string EncodeRealisation(const GateTable& table);
absl::StatusOr<GateTable> DecodeRealisation(absl::string_view bytes);

// Unavailable or NotFound when the file cannot be written or read.
absl::Status WriteRealisationFile(const GateTable& table, const std::string& path);
absl::StatusOr<GateTable> ReadRealisationFile(const std::string& path);

// Reads the file and keeps its table for FindSiluTable (KeepSiluTable); its id.
absl::StatusOr<std::string> LoadRealisationFile(const std::string& path);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_REALISATION_FILE_H_
