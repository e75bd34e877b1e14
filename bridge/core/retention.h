#ifndef LOCKSTEP_BRIDGE_CORE_RETENTION_H_
#define LOCKSTEP_BRIDGE_CORE_RETENTION_H_

// Which versions' bytes the bridge keeps: the newest K sealed ones, in memory and (up to
// spool_max_bytes each) on disk, so that late samplers and rollbacks can be served.

#include <cstdint>
#include <string>

#include "bridge/core/state.h"

namespace lockstep::core {

// The newest version whose bytes can be served; nullptr when there is none.
Version* NewestServable(Machine& m);

// Drops what is no longer kept; call after anything that may have ended a need.
void Retain(Machine& m);

// At seal: is anything different from the version before (zero_change), and the spool.
void StartCompare(Machine& m, Version& version);
void StartSpool(Machine& m, Version& version);
void CompareFinished(Machine& m, const Work& work, bool equal);
void SpoolFinished(Machine& m, const Work& work, const std::string& error);

}  // namespace lockstep::core

#endif  // LOCKSTEP_BRIDGE_CORE_RETENTION_H_
