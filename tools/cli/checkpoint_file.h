#ifndef LOCKSTEP_TOOLS_CLI_CHECKPOINT_FILE_H_
#define LOCKSTEP_TOOLS_CLI_CHECKPOINT_FILE_H_

// Safetensors files as commands read and write them (policy/safetensors.h has the format and
// judges the header). A file is mapped, not read: what is not touched costs nothing.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(const CheckpointFile file, CheckpointFile::Open(path));
//   for (const SafetensorsTensor& tensor : file.header().tensors) {
//     Digest(tensor.spec.name, file.Bytes(tensor));
//   }
//   LOCKSTEP_RETURN_IF_ERROR(WriteCheckpoint("out.safetensors", {{spec, bytes}}, {}));

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "policy/safetensors.h"

namespace lockstep::tools {

class CheckpointFile {
 public:
  // NotFound or PermissionDenied when it cannot be opened; InvalidArgument, with every reason,
  // when it is no regular file or no safetensors file.
  static absl::StatusOr<CheckpointFile> Open(const std::string& path);

  CheckpointFile(CheckpointFile&& other) noexcept;
  CheckpointFile& operator=(CheckpointFile&& other) noexcept;
  ~CheckpointFile();

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }

  // nullptr when the file has no tensor of that name.
  const SafetensorsTensor* Find(absl::string_view name) const;

  // The data of a tensor of this header, as long as this object lives; any alignment. The file
  // must not be truncated meanwhile.
  absl::Span<const uint8_t> Bytes(const SafetensorsTensor& tensor) const;

 private:
  explicit CheckpointFile(std::string path) : path_(std::move(path)) {}

  std::string path_;
  SafetensorsHeader header_;
  const uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

// Borrows its bytes.
struct TensorToWrite {
  TensorSpec spec;
  absl::Span<const uint8_t> bytes;
};

// Stored back to back in the order given; appears under its name complete or not at all.
// Errors as WriteSafetensorsHeader and WriteFileByRename; InvalidArgument when the bytes of a
// tensor are not as many as its dtype and shape need.
absl::Status WriteCheckpoint(const std::string& path, absl::Span<const TensorToWrite> tensors,
                             const std::map<std::string, std::string>& metadata);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_CHECKPOINT_FILE_H_
