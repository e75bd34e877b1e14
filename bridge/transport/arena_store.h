#ifndef LOCKSTEP_BRIDGE_TRANSPORT_ARENA_STORE_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_ARENA_STORE_H_

// The bridge's table of arenas: which exist, who may read or fill each, and up to which mark
// their bytes may be served. The loop carries the core's effects into it (CreateArena, Grant,
// Revoke, ServeMark, CloseArena); the servers for descriptors and chunks ask it. One thread,
// the loop's, calls it; a StoredArena may be read by any thread that holds it.
//
// Example:
//   store.Create(id, bytes);                       // or Adopt(), from the descriptor server
//   store.Grant(incarnation, id, /*write=*/false);
//   store.SetServeMark(id, bytes);
//   auto view = store.OpenForRead(incarnation, id);

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bridge/transport/shm_arena.h"
#include "policy/ids.h"

namespace lockstep::transport {

// Lives until its last holder lets go: messages in flight and the worker's jobs hold it too.
class StoredArena {
 public:
  explicit StoredArena(ReadOnlyArena arena);
  // Prefaults on a thread of its own, so that the loop never waits for pages.
  explicit StoredArena(WritableArena arena);
  ~StoredArena();
  StoredArena(const StoredArena&) = delete;
  StoredArena& operator=(const StoredArena&) = delete;

  absl::Span<const uint8_t> bytes() const;
  // Empty when a trainer fills it in its own process.
  absl::Span<uint8_t> writable_bytes() const;
  int fd() const;

 private:
  std::variant<ReadOnlyArena, WritableArena> arena_;
  std::atomic<bool> stop_{false};
  std::thread prefault_;
};

class ArenaStore {
 public:
  // An arena of the bridge's own.
  absl::Status Create(uint64_t arena_id, uint64_t bytes);

  // A trainer's. True when it is new, false when the same file was adopted before;
  // AlreadyExists when the id names another file.
  absl::StatusOr<bool> Adopt(uint64_t arena_id, ReadOnlyArena arena);

  // A write grant that the incarnation did not hold before starts a new upload.
  void Grant(const Incarnation& incarnation, uint64_t arena_id, bool write);
  void Revoke(const Incarnation& incarnation, uint64_t arena_id);

  // A mark that goes down says that the arena is being filled with another version, so the
  // upload starts anew as well.
  void SetServeMark(uint64_t arena_id, uint64_t bytes_ready);

  // Forgets the arena and its grants.
  void Close(uint64_t arena_id);

  // Null when there is none.
  std::shared_ptr<const StoredArena> Find(uint64_t arena_id) const;

  struct Readable {
    std::shared_ptr<const StoredArena> arena;
    uint64_t bytes_ready = 0;
  };
  // PermissionDenied without a read grant; NotFound when the arena is not here.
  absl::StatusOr<Readable> OpenForRead(const Incarnation& incarnation, uint64_t arena_id) const;

  // PermissionDenied without a write grant.
  absl::Status CheckMayWrite(const Incarnation& incarnation, uint64_t arena_id) const;

  // Writes a chunk of a trainer's upload; the result is the mark below which every byte has
  // come. OutOfRange when it does not lie in the arena; ResourceExhausted when it would leave
  // more than kMaxUploadGaps gaps.
  absl::StatusOr<uint64_t> WriteChunk(const Incarnation& incarnation, uint64_t arena_id,
                                      uint64_t offset, absl::Span<const uint8_t> payload);

  static constexpr size_t kMaxUploadGaps = 1'024;

 private:
  struct Access {
    bool read = false;
    bool write = false;
  };
  struct Entry {
    std::shared_ptr<const StoredArena> arena;  // null: granted before it arrived
    uint64_t bytes_ready = 0;
    std::map<Incarnation, Access> access;
    // Of an upload: [0, upload_mark) has come, and the ranges start -> end beyond it.
    uint64_t upload_mark = 0;
    std::map<uint64_t, uint64_t> upload_ahead;
  };

  static void RecordRange(Entry& entry, uint64_t begin, uint64_t end);

  std::map<uint64_t, Entry> entries_;
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_ARENA_STORE_H_
