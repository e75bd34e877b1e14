#include "bridge/transport/bulk_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"

namespace lockstep::transport {
namespace {

// How soon a cancelled feed or a raised mark is noticed while nothing arrives.
constexpr absl::Duration kPoll = absl::Milliseconds(5);
// After "not yet": the bridge's mark lags the control channel's by a turn of its loop.
constexpr absl::Duration kNotYetPause = absl::Milliseconds(2);

}  // namespace

absl::StatusOr<BulkReader> BulkReader::Connect(const BulkEndpoint& endpoint,
                                               const BulkOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckBulkOptions(options));
  LOCKSTEP_ASSIGN_OR_RETURN(BulkConnection connection, BulkConnection::Open(endpoint));
  return BulkReader(std::move(connection), options);
}

absl::Status BulkReader::Fetch(uint64_t arena_id, absl::Span<uint8_t> into, RoundFeed& feed,
                               uint64_t& done) {
  Transfer transfer;
  transfer.arena_id = arena_id;
  transfer.into = into;
  transfer.next = done;
  while (done < into.size()) {
    if (feed.cancelled()) return feed.status();
    LOCKSTEP_RETURN_IF_ERROR(Ask(transfer, feed.bytes_ready()));
    LOCKSTEP_ASSIGN_OR_RETURN(std::optional<BulkConnection::Answer> answer,
                              connection_.Receive(transfer.again.empty() ? kPoll : kNotYetPause));
    if (answer.has_value()) {
      LOCKSTEP_RETURN_IF_ERROR(Take(transfer, *answer, done));
    } else {
      LOCKSTEP_RETURN_IF_ERROR(AskAgainForStalled(transfer));
    }
  }
  return absl::OkStatus();
}

uint64_t BulkReader::ChunkLength(const Transfer& transfer, uint64_t offset) const {
  return std::min(options_.chunk_bytes, transfer.into.size() - offset);
}

absl::Status BulkReader::Ask(Transfer& transfer, uint64_t ready) {
  const absl::Time now = transfer.again.empty() ? absl::InfinitePast() : absl::Now();
  while (static_cast<int>(transfer.asked.size()) < options_.credit && !transfer.again.empty() &&
         transfer.again.front().not_before <= now) {
    const uint64_t offset = transfer.again.front().offset;
    transfer.again.pop_front();
    LOCKSTEP_RETURN_IF_ERROR(AskFor(transfer, offset));
  }
  // Chunks that wait to be asked for again count, so that a stalled bridge is not flooded.
  while (transfer.asked.size() + transfer.again.size() < static_cast<size_t>(options_.credit) &&
         transfer.next < transfer.into.size()) {
    const uint64_t end = transfer.next + ChunkLength(transfer, transfer.next);
    if (end > ready) break;
    LOCKSTEP_RETURN_IF_ERROR(AskFor(transfer, transfer.next));
    transfer.next = end;
  }
  return absl::OkStatus();
}

absl::Status BulkReader::AskFor(Transfer& transfer, uint64_t offset) {
  BulkHeader header;
  header.kind = BulkKind::kGetChunk;
  header.request_id = next_request_id_++;
  header.arena_id = transfer.arena_id;
  header.offset = offset;
  header.length = ChunkLength(transfer, offset);
  header.incarnation = connection_.incarnation();
  const absl::Status sent = connection_.Send(header);
  // A full queue is a bridge that is not there: the stall timeout decides.
  if (!sent.ok() && !absl::IsUnavailable(sent)) return sent;
  transfer.asked[header.request_id] = {offset, absl::Now()};
  return absl::OkStatus();
}

absl::Status BulkReader::Take(Transfer& transfer, BulkConnection::Answer& answer, uint64_t& done) {
  const BulkHeader& header = answer.header;
  const auto asked = transfer.asked.find(header.request_id);
  // An answer that came after its request was given up, or to an earlier transfer.
  if (asked == transfer.asked.end()) return absl::OkStatus();
  const uint64_t offset = asked->second.offset;
  transfer.asked.erase(asked);
  if (header.arena_id != transfer.arena_id || header.offset != offset ||
      header.length != ChunkLength(transfer, offset)) {
    return GoneWrong(transfer, offset, absl::DataLossError("the answer is for another chunk"));
  }
  switch (header.kind) {
    case BulkKind::kRefused:
      return RefusedStatus(header);
    case BulkKind::kNotYet:
      transfer.again.push_back({offset, absl::Now() + kNotYetPause});
      return absl::OkStatus();
    case BulkKind::kChunk:
      break;
    default:
      return GoneWrong(transfer, offset, absl::DataLossError("the answer is of a wrong kind"));
  }
  const absl::Span<uint8_t> place = transfer.into.subspan(offset, header.length);
  std::memcpy(place.data(), answer.payload.bytes().data(), place.size());
  if (PayloadHash(place) != header.value) {
    return GoneWrong(transfer, offset, absl::DataLossError("its payload was damaged on its way"));
  }
  transfer.attempts.erase(offset);
  transfer.in_place[offset] = offset + header.length;
  while (!transfer.in_place.empty() && transfer.in_place.begin()->first <= done) {
    done = std::max(done, transfer.in_place.begin()->second);
    transfer.in_place.erase(transfer.in_place.begin());
  }
  return absl::OkStatus();
}

absl::Status BulkReader::AskAgainForStalled(Transfer& transfer) {
  const absl::Time limit = absl::Now() - options_.stall_timeout;
  for (auto it = transfer.asked.begin(); it != transfer.asked.end();) {
    if (it->second.since > limit) {
      ++it;
      continue;
    }
    const uint64_t offset = it->second.offset;
    it = transfer.asked.erase(it);
    LOCKSTEP_RETURN_IF_ERROR(GoneWrong(
        transfer, offset, absl::UnavailableError("the bulk port does not answer in time")));
  }
  return absl::OkStatus();
}

absl::Status BulkReader::GoneWrong(Transfer& transfer, uint64_t offset, absl::Status last) {
  if (++transfer.attempts[offset] > options_.retries) {
    return absl::Status(
        last.code(), absl::StrCat("chunk at ", offset, " of arena ", transfer.arena_id, " failed ",
                                  options_.retries + 1, " times: ", last.message()));
  }
  transfer.again.push_back({offset, absl::InfinitePast()});
  return absl::OkStatus();
}

}  // namespace lockstep::transport
