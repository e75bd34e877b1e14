#ifndef LOCKSTEP_TOOLS_CLI_FILE_OUTPUT_H_
#define LOCKSTEP_TOOLS_CLI_FILE_OUTPUT_H_

// A file that appears under its name complete or not at all: it is written beside it, synced,
// and renamed, and then the folder is synced, so that a crash leaves either the old file or
// the new one.
//
// Example:
//   LOCKSTEP_RETURN_IF_ERROR(WriteFileByRename("out.bin", {header, data}));

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lockstep::tools {

// The parts, one after the other; the file gets mode 0644 less the umask. ResourceExhausted when
// the disk is full, with how much was needed; PermissionDenied, NotFound (no such folder) or
// Internal for the rest. Nothing is left behind then.
absl::Status WriteFileByRename(const std::string& path,
                               const std::vector<absl::Span<const uint8_t>>& parts);

inline absl::Span<const uint8_t> BytesOf(absl::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_FILE_OUTPUT_H_
