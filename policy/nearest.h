#ifndef LOCKSTEP_POLICY_NEAREST_H_
#define LOCKSTEP_POLICY_NEAREST_H_

// Suggestions for a name nobody knows.
//
// Example:
//   NearestNames("two_rond", {"one_round", "two_round"});  // {"two_round", "one_round"}

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep {

// Up to three of `known`, nearest to `unknown` by edit distance first, ties by name.
std::vector<std::string> NearestNames(absl::string_view unknown,
                                      const std::vector<std::string>& known);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_NEAREST_H_
