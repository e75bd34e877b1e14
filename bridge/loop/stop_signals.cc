#include "bridge/loop/stop_signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace lockstep::loop {

absl::StatusOr<transport::UniqueFd> BlockStopSignals() {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  if (const int error = ::pthread_sigmask(SIG_BLOCK, &stop, nullptr); error != 0) {
    return absl::ErrnoToStatus(error, "pthread_sigmask");
  }
  ::signal(SIGPIPE, SIG_IGN);
  transport::UniqueFd fd(::signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "signalfd");
  return fd;
}

int TakeStopSignal(int fd) {
  signalfd_siginfo info;
  if (::read(fd, &info, sizeof(info)) != sizeof(info)) return 0;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace lockstep::loop
