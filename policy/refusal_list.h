#ifndef LOCKSTEP_POLICY_REFUSAL_LIST_H_
#define LOCKSTEP_POLICY_REFUSAL_LIST_H_

// Collects refusals of one judgement up to a limit, so that a peer that is wrong a million
// times costs a bounded answer (I10) and nothing is dropped in silence (I6): the rest is
// counted in a last refusal.
//
// Example:
//   RefusalList found;
//   found.Add(RefusalCode::kBadCheckpoint, "w", "tensor 'w': ...");
//   return std::move(found).Take();

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "policy/refusal.h"

namespace lockstep {

inline constexpr uint64_t kMaxListedRefusals = 64;

class RefusalList {
 public:
  void Add(RefusalCode code, std::string key, std::string message) {
    if (listed_.size() < kMaxListedRefusals) {
      listed_.push_back({code, std::move(key), std::move(message)});
    } else {
      ++unlisted_;
    }
  }

  bool empty() const { return listed_.empty(); }

  std::vector<Refusal> Take() && {
    if (unlisted_ > 0) {
      listed_.push_back(
          {listed_.back().code, "", absl::StrCat("and ", unlisted_, " more of this kind")});
    }
    return std::move(listed_);
  }

 private:
  std::vector<Refusal> listed_;
  uint64_t unlisted_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_REFUSAL_LIST_H_
