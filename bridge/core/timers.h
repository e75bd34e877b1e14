#ifndef LOCKSTEP_BRIDGE_CORE_TIMERS_H_
#define LOCKSTEP_BRIDGE_CORE_TIMERS_H_

// Deadlines by (kind, id), in the order in which they fall due.
//
// Example:
//   timers.Set(TimerKind::kRound, round_id, now_ms + 30'000);
//   while (std::optional<Timers::Due> due = timers.PopDue(now_ms)) { ... }

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace lockstep::core {

enum class TimerKind { kLease, kRound, kRescore, kRolloutEvents, kDrain };

class Timers {
 public:
  struct Due {
    TimerKind kind;
    uint64_t id;
  };

  void Set(TimerKind kind, uint64_t id, int64_t deadline_ms) {
    Cancel(kind, id);
    deadlines_[{kind, id}] = deadline_ms;
    order_.insert({deadline_ms, kind, id});
  }

  void Cancel(TimerKind kind, uint64_t id) {
    const auto it = deadlines_.find({kind, id});
    if (it == deadlines_.end()) return;
    order_.erase({it->second, kind, id});
    deadlines_.erase(it);
  }

  // Removes and returns the earliest deadline that is not after `now_ms`.
  std::optional<Due> PopDue(int64_t now_ms) {
    if (order_.empty() || std::get<0>(*order_.begin()) > now_ms) return std::nullopt;
    const auto [deadline_ms, kind, id] = *order_.begin();
    order_.erase(order_.begin());
    deadlines_.erase({kind, id});
    return Due{kind, id};
  }

  int64_t NextMs() const {
    if (order_.empty()) return std::numeric_limits<int64_t>::max();
    return std::get<0>(*order_.begin());
  }

 private:
  std::map<std::pair<TimerKind, uint64_t>, int64_t> deadlines_;
  std::set<std::tuple<int64_t, TimerKind, uint64_t>> order_;
};

}  // namespace lockstep::core

#endif  // LOCKSTEP_BRIDGE_CORE_TIMERS_H_
