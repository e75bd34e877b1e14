#ifndef LOCKSTEP_TOOLS_CLI_BRIDGE_DUMP_H_
#define LOCKSTEP_TOOLS_CLI_BRIDGE_DUMP_H_

// Writes a version as a safetensors file, from the bytes that are installed. The file appears
// under its name complete or not at all: it is written beside it, synced, and renamed.
//
// The order of the tensors in the file is the one in which the safetensors library stores
// them: by the alignment of their dtype, widest first, then by name. A checkpoint that was
// written by that library comes back tensor by tensor in its own order. Metadata: `format` "pt",
// which Hugging Face's loaders ask for, and `policy_version`.
//
// Example:
//   LOCKSTEP_RETURN_IF_ERROR(DumpVersion({folder, guard->version, *guard->manifest,
//                                         [&](size_t i) { return guard->Tensor(i); }}));

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "policy/manifest.h"

namespace lockstep::tools {

struct VersionDump {
  std::string folder;  // must exist
  uint64_t version = 0;
  const Manifest& manifest;
  // Bytes of manifest.tensors[index].
  std::function<absl::Span<const uint8_t>(size_t index)> tensor;
};

// FOLDER/stepVERSION.safetensors. ResourceExhausted when the disk is full, with how much was
// needed; nothing is left behind then.
absl::Status DumpVersion(const VersionDump& dump);

std::string DumpPath(const std::string& folder, uint64_t version);

// Indices of the manifest's synced tensors in the order of the file.
std::vector<size_t> DumpOrder(const Manifest& manifest);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_BRIDGE_DUMP_H_
