#ifndef LOCKSTEP_BRIDGE_TRANSPORT_SHM_ARENA_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_SHM_ARENA_H_

// An arena is one memory file that holds one version, its tensors at the offsets of
// ComputeArenaLayout. Whoever fills it keeps the only writable mapping there will ever be
// (F_SEAL_FUTURE_WRITE) and its length is fixed (GROW, SHRINK), so a reader that checked the
// seals can map it and never meet SIGBUS or a third party's write.
//
// Example:
//   auto arena = WritableArena::Create(layout.total_bytes);        // trainer
//   std::memcpy(arena->bytes().data(), source, n);
//   auto view = ReadOnlyArena::Map(std::move(fd), total_bytes);    // bridge, sampler

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bridge/transport/unique_fd.h"

namespace lockstep::transport {

// Owns a range of pages.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  // Private zeroed memory, huge pages asked for; ResourceExhausted when it does not fit.
  static absl::StatusOr<Mapping> Anonymous(uint64_t bytes);

  // Shared pages of `fd`; `bytes` > 0.
  static absl::StatusOr<Mapping> OfFile(int fd, uint64_t bytes, bool writable);

  uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  Mapping(uint8_t* data, uint64_t size) : data_(data), size_(size) {}
  void Unmap();

  uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
};

class WritableArena {
 public:
  // A zero-filled, sealed memory file of `bytes` (an empty version gets one byte) and its
  // writable mapping. Pages are not there yet: see Prefault. ResourceExhausted says how many
  // bytes were asked for and how many the machine and the control group have left.
  static absl::StatusOr<WritableArena> Create(uint64_t bytes);

  // Brings in every page, without changing a byte, so that filling runs at memory speed
  // (a fault a page is some 40 times slower). May run on another thread while bytes are
  // written; stops early once `stop` is true.
  absl::Status Prefault(const std::atomic<bool>& stop) const;

  int fd() const { return fd_.get(); }
  absl::Span<uint8_t> bytes() const { return {mapping_.data(), bytes_}; }

 private:
  UniqueFd fd_;
  Mapping mapping_;
  uint64_t bytes_ = 0;
};

class ReadOnlyArena {
 public:
  // Takes a descriptor that a peer sent. InvalidArgument, with the reason, unless it is a
  // memory file with the three seals and exactly the expected length.
  static absl::StatusOr<ReadOnlyArena> Map(UniqueFd fd, uint64_t expected_bytes);

  // Maps every page now where the kernel can (5.14), so that readers meet no faults.
  void Populate() const;

  int fd() const { return fd_.get(); }
  absl::Span<const uint8_t> bytes() const { return {mapping_.data(), bytes_}; }

 private:
  UniqueFd fd_;
  Mapping mapping_;
  uint64_t bytes_ = 0;
};

// What new pages may still take: the machine's available memory and swap, and less where the
// process's control group leaves less. UINT64_MAX when the system does not say.
uint64_t AvailableMemoryBytes();

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_SHM_ARENA_H_
