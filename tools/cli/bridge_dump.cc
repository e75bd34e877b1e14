#include "tools/cli/bridge_dump.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "policy/safetensors.h"
#include "policy/status_macros.h"

namespace lockstep::tools {
namespace {

constexpr size_t kWriteBytes = size_t{8} << 20;  // of one write call

// The order of the safetensors library's own dtype list, least aligned first.
constexpr Dtype kByAlignment[] = {
    Dtype::kBool,       Dtype::kF4,     Dtype::kF6E2M3, Dtype::kF6E3M2, Dtype::kU8,
    Dtype::kI8,         Dtype::kF8E5M2, Dtype::kF8E4M3, Dtype::kF8E8M0, Dtype::kF8E4M3Fnuz,
    Dtype::kF8E5M2Fnuz, Dtype::kI16,    Dtype::kU16,    Dtype::kF16,    Dtype::kBF16,
    Dtype::kI32,        Dtype::kU32,    Dtype::kF32,    Dtype::kC64,    Dtype::kF64,
    Dtype::kI64,        Dtype::kU64};

size_t Rank(Dtype dtype) {
  return static_cast<size_t>(std::find(std::begin(kByAlignment), std::end(kByAlignment), dtype) -
                             kByAlignment);
}

absl::Status WriteError(const std::string& path, uint64_t bytes, int error) {
  const std::string why =
      absl::StrCat("cannot write '", path, "' (", bytes, " bytes): ", strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return absl::ResourceExhaustedError(
        absl::StrCat(why, "; free space there or dump into another folder"));
  }
  return absl::InternalError(
      absl::StrCat(why, "; check the folder and its permissions, or dump into another one"));
}

int WriteAll(int fd, const uint8_t* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t wrote = ::write(fd, data, std::min(bytes, kWriteBytes));
    if (wrote < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    data += wrote;
    bytes -= static_cast<size_t>(wrote);
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

std::string DumpPath(const std::string& folder, uint64_t version) {
  return absl::StrCat(folder, "/step", version, ".safetensors");
}

std::vector<size_t> DumpOrder(const Manifest& manifest) {
  std::vector<size_t> order;
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    if (manifest.tensors[i].origin == TensorOrigin::kSynced) order.push_back(i);
  }
  // Manifests are sorted by name.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return Rank(manifest.tensors[a].dtype) > Rank(manifest.tensors[b].dtype);
  });
  return order;
}

absl::Status DumpVersion(const VersionDump& dump) {
  const std::vector<size_t> order = DumpOrder(dump.manifest);
  std::vector<TensorSpec> specs;
  for (const size_t index : order) specs.push_back(dump.manifest.tensors[index]);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::string header,
      WriteSafetensorsHeader(specs,
                             {{"format", "pt"}, {"policy_version", absl::StrCat(dump.version)}}));
  uint64_t bytes = header.size();
  for (const size_t index : order) bytes += dump.tensor(index).size();

  const std::string path = DumpPath(dump.folder, dump.version);
  const std::string partial =
      absl::StrCat(dump.folder, "/.step", dump.version, ".safetensors.", ::getpid(), ".partial");
  const int fd = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return WriteError(partial, bytes, errno);
  auto discard = absl::MakeCleanup([&] { ::unlink(partial.c_str()); });
  int error = WriteAll(fd, reinterpret_cast<const uint8_t*>(header.data()), header.size());
  for (size_t i = 0; i < order.size() && error == 0; ++i) {
    const absl::Span<const uint8_t> tensor = dump.tensor(order[i]);
    error = WriteAll(fd, tensor.data(), tensor.size());
  }
  if (error == 0 && ::fsync(fd) != 0) error = errno;
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(partial.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) return WriteError(path, bytes, error);
  std::move(discard).Cancel();
  if (error = SyncFolder(dump.folder); error != 0) return WriteError(path, bytes, error);
  return absl::OkStatus();
}

}  // namespace lockstep::tools
