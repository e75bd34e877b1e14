#include "bridge/transport/shm.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"

namespace lockstep::transport {
namespace {

// The answers after which a connection is of no further use.
bool Broken(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsDataLoss(status);
}

class MappedVersion : public InstalledVersion {
 public:
  explicit MappedVersion(ReadOnlyArena arena) : arena_(std::move(arena)) {}
  absl::Span<const uint8_t> bytes() const override { return arena_.bytes(); }

 private:
  ReadOnlyArena arena_;
};

}  // namespace

absl::Status FdLine::Open() {
  if (client_.has_value()) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(client_, FdClient::Connect(path_, incarnation_, timeout_));
  return absl::OkStatus();
}

absl::Status FdLine::Put(uint64_t arena_id, int arena_fd, uint64_t bytes) {
  LOCKSTEP_RETURN_IF_ERROR(Open());
  const absl::Status status = client_->Put(arena_id, arena_fd, bytes, timeout_);
  if (Broken(status)) client_.reset();
  return status;
}

absl::StatusOr<UniqueFd> FdLine::Get(uint64_t arena_id, uint64_t bytes) {
  LOCKSTEP_RETURN_IF_ERROR(Open());
  absl::StatusOr<UniqueFd> fd = client_->Get(arena_id, bytes, timeout_);
  if (Broken(fd.status())) client_.reset();
  return fd;
}

absl::StatusOr<std::unique_ptr<InstalledVersion>> ShmInstaller::Install(
    const InstallRequest& request, RoundFeed& feed) {
  if (feed.cancelled()) return feed.status();
  LOCKSTEP_ASSIGN_OR_RETURN(UniqueFd fd, line_.Get(request.arena_id, request.total_bytes));
  LOCKSTEP_ASSIGN_OR_RETURN(ReadOnlyArena arena,
                            ReadOnlyArena::Map(std::move(fd), request.total_bytes));
  LOCKSTEP_RETURN_IF_ERROR(feed.WaitUntilReady(request.total_bytes));
  arena.Populate();
  return std::make_unique<MappedVersion>(std::move(arena));
}

absl::Status ShmWriter::Begin(const WriteRequest& request) {
  mark_ = 0;
  current_ = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = arenas_.find(request.arena_id);
    if (found != arenas_.end()) current_ = found->second;
  }
  if (request.reuse) {
    if (current_ != nullptr && current_->bytes().size() == request.total_bytes) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(
        absl::StrCat("the bridge asks to reuse arena ", request.arena_id, " of ",
                     request.total_bytes, " bytes, which this trainer does not hold; offer again"));
  }
  if (current_ == nullptr || current_->bytes().size() != request.total_bytes) {
    LOCKSTEP_ASSIGN_OR_RETURN(WritableArena arena, WritableArena::Create(request.total_bytes));
    const std::atomic<bool> stop{false};
    LOCKSTEP_RETURN_IF_ERROR(arena.Prefault(stop));
    current_ = std::make_shared<const WritableArena>(std::move(arena));
  }
  LOCKSTEP_RETURN_IF_ERROR(line_.Put(request.arena_id, current_->fd(), request.total_bytes));
  const std::lock_guard<std::mutex> lock(mutex_);
  arenas_[request.arena_id] = current_;
  return absl::OkStatus();
}

absl::Status ShmWriter::Write(uint64_t offset, absl::Span<const uint8_t> bytes, RoundFeed& feed) {
  const absl::Span<uint8_t> arena = Mapped();
  if (feed.cancelled()) return feed.status();
  if (offset < mark_ || offset > arena.size() || bytes.size() > arena.size() - offset) {
    return absl::InvalidArgumentError(
        absl::StrCat("write of [", offset, ", +", bytes.size(), ") into an arena of ", arena.size(),
                     " bytes that has reached ", mark_, "; offsets ascend and lie in the arena"));
  }
  std::memcpy(arena.data() + offset, bytes.data(), bytes.size());
  mark_ = offset + bytes.size();
  return absl::OkStatus();
}

absl::Status ShmWriter::Finish(RoundFeed& feed) {
  if (feed.cancelled()) return feed.status();
  if (current_ == nullptr) return absl::FailedPreconditionError("Finish without Begin");
  mark_ = current_->bytes().size();
  return absl::OkStatus();
}

absl::Span<uint8_t> ShmWriter::Mapped() {
  return current_ == nullptr ? absl::Span<uint8_t>() : current_->bytes();
}

void ShmWriter::Drop(uint64_t arena_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  arenas_.erase(arena_id);
}

}  // namespace lockstep::transport
