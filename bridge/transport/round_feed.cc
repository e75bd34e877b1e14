#include "bridge/transport/round_feed.h"

#include <utility>

namespace lockstep::transport {

void RoundFeed::Advance(uint64_t bytes_ready) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes_ready > bytes_ready_.load(std::memory_order_relaxed)) {
    bytes_ready_.store(bytes_ready, std::memory_order_release);
    changed_.notify_all();
  }
}

void RoundFeed::Cancel(absl::Status why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (cancelled_.load(std::memory_order_relaxed)) return;
  why_ = std::move(why);
  cancelled_.store(true, std::memory_order_release);
  changed_.notify_all();
}

absl::Status RoundFeed::status() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return why_;
}

absl::Status RoundFeed::WaitUntilReady(uint64_t bytes) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this, bytes] { return cancelled() || bytes_ready() >= bytes; });
  return why_;
}

}  // namespace lockstep::transport
