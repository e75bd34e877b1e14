#include "tools/cli/bridge_stop_signal.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep::tools {
namespace {

constexpr int64_t kMaxPollMs = 1'000'000'000;

}  // namespace

absl::StatusOr<StopSignal> StopSignal::Make() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  transport::UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (fd.get() < 0) return absl::InternalError(absl::StrCat("signalfd: ", strerror(errno)));
  return StopSignal(std::move(fd));
}

bool StopSignal::Wait(absl::Duration at_most) { return WaitUnlessReadable(-1, at_most); }

bool StopSignal::WaitUnlessReadable(int other, absl::Duration at_most) {
  pollfd polls[] = {{fd_.get(), POLLIN, 0}, {other, POLLIN, 0}};
  const int64_t ms = std::clamp<int64_t>(absl::ToInt64Milliseconds(at_most), 0, kMaxPollMs);
  return ::poll(polls, 2, static_cast<int>(ms)) > 0 && (polls[0].revents & POLLIN) != 0;
}

}  // namespace lockstep::tools
