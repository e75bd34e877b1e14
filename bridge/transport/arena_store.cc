#include "bridge/transport/arena_store.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"

namespace lockstep::transport {
namespace {

bool SameFile(int fd_a, int fd_b) {
  struct stat a {
  }, b{};
  return ::fstat(fd_a, &a) == 0 && ::fstat(fd_b, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

}  // namespace

StoredArena::StoredArena(ReadOnlyArena arena) : arena_(std::move(arena)) {}

StoredArena::StoredArena(WritableArena arena) : arena_(std::move(arena)) {
  try {
    prefault_ = std::thread([this] {
      // What does not fit shows when it is written; Create checked the limits.
      std::get<WritableArena>(arena_).Prefault(stop_).IgnoreError();
    });
  } catch (const std::system_error&) {
    // No thread to be had: filling takes the page faults itself.
  }
}

StoredArena::~StoredArena() {
  stop_.store(true, std::memory_order_relaxed);
  if (prefault_.joinable()) prefault_.join();
}

absl::Span<const uint8_t> StoredArena::bytes() const {
  return std::visit([](const auto& arena) { return absl::Span<const uint8_t>(arena.bytes()); },
                    arena_);
}

absl::Span<uint8_t> StoredArena::writable_bytes() const {
  const auto* own = std::get_if<WritableArena>(&arena_);
  return own == nullptr ? absl::Span<uint8_t>() : own->bytes();
}

int StoredArena::fd() const {
  return std::visit([](const auto& arena) { return arena.fd(); }, arena_);
}

absl::Status ArenaStore::Create(uint64_t arena_id, uint64_t bytes) {
  Entry& entry = entries_[arena_id];
  if (entry.arena != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat("arena ", arena_id, " exists already"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(WritableArena arena, WritableArena::Create(bytes));
  entry.arena = std::make_shared<const StoredArena>(std::move(arena));
  return absl::OkStatus();
}

absl::StatusOr<bool> ArenaStore::Adopt(uint64_t arena_id, ReadOnlyArena arena) {
  Entry& entry = entries_[arena_id];
  if (entry.arena != nullptr) {
    if (SameFile(entry.arena->fd(), arena.fd())) return false;
    return absl::AlreadyExistsError(
        absl::StrCat("arena ", arena_id, " is another memory file already; use a new arena id"));
  }
  entry.arena = std::make_shared<const StoredArena>(std::move(arena));
  return true;
}

void ArenaStore::Grant(const Incarnation& incarnation, uint64_t arena_id, bool write) {
  Entry& entry = entries_[arena_id];
  Access& access = entry.access[incarnation];
  if (!write) {
    access.read = true;
    return;
  }
  if (!access.write) {
    entry.upload_mark = 0;
    entry.upload_ahead.clear();
  }
  access.write = true;
}

void ArenaStore::Revoke(const Incarnation& incarnation, uint64_t arena_id) {
  const auto it = entries_.find(arena_id);
  if (it == entries_.end()) return;
  it->second.access.erase(incarnation);
  if (it->second.arena == nullptr && it->second.access.empty()) entries_.erase(it);
}

void ArenaStore::SetServeMark(uint64_t arena_id, uint64_t bytes_ready) {
  const auto it = entries_.find(arena_id);
  if (it == entries_.end()) return;
  Entry& entry = it->second;
  if (bytes_ready < entry.bytes_ready) {
    entry.upload_mark = 0;
    entry.upload_ahead.clear();
  }
  entry.bytes_ready = bytes_ready;
}

void ArenaStore::Close(uint64_t arena_id) { entries_.erase(arena_id); }

std::shared_ptr<const StoredArena> ArenaStore::Find(uint64_t arena_id) const {
  const auto it = entries_.find(arena_id);
  return it == entries_.end() ? nullptr : it->second.arena;
}

absl::StatusOr<ArenaStore::Readable> ArenaStore::OpenForRead(const Incarnation& incarnation,
                                                             uint64_t arena_id) const {
  const auto it = entries_.find(arena_id);
  if (it == entries_.end()) {
    return absl::NotFoundError(
        absl::StrCat("the bridge has no arena ", arena_id, "; the round it belonged to is over"));
  }
  const auto access = it->second.access.find(incarnation);
  if (access == it->second.access.end() || !access->second.read) {
    return absl::PermissionDeniedError(absl::StrCat("incarnation ", ToHex(incarnation),
                                                    " has no read grant for arena ", arena_id));
  }
  if (it->second.arena == nullptr) {
    return absl::NotFoundError(absl::StrCat("arena ", arena_id, " has not arrived yet"));
  }
  return Readable{it->second.arena, it->second.bytes_ready};
}

absl::Status ArenaStore::CheckMayWrite(const Incarnation& incarnation, uint64_t arena_id) const {
  const auto it = entries_.find(arena_id);
  if (it != entries_.end()) {
    const auto access = it->second.access.find(incarnation);
    if (access != it->second.access.end() && access->second.write) return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat("incarnation ", ToHex(incarnation),
                                                  " has no write grant for arena ", arena_id,
                                                  "; offer a version first"));
}

absl::StatusOr<uint64_t> ArenaStore::WriteChunk(const Incarnation& incarnation, uint64_t arena_id,
                                                uint64_t offset,
                                                absl::Span<const uint8_t> payload) {
  LOCKSTEP_RETURN_IF_ERROR(CheckMayWrite(incarnation, arena_id));
  Entry& entry = entries_.find(arena_id)->second;
  const absl::Span<uint8_t> target =
      entry.arena == nullptr ? absl::Span<uint8_t>() : entry.arena->writable_bytes();
  if (target.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("arena ", arena_id, " is not one that a trainer uploads into"));
  }
  if (offset > target.size() || payload.size() > target.size() - offset) {
    return absl::OutOfRangeError(absl::StrCat("chunk [", offset, ", +", payload.size(),
                                              ") lies outside arena ", arena_id, " of ",
                                              target.size(), " bytes"));
  }
  if (offset > entry.upload_mark && entry.upload_ahead.size() >= kMaxUploadGaps) {
    return absl::ResourceExhaustedError(absl::StrCat("upload of arena ", arena_id,
                                                     " left more than ", kMaxUploadGaps,
                                                     " gaps; send chunks in ascending order"));
  }
  // Bytes below the mark may be with samplers already; a repeat of them changes nothing.
  const uint64_t end = offset + payload.size();
  if (end <= entry.upload_mark) return entry.upload_mark;
  const uint64_t skip = entry.upload_mark > offset ? entry.upload_mark - offset : 0;
  std::memcpy(target.data() + offset + skip, payload.data() + skip, payload.size() - skip);
  RecordRange(entry, offset + skip, end);
  return entry.upload_mark;
}

void ArenaStore::RecordRange(Entry& entry, uint64_t begin, uint64_t end) {
  uint64_t& ahead_end = entry.upload_ahead[begin];
  ahead_end = std::max(ahead_end, end);
  while (!entry.upload_ahead.empty() && entry.upload_ahead.begin()->first <= entry.upload_mark) {
    entry.upload_mark = std::max(entry.upload_mark, entry.upload_ahead.begin()->second);
    entry.upload_ahead.erase(entry.upload_ahead.begin());
  }
}

}  // namespace lockstep::transport
