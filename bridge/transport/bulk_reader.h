#ifndef LOCKSTEP_BRIDGE_TRANSPORT_BULK_READER_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_BULK_READER_H_

// A sampler's pull of an arena from the bulk port, in chunks with credit. One thread.
//
// Example:
//   auto reader = BulkReader::Connect(endpoint, BulkOptions());
//   uint64_t done = 0;
//   absl::Status status = reader->Fetch(arena_id, buffer, feed, done);
//   // After Unavailable: connect again and Fetch with the same `done` and buffer.

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "bridge/transport/bulk_client.h"
#include "bridge/transport/round_feed.h"

namespace lockstep::transport {

class BulkReader {
 public:
  static absl::StatusOr<BulkReader> Connect(const BulkEndpoint& endpoint,
                                            const BulkOptions& options);

  // Fills into[done, end), asking only for bytes below the feed's mark and waiting while it
  // rises. `done` ends as the length of the prefix that is in place, checked against damage.
  // The feed's status when cancelled; Unavailable when a chunk stays without an answer;
  // DataLoss when one stays damaged; the bridge's refusal otherwise.
  absl::Status Fetch(uint64_t arena_id, absl::Span<uint8_t> into, RoundFeed& feed, uint64_t& done);

 private:
  struct Asked {
    uint64_t offset = 0;
    absl::Time since;
  };
  struct Retry {
    uint64_t offset = 0;
    absl::Time not_before;
  };
  struct Transfer {
    uint64_t arena_id = 0;
    absl::Span<uint8_t> into;
    uint64_t next = 0;                      // the first byte not asked for yet
    std::map<uint64_t, Asked> asked;        // by request id
    std::deque<Retry> again;                // to be asked for once more
    std::map<uint64_t, int> attempts;       // by offset, of chunks that went wrong
    std::map<uint64_t, uint64_t> in_place;  // start -> end, beyond `done`
  };

  BulkReader(BulkConnection connection, const BulkOptions& options)
      : connection_(std::move(connection)), options_(options) {}

  absl::Status Ask(Transfer& transfer, uint64_t ready);
  absl::Status AskFor(Transfer& transfer, uint64_t offset);
  absl::Status Take(Transfer& transfer, BulkConnection::Answer& answer, uint64_t& done);
  absl::Status AskAgainForStalled(Transfer& transfer);
  absl::Status GoneWrong(Transfer& transfer, uint64_t offset, absl::Status last);
  uint64_t ChunkLength(const Transfer& transfer, uint64_t offset) const;

  BulkConnection connection_;
  BulkOptions options_;
  uint64_t next_request_id_ = 1;
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_BULK_READER_H_
