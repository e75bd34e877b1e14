#ifndef LOCKSTEP_BRIDGE_CORE_RECOVERY_H_
#define LOCKSTEP_BRIDGE_CORE_RECOVERY_H_

// From the ledger's records to a Machine. Nothing that was under way is assumed to go on:
// unsealed versions are discarded, rounds are asked again, samplers are gone until they
// register. What was acknowledged holds: sealed versions, epochs, decisions, quarantines.

#include "bridge/core/state.h"

namespace lockstep::core {

Machine BuildMachine(Config config, RecoveredState recovered);

// The first outputs: discards made durable, spools read back, deadlines of pending rollouts.
void StartMachine(Machine& m);

void HandleSpoolLoaded(Machine& m, const SpoolLoaded& loaded);

}  // namespace lockstep::core

#endif  // LOCKSTEP_BRIDGE_CORE_RECOVERY_H_
