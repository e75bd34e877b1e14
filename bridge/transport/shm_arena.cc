#include "bridge/transport/shm_arena.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace lockstep::transport {
namespace {

constexpr int kSeals = F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK;
// Short enough that a stop is obeyed at once.
constexpr uint64_t kPrefaultSliceBytes = uint64_t{32} << 20;

// mmap refuses length 0.
uint64_t FileBytes(uint64_t bytes) { return std::max<uint64_t>(bytes, 1); }

absl::Status OutOfMemory(uint64_t bytes, uint64_t available) {
  return absl::ResourceExhaustedError(
      absl::StrCat("an arena of ", bytes, " bytes does not fit in memory: ", available,
                   " bytes are available to this process (machine and control group); free "
                   "memory, raise the limit, or keep fewer versions"));
}

// Populating what the machine does not have ends in the OOM killer, not in an error.
absl::Status CheckFits(uint64_t bytes) {
  const uint64_t available = AvailableMemoryBytes();
  return bytes > available ? OutOfMemory(bytes, available) : absl::OkStatus();
}

absl::Status ErrnoStatus(const char* call, uint64_t bytes) {
  const int error = errno;
  if (error == ENOMEM || error == ENOSPC) return OutOfMemory(bytes, AvailableMemoryBytes());
  return absl::ErrnoToStatus(error, absl::StrCat(call, " for an arena of ", bytes, " bytes"));
}

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    Unmap();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

Mapping::~Mapping() { Unmap(); }

void Mapping::Unmap() {
  if (data_ != nullptr) ::munmap(data_, size_);
  data_ = nullptr;
}

absl::StatusOr<Mapping> Mapping::Anonymous(uint64_t bytes) {
  LOCKSTEP_RETURN_IF_ERROR(CheckFits(bytes));
  const uint64_t size = FileBytes(bytes);
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return ErrnoStatus("mmap", bytes);
  ::madvise(data, size, MADV_HUGEPAGE);  // a hint: refused where the kernel has none
  return Mapping(static_cast<uint8_t*>(data), size);
}

absl::StatusOr<Mapping> Mapping::OfFile(int fd, uint64_t bytes, bool writable) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* data = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return ErrnoStatus("mmap", bytes);
  ::madvise(data, bytes, MADV_HUGEPAGE);
  return Mapping(static_cast<uint8_t*>(data), bytes);
}

absl::StatusOr<WritableArena> WritableArena::Create(uint64_t bytes) {
  LOCKSTEP_RETURN_IF_ERROR(CheckFits(bytes));
  WritableArena arena;
  arena.bytes_ = bytes;
  arena.fd_ = UniqueFd(::memfd_create("lockstep-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!arena.fd_.valid()) return ErrnoStatus("memfd_create", bytes);
  const uint64_t size = FileBytes(bytes);
  if (::ftruncate(arena.fd(), static_cast<off_t>(size)) != 0)
    return ErrnoStatus("ftruncate", bytes);
  LOCKSTEP_ASSIGN_OR_RETURN(arena.mapping_, Mapping::OfFile(arena.fd(), size, /*writable=*/true));
  // After the mapping: the seal refuses later writable mappings only.
  if (::fcntl(arena.fd(), F_ADD_SEALS, kSeals) != 0) return ErrnoStatus("F_ADD_SEALS", bytes);
  return arena;
}

absl::Status WritableArena::Prefault(const std::atomic<bool>& stop) const {
  uint8_t* const begin = mapping_.data();
  for (uint64_t done = 0; done < mapping_.size() && !stop.load(std::memory_order_relaxed);) {
    const uint64_t slice = std::min(kPrefaultSliceBytes, mapping_.size() - done);
    if (::madvise(begin + done, slice, MADV_POPULATE_WRITE) == 0) {
      done += slice;
      continue;
    }
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL) return ErrnoStatus("MADV_POPULATE_WRITE", bytes_);
    // Kernels before 5.14: allocate the pages, and let the first touch find them.
    errno = ::posix_fallocate(fd(), static_cast<off_t>(done), static_cast<off_t>(slice));
    if (errno != 0) return ErrnoStatus("posix_fallocate", bytes_);
    done += slice;
  }
  return absl::OkStatus();
}

absl::StatusOr<ReadOnlyArena> ReadOnlyArena::Map(UniqueFd fd, uint64_t expected_bytes) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0) {
    return absl::InvalidArgumentError(
        "the descriptor is not a memory file (memfd_create with MFD_ALLOW_SEALING); send the "
        "arena that WritableArena made");
  }
  if ((seals & kSeals) != kSeals) {
    return absl::InvalidArgumentError(
        absl::StrCat("the memory file has seals ", seals, ", expected at least ", kSeals,
                     " (FUTURE_WRITE, GROW, SHRINK): its bytes could change under a reader"));
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus("fstat", expected_bytes);
  if (info.st_size < 0 || static_cast<uint64_t>(info.st_size) != FileBytes(expected_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the memory file is ", info.st_size, " bytes long, expected ",
                     FileBytes(expected_bytes), " by the manifest's layout"));
  }
  ReadOnlyArena arena;
  arena.bytes_ = expected_bytes;
  LOCKSTEP_ASSIGN_OR_RETURN(
      arena.mapping_, Mapping::OfFile(fd.get(), FileBytes(expected_bytes), /*writable=*/false));
  arena.fd_ = std::move(fd);
  return arena;
}

void ReadOnlyArena::Populate() const {
  ::madvise(mapping_.data(), mapping_.size(), MADV_POPULATE_READ);
}

}  // namespace lockstep::transport
