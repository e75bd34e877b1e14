#include "bridge/transport/tcp.h"

#include <mutex>
#include <utility>
#include <vector>

#include "bridge/transport/shm_arena.h"
#include "policy/status_macros.h"

namespace lockstep::transport {

// Memory of slots that nobody uses, for the next version of the same size. Any thread.
class SlotPool {
 public:
  absl::StatusOr<Mapping> Take(uint64_t bytes) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (auto it = spare_.begin(); it != spare_.end(); ++it) {
        if (it->size() != bytes) continue;
        Mapping mapping = std::move(*it);
        spare_.erase(it);
        return mapping;
      }
      // Another layout: what is kept will not fit again.
      spare_.clear();
    }
    return Mapping::Anonymous(bytes);
  }

  void Return(Mapping mapping) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (spare_.size() < kMaxSpare) spare_.push_back(std::move(mapping));
  }

 private:
  static constexpr size_t kMaxSpare = 1;  // beside the version served and the one arriving

  std::mutex mutex_;
  std::vector<Mapping> spare_;
};

namespace {

class CopiedVersion : public InstalledVersion {
 public:
  CopiedVersion(Mapping mapping, uint64_t bytes, std::shared_ptr<SlotPool> pool)
      : mapping_(std::move(mapping)), bytes_(bytes), pool_(std::move(pool)) {}
  ~CopiedVersion() override { pool_->Return(std::move(mapping_)); }

  absl::Span<const uint8_t> bytes() const override { return {mapping_.data(), bytes_}; }
  absl::Span<uint8_t> memory() { return {mapping_.data(), bytes_}; }

 private:
  Mapping mapping_;
  uint64_t bytes_;
  std::shared_ptr<SlotPool> pool_;
};

}  // namespace

TcpInstaller::TcpInstaller(const BulkEndpoint& endpoint, const BulkOptions& options)
    : endpoint_(endpoint), options_(options), pool_(std::make_shared<SlotPool>()) {}

TcpInstaller::~TcpInstaller() = default;

absl::StatusOr<std::unique_ptr<InstalledVersion>> TcpInstaller::Install(
    const InstallRequest& request, RoundFeed& feed) {
  if (feed.cancelled()) return feed.status();
  LOCKSTEP_ASSIGN_OR_RETURN(Mapping memory, pool_->Take(request.total_bytes));
  auto version = std::make_unique<CopiedVersion>(std::move(memory), request.total_bytes, pool_);
  uint64_t done = 0;
  absl::Status status;
  for (int attempt = 0; attempt <= kMaxReconnects; ++attempt) {
    if (!reader_.has_value()) {
      LOCKSTEP_ASSIGN_OR_RETURN(reader_, BulkReader::Connect(endpoint_, options_));
    }
    status = reader_->Fetch(request.arena_id, version->memory(), feed, done);
    if (!absl::IsUnavailable(status)) break;
    reader_.reset();
  }
  if (!status.ok()) return status;
  return version;
}

absl::Status TcpWriter::Begin(const WriteRequest& request) {
  if (!writer_.has_value()) {
    LOCKSTEP_ASSIGN_OR_RETURN(writer_, BulkWriter::Connect(endpoint_, options_));
  }
  return writer_->Begin(request.arena_id, request.total_bytes);
}

absl::Status TcpWriter::Write(uint64_t offset, absl::Span<const uint8_t> bytes, RoundFeed& feed) {
  if (!writer_.has_value()) return absl::FailedPreconditionError("Write without Begin");
  return writer_->Write(offset, bytes, feed);
}

absl::Status TcpWriter::Finish(RoundFeed& feed) {
  if (!writer_.has_value()) return absl::FailedPreconditionError("Finish without Begin");
  const absl::Status status = writer_->Finish(feed);
  // A silent bridge may be a new one at another port: the next upload connects afresh.
  if (absl::IsUnavailable(status)) writer_.reset();
  return status;
}

}  // namespace lockstep::transport
