#include "tools/cli/file_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace lockstep::tools {
namespace {

constexpr size_t kWriteBytes = size_t{8} << 20;  // of one write call

absl::Status WriteError(const std::string& path, uint64_t bytes, int error) {
  const std::string why =
      absl::StrCat("cannot write '", path, "' (", bytes, " bytes): ", strerror(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(
          absl::StrCat(why, "; free space there or name another folder"));
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
      return absl::NotFoundError(absl::StrCat(why, "; name a file in a folder that exists"));
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(
          absl::StrCat(why, "; name a folder that this user may write to"));
    default:
      return absl::InternalError(absl::StrCat(why, "; check the disk, or name another folder"));
  }
}

int WriteAll(int fd, absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(fd, bytes.data(), std::min(bytes.size(), kWriteBytes));
    if (wrote < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return 0;
}

// The new name itself must be on the disk too.
int SyncFolder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno;
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  return error;
}

}  // namespace

absl::Status WriteFileByRename(const std::string& path,
                               const std::vector<absl::Span<const uint8_t>>& parts) {
  uint64_t bytes = 0;
  for (const auto& part : parts) bytes += part.size();
  // A pipe or a device is written as it is: there is nothing to rename it over.
  struct stat info {};
  const bool special = ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
  if (special && S_ISDIR(info.st_mode)) return WriteError(path, bytes, EISDIR);

  const std::filesystem::path target(path);
  const std::string folder =
      target.has_parent_path() ? target.parent_path().string() : std::string(".");
  const std::string partial =
      special ? path
              : absl::StrCat(folder, "/.", target.filename().string(), ".", ::getpid(), ".partial");
  const int fd = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return WriteError(path, bytes, errno);
  auto discard = absl::MakeCleanup([&] {
    if (!special) ::unlink(partial.c_str());
  });
  int error = 0;
  for (size_t i = 0; i < parts.size() && error == 0; ++i) error = WriteAll(fd, parts[i]);
  if (error == 0 && !special && ::fsync(fd) != 0) error = errno;
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && !special && ::rename(partial.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) return WriteError(path, bytes, error);
  std::move(discard).Cancel();
  if (special) return absl::OkStatus();
  if (error = SyncFolder(folder); error != 0) return WriteError(path, bytes, error);
  return absl::OkStatus();
}

}  // namespace lockstep::tools
