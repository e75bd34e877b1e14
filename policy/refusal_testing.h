#ifndef LOCKSTEP_POLICY_REFUSAL_TESTING_H_
#define LOCKSTEP_POLICY_REFUSAL_TESTING_H_

// For tests: did a judgement give this reason?

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "policy/refusal.h"

namespace lockstep {

// True when one of `refusals` has this code and key and a message that contains `text`.
inline bool Mentions(const std::vector<Refusal>& refusals, RefusalCode code, absl::string_view key,
                     absl::string_view text) {
  for (const Refusal& refusal : refusals) {
    if (refusal.code == code && refusal.key == key && absl::StrContains(refusal.message, text)) {
      return true;
    }
  }
  return false;
}

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_REFUSAL_TESTING_H_
