#include "bridge/loop/spool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "bridge/transport/unique_fd.h"
#include "policy/status_macros.h"

namespace lockstep::loop {
namespace {

constexpr char kMagic[8] = {'L', 'K', 'S', 'P', 'O', 'O', 'L', '1'};
constexpr size_t kHeaderBytes = 32;
// Linux moves at most about 2 GiB a call.
constexpr size_t kMaxBytesPerCall = size_t{1} << 30;

using Header = std::array<uint8_t, kHeaderBytes>;

absl::Status ErrnoError(absl::string_view doing, const std::string& path) {
  const int error = errno;
  const std::string text = absl::StrCat("spool: ", doing, " '", path, "': ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) {
    return absl::ResourceExhaustedError(absl::StrCat(
        text, "; free space in the state folder, or spool less with --spool-max-bytes"));
  }
  if (error == ENOENT) return absl::NotFoundError(text);
  return absl::UnavailableError(text);
}

void PutU64(uint8_t* to, uint64_t value) {
  for (int i = 0; i < 8; ++i) to[i] = static_cast<uint8_t>(value >> (8 * i));
}

Header MakeHeader(uint64_t version, absl::Span<const uint8_t> arena) {
  Header header;
  std::memcpy(header.data(), kMagic, sizeof kMagic);
  PutU64(&header[8], version);
  PutU64(&header[16], arena.size());
  PutU64(&header[24], XXH3_64bits(arena.data(), arena.size()));
  return header;
}

absl::Status WriteAll(int fd, absl::Span<const uint8_t> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), std::min(bytes.size(), kMaxBytesPerCall));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoError("writing", path);
    bytes.remove_prefix(n);
  }
  return absl::OkStatus();
}

absl::Status ReadAll(int fd, absl::Span<uint8_t> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = read(fd, bytes.data(), std::min(bytes.size(), kMaxBytesPerCall));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoError("reading", path);
    if (n == 0) return absl::DataLossError(absl::StrCat("spool: '", path, "' is cut short"));
    bytes.remove_prefix(n);
  }
  return absl::OkStatus();
}

}  // namespace

Spool::Spool(const std::string& state_dir) : folder_(absl::StrCat(state_dir, "/versions")) {}

std::string Spool::FilePath(uint64_t version) const {
  return absl::StrCat(folder_, "/", version, ".spool");
}

absl::Status Spool::Write(uint64_t version, absl::Span<const uint8_t> arena) const {
  if (mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoError("making", folder_);
  const std::string path = FilePath(version);
  const std::string temporary = absl::StrCat(path, ".tmp");
  const auto write_and_sync = [&]() -> absl::Status {
    transport::UniqueFd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!fd.valid()) return ErrnoError("making", temporary);
    const Header header = MakeHeader(version, arena);
    LOCKSTEP_RETURN_IF_ERROR(WriteAll(fd.get(), header, temporary));
    LOCKSTEP_RETURN_IF_ERROR(WriteAll(fd.get(), arena, temporary));
    if (fsync(fd.get()) != 0) return ErrnoError("syncing", temporary);
    if (rename(temporary.c_str(), path.c_str()) != 0) return ErrnoError("renaming", temporary);
    transport::UniqueFd folder(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.valid() || fsync(folder.get()) != 0) return ErrnoError("syncing", folder_);
    return absl::OkStatus();
  };
  absl::Status status = write_and_sync();
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

absl::Status Spool::Read(uint64_t version, absl::Span<uint8_t> arena) const {
  const std::string path = FilePath(version);
  transport::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoError("opening", path);
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return ErrnoError("reading", path);
  if (static_cast<uint64_t>(info.st_size) != kHeaderBytes + arena.size()) {
    return absl::DataLossError(absl::StrCat("spool: '", path, "' has ", info.st_size,
                                            " bytes, expected ", kHeaderBytes + arena.size()));
  }
  Header header;
  LOCKSTEP_RETURN_IF_ERROR(ReadAll(fd.get(), absl::MakeSpan(header), path));
  LOCKSTEP_RETURN_IF_ERROR(ReadAll(fd.get(), arena, path));
  if (header != MakeHeader(version, arena)) {
    return absl::DataLossError(absl::StrCat("spool: '", path,
                                            "' is damaged (header or checksum); publish the "
                                            "version again or let samplers wait for the next"));
  }
  return absl::OkStatus();
}

absl::Status Spool::Drop(uint64_t version) const {
  const std::string path = FilePath(version);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoError("removing", path);
  return absl::OkStatus();
}

}  // namespace lockstep::loop
