#ifndef LOCKSTEP_BRIDGE_TRANSPORT_BULK_WRITER_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_BULK_WRITER_H_

// A trainer's upload into an arena of the bridge through the bulk port, in chunks with credit
// and acknowledgements. At most `credit` chunks are in memory. One thread.
//
// Example:
//   auto writer = BulkWriter::Connect(endpoint, BulkOptions());
//   writer->Begin(arena_id, layout.total_bytes);
//   writer->Write(layout.offsets[i], tensor_bytes);   // ascending offsets; gaps become zeros
//   absl::Status status = writer->Finish(feed);       // every byte is at the bridge

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "bridge/transport/bulk_client.h"
#include "bridge/transport/round_feed.h"

namespace lockstep::transport {

class BulkWriter {
 public:
  static absl::StatusOr<BulkWriter> Connect(const BulkEndpoint& endpoint,
                                            const BulkOptions& options);

  // Starts an upload; what was left of another is forgotten.
  absl::Status Begin(uint64_t arena_id, uint64_t total_bytes);

  // Offsets ascend and do not overlap. Blocks while the credit is used up; errors as of Finish.
  absl::Status Write(uint64_t offset, absl::Span<const uint8_t> bytes, RoundFeed& feed);

  // Sends the rest, zeros to the end, and waits for every acknowledgement. The feed's status
  // when cancelled; Unavailable when the bridge stops answering; DataLoss when a chunk stays
  // damaged; the bridge's refusal otherwise.
  absl::Status Finish(RoundFeed& feed);

  // Below it, every byte is at the bridge.
  uint64_t mark() const { return mark_; }

 private:
  struct Sent {
    wire::ZmqMessage message;
    uint64_t offset = 0;
    absl::Time since;
    int attempts = 0;
  };

  BulkWriter(BulkConnection connection, const BulkOptions& options)
      : connection_(std::move(connection)), options_(options) {}

  // Appends at position_; zeros when `bytes` is null.
  absl::Status Append(const uint8_t* bytes, uint64_t count, RoundFeed& feed);
  absl::Status OpenChunk();
  absl::Status SendChunk(RoundFeed& feed);
  // Takes acknowledgements until at most `limit` chunks are under way.
  absl::Status WaitForCredit(size_t limit, RoundFeed& feed);
  absl::Status Take(const BulkHeader& answer);
  absl::Status SendAgain(Sent& sent, absl::Status last);

  BulkConnection connection_;
  BulkOptions options_;
  uint64_t next_request_id_ = 1;
  uint64_t arena_id_ = 0;
  uint64_t total_bytes_ = 0;
  uint64_t position_ = 0;  // of the next byte in the arena
  uint64_t mark_ = 0;
  wire::ZmqMessage chunk_;  // header space, then chunk_length_ bytes, being filled
  uint64_t chunk_length_ = 0;
  uint64_t chunk_filled_ = 0;
  std::map<uint64_t, Sent> sent_;  // by request id
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_BULK_WRITER_H_
