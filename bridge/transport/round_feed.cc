#include "bridge/transport/round_feed.h"

#include <utility>

namespace lockstep::transport {

void RoundFeed::Advance(uint64_t bytes_ready) {
  absl::MutexLock lock(&mutex_);
  if (bytes_ready > bytes_ready_.load(std::memory_order_relaxed)) {
    bytes_ready_.store(bytes_ready, std::memory_order_release);
  }
}

void RoundFeed::Cancel(absl::Status why) {
  absl::MutexLock lock(&mutex_);
  if (cancelled_.load(std::memory_order_relaxed)) return;
  why_ = std::move(why);
  cancelled_.store(true, std::memory_order_release);
}

absl::Status RoundFeed::status() const {
  absl::MutexLock lock(&mutex_);
  return why_;
}

absl::Status RoundFeed::WaitUntilReady(uint64_t bytes) {
  const auto over = [this, bytes] { return cancelled() || bytes_ready() >= bytes; };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&over));
  return why_;
}

}  // namespace lockstep::transport
