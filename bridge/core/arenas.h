#ifndef LOCKSTEP_BRIDGE_CORE_ARENAS_H_
#define LOCKSTEP_BRIDGE_CORE_ARENAS_H_

// Arenas: memory that holds one version each. An arena is written only while one unsealed
// version owns it, and given to a new version only when no version needs it and no sampler
// has it mapped: a sampler's slot *is* the mapping, so a byte that changed under it would
// break I2.

#include <cstdint>
#include <optional>

#include "bridge/core/state.h"

namespace lockstep::core {

struct AcquiredArena {
  uint64_t id = 0;
  bool reused = false;
};

// An idle arena of that size, or a new one; held for `version`. Nothing when kMaxArenas are
// all needed.
std::optional<AcquiredArena> AcquireArena(Machine& m, TransportKind transport, uint64_t bytes,
                                          uint64_t version);

void HoldArena(Machine& m, uint64_t arena, uint64_t version);
void UnholdArena(Machine& m, uint64_t arena, uint64_t version);

// Tells the loop how far the arena may be read.
void SetReady(Machine& m, uint64_t arena, uint64_t bytes_ready);

void GrantRead(Machine& m, uint64_t arena, const Incarnation& sampler, TransportKind transport);
// The sampler says that its mapping is gone.
void ReleaseRead(Machine& m, uint64_t arena, const Incarnation& sampler);
// The sampler vanished: what it had mapped may still be mapped somewhere, so it is tainted.
void ReaderGone(Machine& m, const Incarnation& sampler);

// Closes what nobody can use any more; runs at the end of every step.
void ReapArenas(Machine& m);

// Idle arenas beyond this many are closed.
inline constexpr uint64_t kMaxIdleArenas = 2;

}  // namespace lockstep::core

#endif  // LOCKSTEP_BRIDGE_CORE_ARENAS_H_
