#ifndef LOCKSTEP_POLICY_RESOLVE_SITES_H_
#define LOCKSTEP_POLICY_RESOLVE_SITES_H_

// The second half of the resolver: a family that has been decided, the config's sizes and
// the options become a contract, site by site. Used by resolve.cc only.

#include "policy/config_facts.h"
#include "policy/contract.h"
#include "policy/refusal_list.h"
#include "policy/resolve.h"

namespace lockstep {

struct SitePlan {
  const FamilyInfo* family = nullptr;  // never null; the row `none` for no exact family
  Lane lane = Lane::kNone;             // asked for, or by the config's flags
  bool plain_mlp = true;               // false: the MLP sites stay empty
};

// Adds every reason why the contract cannot be made; the result counts only if none was added.
Contract BuildContract(const SitePlan& plan, const ConfigFacts& facts,
                       const ResolveOptions& options, RefusalList& refusals);

// Replaces the sites that `options` names (resolve_overrides.cc), then adds the family's own
// local-partial policy and the lane's adapters.
void ApplyOverrides(const SitePlan& plan, const ResolveOptions& options, Contract& contract,
                    RefusalList& refusals);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_RESOLVE_SITES_H_
