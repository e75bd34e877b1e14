#ifndef LOCKSTEP_POLICY_SAFETENSORS_H_
#define LOCKSTEP_POLICY_SAFETENSORS_H_

// Reads and writes the header of a safetensors file; never touches tensor data, so it does
// no IO and a 100 GB file costs its header only.
//
// Format (all of it; the reader accepts nothing else):
//   bytes 0..7    n, the byte length of the JSON, uint64 little-endian,
//                 at most kMaxSafetensorsHeaderBytes
//   bytes 8..8+n  one JSON object in UTF-8 that begins with '{' and may end in spaces:
//                   "__metadata__": optional object, string -> string
//                   NAME: {"dtype": "BF16", "shape": [64, 128], "data_offsets": [BEGIN, END]}
//                 no key twice, no other keys, numbers are integers >= 0
//   the rest      tensor data, row-major and little-endian; BEGIN and END count from here.
//                 END - BEGIN is what dtype and shape need; sorted by BEGIN the tensors cover
//                 the rest exactly: no overlap, no hole, nothing after the last.
//
// Example:
//   auto end = SafetensorsHeaderEnd(file_bytes, first_8_bytes);   // how much to read
//   SafetensorsParse parse = ParseSafetensorsHeader(file_bytes, first_end_bytes);
//   if (!parse.refusals.empty()) return Fail(FormatRefusals(parse.refusals));
//   for (const SafetensorsTensor& tensor : parse.header.tensors) { ... }

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "policy/manifest.h"
#include "policy/refusal.h"

namespace lockstep {

inline constexpr uint64_t kSafetensorsLengthBytes = 8;
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // the format's own limit

struct SafetensorsTensor {
  TensorSpec spec;          // origin is kSynced
  uint64_t data_begin = 0;  // offsets in the file, not in its data section
  uint64_t data_end = 0;

  bool operator==(const SafetensorsTensor&) const = default;
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // sorted bytewise by name
  std::map<std::string, std::string> metadata;
  uint64_t data_start = 0;  // offset in the file of the data section
};

struct SafetensorsParse {
  SafetensorsHeader header;       // meaningful only when there are no refusals
  std::vector<Refusal> refusals;  // kBadCheckpoint; the key is the tensor's name where one is known
};

// The file offset at which the header ends, from the file's size and (at least) its first 8
// bytes. InvalidArgument when the file is too short for the header it claims or the header is
// over the limit: a reader never allocates for a lying length.
absl::StatusOr<uint64_t> SafetensorsHeaderEnd(uint64_t file_bytes, absl::string_view prefix);

// `prefix` holds the file's first bytes, at least up to SafetensorsHeaderEnd. A syntax error
// ends the judgement; of errors between tensors all are listed, up to kMaxListedRefusals.
SafetensorsParse ParseSafetensorsHeader(uint64_t file_bytes, absl::string_view prefix);

// The bytes that precede the data of `tensors`, stored back to back in the order given: the
// same input always gives the same bytes, and their number is a multiple of 8.
// InvalidArgument for a duplicate, reserved ("__metadata__") or non-UTF-8 name and for a shape
// or header over the limits.
absl::StatusOr<std::string> WriteSafetensorsHeader(
    absl::Span<const TensorSpec> tensors, const std::map<std::string, std::string>& metadata);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_SAFETENSORS_H_
