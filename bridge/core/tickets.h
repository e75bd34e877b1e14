#ifndef LOCKSTEP_BRIDGE_CORE_TICKETS_H_
#define LOCKSTEP_BRIDGE_CORE_TICKETS_H_

// The ticket a sampler got when it went live: a MAC over what it serves, under a key that
// only the ledger and the core know.

#include "bridge/core/state.h"

namespace lockstep::core {

// That this incarnation of `sampler` serves `version` since the flush that began `cache_epoch`.
Digest256 TicketFor(const Machine& m, const Sampler& sampler, uint64_t version,
                    uint64_t cache_epoch);

// Does the claim carry the ticket that this bridge, or one before it, gave this incarnation?
bool GenuineClaim(const Machine& m, const Sampler& sampler, const LiveClaim& claim);

}  // namespace lockstep::core

#endif  // LOCKSTEP_BRIDGE_CORE_TICKETS_H_
