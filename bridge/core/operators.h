#ifndef LOCKSTEP_BRIDGE_CORE_OPERATORS_H_
#define LOCKSTEP_BRIDGE_CORE_OPERATORS_H_

// Operators' acts: rollback, retire, quarantine release, shutdown; and the drain that a
// shutdown (or SIGTERM) starts.

#include "bridge/core/state.h"

namespace lockstep::core {

// Answered with ActReply. A rollback is answered once the new version is sealed: its digest
// is made from the kept copy under a fresh key, the probe's digests are the source's.
void HandleAct(Machine& m, const Session& session, const ReplyTo& reply, const OperatorAct& act);

// The new version's digest, or the proof of the source's copy, has come.
void RollbackDigestDone(Machine& m, const Work& work, const VersionDigest& digest);
void MaybeFinishRollback(Machine& m);

void BeginDrain(Machine& m, const std::string& why);

// Exit once nothing is running any more; runs at the end of every step.
void MaybeExit(Machine& m);
void DrainTimedOut(Machine& m);

}  // namespace lockstep::core

#endif  // LOCKSTEP_BRIDGE_CORE_OPERATORS_H_
