#include "bridge/transport/bulk_writer.h"

#include <zmq.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"

namespace lockstep::transport {
namespace {

// How soon a cancelled feed is noticed while nothing arrives.
constexpr absl::Duration kPoll = absl::Milliseconds(5);

uint8_t* Data(wire::ZmqMessage& message) {
  return static_cast<uint8_t*>(zmq_msg_data(message.get()));
}

}  // namespace

absl::StatusOr<BulkWriter> BulkWriter::Connect(const BulkEndpoint& endpoint,
                                               const BulkOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckBulkOptions(options));
  LOCKSTEP_ASSIGN_OR_RETURN(BulkConnection connection, BulkConnection::Open(endpoint));
  return BulkWriter(std::move(connection), options);
}

absl::Status BulkWriter::Begin(uint64_t arena_id, uint64_t total_bytes) {
  sent_.clear();
  arena_id_ = arena_id;
  total_bytes_ = total_bytes;
  position_ = mark_ = chunk_length_ = chunk_filled_ = 0;
  return absl::OkStatus();
}

absl::Status BulkWriter::Write(uint64_t offset, absl::Span<const uint8_t> bytes, RoundFeed& feed) {
  if (offset < position_ || offset > total_bytes_ || bytes.size() > total_bytes_ - offset) {
    return absl::InvalidArgumentError(absl::StrCat(
        "write of [", offset, ", +", bytes.size(), ") into an upload of ", total_bytes_,
        " bytes that has reached ", position_, "; offsets ascend and lie in the arena"));
  }
  LOCKSTEP_RETURN_IF_ERROR(Append(nullptr, offset - position_, feed));
  return Append(bytes.data(), bytes.size(), feed);
}

absl::Status BulkWriter::Finish(RoundFeed& feed) {
  LOCKSTEP_RETURN_IF_ERROR(Append(nullptr, total_bytes_ - position_, feed));
  return WaitForCredit(0, feed);
}

absl::Status BulkWriter::Append(const uint8_t* bytes, uint64_t count, RoundFeed& feed) {
  while (count > 0) {
    if (chunk_filled_ == chunk_length_) LOCKSTEP_RETURN_IF_ERROR(OpenChunk());
    const uint64_t part = std::min(count, chunk_length_ - chunk_filled_);
    uint8_t* const place = Data(chunk_) + kBulkHeaderBytes + chunk_filled_;
    if (bytes == nullptr) {
      std::memset(place, 0, part);
    } else {
      std::memcpy(place, bytes, part);
      bytes += part;
    }
    chunk_filled_ += part;
    position_ += part;
    count -= part;
    if (chunk_filled_ == chunk_length_) LOCKSTEP_RETURN_IF_ERROR(SendChunk(feed));
  }
  return absl::OkStatus();
}

absl::Status BulkWriter::OpenChunk() {
  const uint64_t length = std::min(options_.chunk_bytes, total_bytes_ - position_);
  wire::ZmqMessage fresh;
  if (zmq_msg_init_size(fresh.get(), kBulkHeaderBytes + length) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a chunk of ", length, " bytes"));
  }
  chunk_ = std::move(fresh);
  chunk_length_ = length;
  chunk_filled_ = 0;
  return absl::OkStatus();
}

absl::Status BulkWriter::SendChunk(RoundFeed& feed) {
  LOCKSTEP_RETURN_IF_ERROR(WaitForCredit(static_cast<size_t>(options_.credit) - 1, feed));
  BulkHeader header;
  header.kind = BulkKind::kPutChunk;
  header.request_id = next_request_id_++;
  header.arena_id = arena_id_;
  header.offset = position_ - chunk_length_;
  header.length = chunk_length_;
  header.incarnation = connection_.incarnation();
  header.value = PayloadHash({Data(chunk_) + kBulkHeaderBytes, chunk_length_});
  const BulkHeaderBytes bytes = EncodeBulkHeader(header, connection_.key());
  std::memcpy(Data(chunk_), bytes.data(), bytes.size());
  Sent& sent = sent_[header.request_id];
  sent.message = std::move(chunk_);
  sent.offset = header.offset;
  sent.since = absl::Now();
  const absl::Status status = connection_.SendCopy(sent.message.get());
  // A full queue is a bridge that is not there: the stall timeout decides.
  return absl::IsUnavailable(status) ? absl::OkStatus() : status;
}

absl::Status BulkWriter::WaitForCredit(size_t limit, RoundFeed& feed) {
  for (;;) {
    if (feed.cancelled()) return feed.status();
    const bool enough = sent_.size() <= limit;
    LOCKSTEP_ASSIGN_OR_RETURN(std::optional<BulkConnection::Answer> answer,
                              connection_.Receive(enough ? absl::ZeroDuration() : kPoll));
    if (answer.has_value()) {
      LOCKSTEP_RETURN_IF_ERROR(Take(answer->header));
      continue;
    }
    if (enough) return absl::OkStatus();
    const absl::Time stalled = absl::Now() - options_.stall_timeout;
    for (auto& [id, sent] : sent_) {
      if (sent.since > stalled) continue;
      LOCKSTEP_RETURN_IF_ERROR(
          SendAgain(sent, absl::UnavailableError("the bulk port does not answer in time")));
    }
  }
}

absl::Status BulkWriter::Take(const BulkHeader& answer) {
  const auto it = sent_.find(answer.request_id);
  if (it == sent_.end() || answer.arena_id != arena_id_) return absl::OkStatus();
  if (answer.kind == BulkKind::kPutAck) {
    mark_ = std::max(mark_, std::min(answer.value, total_bytes_));
    sent_.erase(it);
    return absl::OkStatus();
  }
  if (answer.kind != BulkKind::kRefused) return absl::OkStatus();
  if (answer.value != static_cast<uint64_t>(absl::StatusCode::kDataLoss)) {
    return RefusedStatus(answer);
  }
  return SendAgain(it->second, absl::DataLossError("its payload was damaged on its way"));
}

absl::Status BulkWriter::SendAgain(Sent& sent, absl::Status last) {
  if (++sent.attempts > options_.retries) {
    return absl::Status(last.code(),
                        absl::StrCat("chunk at ", sent.offset, " of arena ", arena_id_, " failed ",
                                     sent.attempts, " times: ", last.message()));
  }
  sent.since = absl::Now();
  const absl::Status status = connection_.SendCopy(sent.message.get());
  return absl::IsUnavailable(status) ? absl::OkStatus() : status;
}

}  // namespace lockstep::transport
