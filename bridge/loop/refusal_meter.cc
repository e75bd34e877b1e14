#include "bridge/loop/refusal_meter.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace lockstep::loop {

void RefusalMeter::Add(RefusalCode code, const std::string& place, uint64_t count,
                       const std::string& newest) {
  if (count == 0) return;
  Count& entry = counts_[{code, place}];
  entry.times += count;
  entry.newest = newest;
}

int64_t RefusalMeter::NextDueMs() const {
  int64_t next = std::numeric_limits<int64_t>::max();
  for (const auto& [key, entry] : counts_) {
    if (entry.times > 0) next = std::min(next, entry.not_before_ms);
  }
  return next;
}

std::vector<core::MalformedMessage> RefusalMeter::TakeDue(int64_t now_ms) {
  std::vector<core::MalformedMessage> reports;
  for (auto& [key, entry] : counts_) {
    if (entry.times == 0 || entry.not_before_ms > now_ms) continue;
    const std::string message =
        absl::StrCat(key.second, ": ", entry.times, entry.times == 1 ? " time, " : " times, ",
                     "the newest: ", entry.newest);
    reports.push_back({0, 0, Refusal{key.first, key.second, message}});
    entry.times = 0;
    entry.not_before_ms = now_ms + kReportEveryMs;
  }
  return reports;
}

}  // namespace lockstep::loop
