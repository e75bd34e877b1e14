#ifndef LOCKSTEP_BRIDGE_TRANSPORT_SHM_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_SHM_H_

// Shared memory on one host: the trainer fills an arena once, the bridge and every sampler map
// the same pages. A sampler's slot is its read-only mapping, so nothing is copied for it.
//
// Example:
//   ShmInstaller installer(welcome.fd_socket_path, incarnation, absl::Seconds(10));
//   auto installed = installer.Install({arena_id, total_bytes}, feed);

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "bridge/transport/fd_client.h"
#include "bridge/transport/shm_arena.h"
#include "bridge/transport/transport.h"

namespace lockstep::transport {

// A descriptor connection that is opened when first needed and again after it broke.
class FdLine {
 public:
  FdLine(std::string path, const Incarnation& incarnation, absl::Duration timeout)
      : path_(std::move(path)), incarnation_(incarnation), timeout_(timeout) {}

  // Connects now, so that the bridge sees the death of this process from here on.
  absl::Status Open();
  absl::Status Put(uint64_t arena_id, int arena_fd, uint64_t bytes);
  absl::StatusOr<UniqueFd> Get(uint64_t arena_id, uint64_t bytes);

 private:
  std::string path_;
  Incarnation incarnation_;
  absl::Duration timeout_;
  std::optional<FdClient> client_;
};

class ShmInstaller : public Installer {
 public:
  ShmInstaller(std::string fd_socket_path, const Incarnation& incarnation, absl::Duration timeout)
      : line_(std::move(fd_socket_path), incarnation, timeout) {}

  absl::Status Open() { return line_.Open(); }
  absl::StatusOr<std::unique_ptr<InstalledVersion>> Install(const InstallRequest& request,
                                                            RoundFeed& feed) override;

 private:
  FdLine line_;
};

class ShmWriter : public ArenaWriter {
 public:
  ShmWriter(std::string fd_socket_path, const Incarnation& incarnation, absl::Duration timeout)
      : line_(std::move(fd_socket_path), incarnation, timeout) {}

  absl::Status Open() { return line_.Open(); }
  // Passes a new arena to the bridge before it is filled, so that samplers can map it early.
  absl::Status Begin(const WriteRequest& request) override;
  absl::Status Write(uint64_t offset, absl::Span<const uint8_t> bytes, RoundFeed& feed) override;
  absl::Status Finish(RoundFeed& feed) override;
  uint64_t mark() const override { return mark_; }
  absl::Span<uint8_t> Mapped() override;
  std::shared_ptr<const void> KeepMapped() override { return current_; }
  void Advance(uint64_t bytes_final) override { mark_ = bytes_final; }
  void Drop(uint64_t arena_id) override;

 private:
  FdLine line_;
  std::mutex mutex_;  // guards arenas_, which Drop changes from the control thread
  std::map<uint64_t, std::shared_ptr<const WritableArena>> arenas_;
  std::shared_ptr<const WritableArena> current_;
  uint64_t mark_ = 0;
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_SHM_H_
