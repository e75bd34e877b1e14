#ifndef LOCKSTEP_BRIDGE_TRANSPORT_ROUND_FEED_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_ROUND_FEED_H_

// How a client's control thread steers its worker through one transfer: it raises the mark
// below which bytes are final (RoundStart, RoundProgress) and may cancel (RoundAbort, a lost
// bridge). Any thread may call anything.
//
// Example:
//   feed.Advance(progress.bytes_ready);                          // control thread
//   absl::Status status = feed.WaitUntilReady(total_bytes);      // worker

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/status/status.h"

namespace lockstep::transport {

class RoundFeed {
 public:
  explicit RoundFeed(uint64_t bytes_ready = 0) : bytes_ready_(bytes_ready) {}
  RoundFeed(const RoundFeed&) = delete;
  RoundFeed& operator=(const RoundFeed&) = delete;

  // A mark lower than the present one changes nothing.
  void Advance(uint64_t bytes_ready);
  // `why` is an error; the first one stays.
  void Cancel(absl::Status why);

  uint64_t bytes_ready() const { return bytes_ready_.load(std::memory_order_acquire); }
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  // OK until cancelled.
  absl::Status status() const;

  // Blocks until the mark is at least `bytes`, or returns why it was cancelled.
  absl::Status WaitUntilReady(uint64_t bytes);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status why_;  // guarded by mutex_
  // Written under the mutex, read without it.
  std::atomic<uint64_t> bytes_ready_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_ROUND_FEED_H_
