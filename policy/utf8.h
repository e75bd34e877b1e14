#ifndef LOCKSTEP_POLICY_UTF8_H_
#define LOCKSTEP_POLICY_UTF8_H_

#include "absl/strings/string_view.h"

namespace lockstep {

// True when `text` is well-formed UTF-8 as RFC 3629 has it: no overlong forms, no
// surrogates, nothing above U+10FFFF.
bool IsValidUtf8(absl::string_view text);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_UTF8_H_
