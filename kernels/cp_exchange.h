#ifndef LOCKSTEP_KERNELS_CP_EXCHANGE_H_
#define LOCKSTEP_KERNELS_CP_EXCHANGE_H_

// What context-parallel programs ask of the ranks' connection. The programs move bytes only through
// it, so that threads here and NCCL elsewhere run the same program.
//
// Example, simulated ranks:
//   LocalCpGroup group(cp);
//   ParallelFor(cp, cp, [&](size_t rank, size_t) {
//     absl::Status status = RankProgram(inputs[rank], group.Rank(rank));
//     if (!status.ok()) group.Abort(status);
//   });

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace lockstep::kernels {

// One rank's end. Spans lie in the memory the program computes in. All ranks of a group make the
// same collective calls in the same order.
class CpExchange {
 public:
  virtual ~CpExchange() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Point to point, in order for each pair of ranks. A program never has two ranks that wait to
  // send to each other.
  virtual absl::Status Send(int to, absl::Span<const uint8_t> data) = 0;
  // Fills `data`; DataLoss when what was sent has another length.
  virtual absl::Status Receive(int from, absl::Span<uint8_t> data) = 0;

  // `all` is size() times as long as `mine`; rank r's part lands at place r.
  virtual absl::Status AllGather(absl::Span<const uint8_t> mine, absl::Span<uint8_t> all) = 0;
  // Every rank ends with root's bytes.
  virtual absl::Status Broadcast(int root, absl::Span<uint8_t> data) = 0;
};

// Ranks as threads of this process. Sends are buffered.
class LocalCpGroup {
 public:
  explicit LocalCpGroup(int size, std::chrono::milliseconds timeout = std::chrono::minutes(10));

  CpExchange& Rank(int rank) { return *ranks_[static_cast<size_t>(rank)]; }

  // Every present and later wait fails with `status`; the first call counts.
  void Abort(const absl::Status& status);

 private:
  class LocalRank;

  absl::Status Put(int from, int to, absl::Span<const uint8_t> data);
  absl::Status Take(int from, int to, absl::Span<uint8_t> data);

  const std::chrono::milliseconds timeout_;
  // Not absl::Mutex: the system's Abseil is not instrumented, so the thread sanitizer would not see
  // it. The mutex guards boxes_ and aborted_.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<std::vector<uint8_t>>> boxes_;
  absl::Status aborted_;
  std::vector<std::unique_ptr<CpExchange>> ranks_;
};

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_CP_EXCHANGE_H_
