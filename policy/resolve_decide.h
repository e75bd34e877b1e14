#ifndef LOCKSTEP_POLICY_RESOLVE_DECIDE_H_
#define LOCKSTEP_POLICY_RESOLVE_DECIDE_H_

// Which family a config is, by the rules of contracts.md section 2:
//   1. `exact` or a lane decides afresh; any stamp and legacy flag is stale and overwritten.
//   2. Else a stamp decides; it wins over every flag.
//   3. Else the legacy and active-LoRA flags decide.
//   4. Else the model type decides: qwen3_5* is exact, everything else `none`.
// Architectures are compared with the model type, and a partial set of active-LoRA flags is
// refused, whichever of these applies.
// Used by resolve.cc only.

#include <string>

#include "policy/config_facts.h"
#include "policy/refusal_list.h"
#include "policy/resolve.h"

namespace lockstep {

// Who asked for exactness, if anyone, and which family they mean.
struct Decision {
  const FamilyInfo* family = nullptr;  // nullptr: none
  Lane lane = Lane::kNone;
  bool demanded = false;
};

// Adds every contradiction between stamps, flags, architectures and the model type.
Decision Decide(const ConfigFacts& facts, const ResolveOptions& options, RefusalList& refusals);

// "model_type 'llama'" or "no model_type".
std::string TypeText(const ConfigFacts& facts);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_RESOLVE_DECIDE_H_
