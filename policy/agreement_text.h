#ifndef LOCKSTEP_POLICY_AGREEMENT_TEXT_H_
#define LOCKSTEP_POLICY_AGREEMENT_TEXT_H_

// The words of a difference: what a value means, what it changes in bytes, what to do about
// it. Used by agreement.cc only.

#include <string>

#include "absl/strings/string_view.h"

namespace lockstep {

// Two values of the part at `path`, as printed; "" where a side states nothing.
struct PartValues {
  std::string path;
  std::string trainer;
  std::string sampler;
};

// "swiglu/two_round@v1 (SwiGLU, ...)": a known name with its description.
std::string Described(absl::string_view value);

// Which bytes differ; the same text with the two values swapped.
std::string ChangesOf(const PartValues& part);

// What to start either side with.
std::string RemedyOf(const PartValues& part);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_AGREEMENT_TEXT_H_
