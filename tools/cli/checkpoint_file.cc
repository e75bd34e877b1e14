#include "tools/cli/checkpoint_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"
#include "tools/cli/file_output.h"

namespace lockstep::tools {
namespace {

absl::Status OpenError(const std::string& path, int error) {
  const std::string why = absl::StrCat("cannot read '", path, "': ", strerror(error));
  if (error == EACCES || error == EPERM) {
    return absl::PermissionDeniedError(absl::StrCat(why, "; it must be readable by this user"));
  }
  if (error == ENOENT || error == ENOTDIR) {
    return absl::NotFoundError(absl::StrCat(why, "; name a safetensors file that exists"));
  }
  return absl::InvalidArgumentError(absl::StrCat(why, "; name a safetensors file"));
}

absl::Status NotSafetensors(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", path, "' is no sound safetensors file: ", why));
}

}  // namespace

CheckpointFile::CheckpointFile(CheckpointFile&& other) noexcept
    : path_(std::move(other.path_)),
      header_(std::move(other.header_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

CheckpointFile& CheckpointFile::operator=(CheckpointFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(header_, other.header_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

CheckpointFile::~CheckpointFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), bytes_);
}

absl::StatusOr<CheckpointFile> CheckpointFile::Open(const std::string& path) {
  // Non-blocking: opening a pipe that nobody writes to must not hang before it is refused.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return OpenError(path, errno);
  const auto close_fd = absl::MakeCleanup([fd] { ::close(fd); });
  struct stat info {};
  if (::fstat(fd, &info) != 0) return OpenError(path, errno);
  if (!S_ISREG(info.st_mode)) {
    return NotSafetensors(path, "it is not a regular file; name the file itself");
  }
  CheckpointFile file(path);
  file.bytes_ = static_cast<size_t>(info.st_size);
  if (file.bytes_ < kSafetensorsLengthBytes) {
    return NotSafetensors(path, absl::StrCat("it has ", file.bytes_,
                                             " bytes, fewer than the 8 of the header's length"));
  }
  void* data = ::mmap(nullptr, file.bytes_, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) return OpenError(path, errno);
  file.data_ = static_cast<const uint8_t*>(data);

  const absl::string_view text(reinterpret_cast<const char*>(file.data_), file.bytes_);
  const absl::StatusOr<uint64_t> end =
      SafetensorsHeaderEnd(file.bytes_, text.substr(0, kSafetensorsLengthBytes));
  if (!end.ok()) return NotSafetensors(path, end.status().message());
  SafetensorsParse parse = ParseSafetensorsHeader(file.bytes_, text.substr(0, *end));
  if (!parse.refusals.empty()) return NotSafetensors(path, FormatRefusals(parse.refusals));
  file.header_ = std::move(parse.header);
  return file;
}

const SafetensorsTensor* CheckpointFile::Find(absl::string_view name) const {
  const auto found = std::lower_bound(header_.tensors.begin(), header_.tensors.end(), name,
                                      [](const SafetensorsTensor& tensor, absl::string_view key) {
                                        return tensor.spec.name < key;
                                      });
  return found != header_.tensors.end() && found->spec.name == name ? &*found : nullptr;
}

absl::Span<const uint8_t> CheckpointFile::Bytes(const SafetensorsTensor& tensor) const {
  return {data_ + tensor.data_begin, static_cast<size_t>(tensor.data_end - tensor.data_begin)};
}

absl::Status WriteCheckpoint(const std::string& path, absl::Span<const TensorToWrite> tensors,
                             const std::map<std::string, std::string>& metadata) {
  std::vector<TensorSpec> specs;
  std::vector<absl::Span<const uint8_t>> parts(1);
  for (const TensorToWrite& tensor : tensors) {
    LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t bytes, TensorBytes(tensor.spec));
    if (bytes != tensor.bytes.size()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.spec.name, "' needs ",
                                                     bytes, " bytes, got ", tensor.bytes.size()));
    }
    specs.push_back(tensor.spec);
    parts.push_back(tensor.bytes);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string header, WriteSafetensorsHeader(specs, metadata));
  parts[0] = BytesOf(header);
  return WriteFileByRename(path, parts);
}

}  // namespace lockstep::tools
