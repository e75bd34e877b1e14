#include "bridge/core/arenas.h"

#include <vector>

#include "bridge/core/emit.h"

namespace lockstep::core {
namespace {

bool OwnedByWriter(const Machine& m, const Arena& arena) {
  return arena.own || (m.trainer.has_value() && arena.trainer == m.trainer->key.incarnation);
}

bool Idle(const Arena& arena) {
  return arena.versions.empty() && arena.readers.empty() && !arena.tainted && arena.arrived;
}

void Close(Machine& m, uint64_t id) {
  const Arena& arena = m.arenas.at(id);
  for (const auto& [reader, transport] : arena.readers) Emit(m, Revoke{reader, id});
  if (!arena.own) SendTo(m, {PeerRole::kTrainer, arena.trainer}, DropArena{id});
  Emit(m, CloseArena{id});
  m.arenas.erase(id);
}

// Makes room by giving up the oldest arena that no version needs; its readers keep their own
// mapping of it.
bool MakeRoom(Machine& m) {
  if (m.arenas.size() < kMaxArenas) return true;
  for (const auto& [id, arena] : m.arenas) {
    if (!arena.versions.empty()) continue;
    Close(m, id);
    return true;
  }
  return false;
}

}  // namespace

std::optional<AcquiredArena> AcquireArena(Machine& m, TransportKind transport, uint64_t bytes,
                                          uint64_t version) {
  const bool own = transport == TransportKind::kTcp;
  for (auto& [id, arena] : m.arenas) {
    if (!Idle(arena) || arena.own != own || arena.bytes != bytes || !OwnedByWriter(m, arena)) {
      continue;
    }
    arena.versions.insert(version);
    SetReady(m, id, 0);
    return AcquiredArena{id, true};
  }
  if (!MakeRoom(m)) return std::nullopt;
  const uint64_t id = m.next_arena++;
  Arena& arena = m.arenas[id];
  arena.bytes = bytes;
  arena.own = own;
  arena.arrived = own;
  arena.versions.insert(version);
  if (own) {
    Emit(m, CreateArena{id, bytes});
  } else {
    arena.trainer = m.trainer->key.incarnation;
  }
  return AcquiredArena{id, false};
}

void HoldArena(Machine& m, uint64_t arena, uint64_t version) {
  m.arenas.at(arena).versions.insert(version);
}

void UnholdArena(Machine& m, uint64_t arena, uint64_t version) {
  Arena* found = Find(m.arenas, arena);
  if (found != nullptr) found->versions.erase(version);
}

void SetReady(Machine& m, uint64_t arena, uint64_t bytes_ready) {
  Arena& found = m.arenas.at(arena);
  found.bytes_ready = bytes_ready;
  if (found.arrived) Emit(m, ServeMark{arena, bytes_ready});
}

void GrantRead(Machine& m, uint64_t arena, const Incarnation& sampler, TransportKind transport) {
  m.arenas.at(arena).readers[sampler] = transport;
  Emit(m, Grant{sampler, arena, false});
}

void ReleaseRead(Machine& m, uint64_t arena, const Incarnation& sampler) {
  Arena* found = Find(m.arenas, arena);
  if (found == nullptr || found->readers.erase(sampler) == 0) return;
  Emit(m, Revoke{sampler, arena});
}

void ReaderGone(Machine& m, const Incarnation& sampler) {
  for (auto& [id, arena] : m.arenas) {
    const auto reader = arena.readers.find(sampler);
    if (reader == arena.readers.end()) continue;
    if (reader->second == TransportKind::kShm) arena.tainted = true;
    arena.readers.erase(reader);
    Emit(m, Revoke{sampler, id});
  }
}

void ReapArenas(Machine& m) {
  const Epoch* epoch = ReferenceEpoch(m);
  std::vector<uint64_t> idle;
  std::vector<uint64_t> useless;
  for (const auto& [id, arena] : m.arenas) {
    if (!arena.versions.empty()) continue;
    const bool fits = m.trainer.has_value() && OwnedByWriter(m, arena) && epoch != nullptr &&
                      arena.bytes == epoch->arena_bytes;
    if (arena.tainted || (arena.readers.empty() && (!fits || !arena.arrived))) {
      useless.push_back(id);
    } else if (arena.readers.empty()) {
      idle.push_back(id);
    }
  }
  for (const uint64_t id : useless) Close(m, id);
  for (size_t i = 0; i + kMaxIdleArenas < idle.size(); ++i) Close(m, idle[i]);
}

}  // namespace lockstep::core
