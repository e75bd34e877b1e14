#ifndef LOCKSTEP_SAMPLER_CLIENT_ARENA_HOLDS_H_
#define LOCKSTEP_SAMPLER_CLIENT_ARENA_HOLDS_H_

// Which of the bridge's arenas this process still needs: one hold for a round that is to map it,
// one for each slot that does. The bridge may let a trainer write an arena again once it hears
// ReleaseArena, so that is said for the last hold only. Internal to sampler_client.

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

namespace lockstep {

// Any thread.
class ArenaHolds {
 public:
  // `release` runs on the thread that drops the last hold, and must only queue.
  explicit ArenaHolds(std::function<void(uint64_t arena_id)> release)
      : release_(std::move(release)) {}
  ArenaHolds(const ArenaHolds&) = delete;
  ArenaHolds& operator=(const ArenaHolds&) = delete;

  // 0 is no arena: memory of this process's own.
  void Hold(uint64_t arena_id) {
    if (arena_id == 0) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    ++holds_[arena_id];
  }

  void Drop(uint64_t arena_id) {
    if (arena_id == 0) return;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = holds_.find(arena_id);
      if (found == holds_.end() || --found->second > 0) return;
      holds_.erase(found);
    }
    release_(arena_id);
  }

 private:
  const std::function<void(uint64_t arena_id)> release_;
  std::mutex mutex_;  // guards holds_
  std::map<uint64_t, int> holds_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_CLIENT_ARENA_HOLDS_H_
