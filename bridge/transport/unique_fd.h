#ifndef LOCKSTEP_BRIDGE_TRANSPORT_UNIQUE_FD_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_UNIQUE_FD_H_

// Owns one file descriptor and closes it.
//
// Example:
//   UniqueFd fd(::memfd_create("arena", MFD_CLOEXEC));
//   if (!fd.valid()) return absl::ErrnoToStatus(errno, "memfd_create");

#include <unistd.h>

#include <utility>

namespace lockstep::transport {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~UniqueFd() { Reset(); }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }

  void Reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_UNIQUE_FD_H_
