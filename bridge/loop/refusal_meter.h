#ifndef LOCKSTEP_BRIDGE_LOOP_REFUSAL_METER_H_
#define LOCKSTEP_BRIDGE_LOOP_REFUSAL_METER_H_

// What strangers do wrong below the control protocol (no key, a bad chunk frame), counted, and
// reported to the core at most once a second for each place: whoever knocks a million times
// costs one durable event a second, and nothing is dropped in silence (I6, I10).
//
// Example:
//   meter.Add(RefusalCode::kUnauthorised, "bulk port", 3, "a wrong password");
//   for (core::MalformedMessage& report : meter.TakeDue(now_ms)) Step(std::move(report));

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bridge/core/core.h"
#include "policy/refusal.h"

namespace lockstep::loop {

class RefusalMeter {
 public:
  static constexpr int64_t kReportEveryMs = 1'000;

  void Add(RefusalCode code, const std::string& place, uint64_t count, const std::string& newest);

  // When TakeDue next has something; int64 max when nothing waits.
  int64_t NextDueMs() const;
  std::vector<core::MalformedMessage> TakeDue(int64_t now_ms);

 private:
  struct Count {
    uint64_t times = 0;
    std::string newest;
    int64_t not_before_ms = 0;  // of the next report
  };
  std::map<std::pair<RefusalCode, std::string>, Count> counts_;  // places are few and ours
};

}  // namespace lockstep::loop

#endif  // LOCKSTEP_BRIDGE_LOOP_REFUSAL_METER_H_
