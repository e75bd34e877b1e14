#ifndef LOCKSTEP_BRIDGE_LOOP_WORKER_H_
#define LOCKSTEP_BRIDGE_LOOP_WORKER_H_

// What takes long and needs no decision: digests and comparisons of kept copies, and the
// spool's files. A worker is one thread with a queue; results come back to the loop as the
// core's inputs, in a mailbox that it polls.
//
// Example:
//   Mailbox mailbox(std::move(eventfd));
//   Worker worker(mailbox);
//   worker.Do([arena, work] { return core::InputBody(Digest("run", work, *arena, 2)); });
//   ... poll mailbox.fd(); when readable:
//   for (core::InputBody& body : mailbox.Take()) Step(std::move(body));

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "bridge/core/core.h"
#include "bridge/loop/spool.h"
#include "bridge/transport/arena_store.h"
#include "bridge/transport/unique_fd.h"

namespace lockstep::loop {

using SharedArena = std::shared_ptr<const transport::StoredArena>;

// The jobs. A null arena is one that is gone: the answer is that of damaged bytes.
core::DigestDone Digest(const std::string& run, const core::DigestWork& work,
                        const SharedArena& arena, int threads);
core::CompareDone Compare(const core::CompareWork& work, const SharedArena& a,
                          const SharedArena& b);
core::SpoolDone WriteSpool(const Spool& spool, const core::SpoolWork& work,
                           const SharedArena& arena);
// `arena` is one of the bridge's own.
core::SpoolLoaded LoadSpool(const Spool& spool, const core::SpoolLoad& work,
                            const SharedArena& arena);

// Results on their way to the loop. Put from any thread; the rest is the loop's.
class Mailbox {
 public:
  static absl::StatusOr<std::unique_ptr<Mailbox>> Create();

  // Readable while something is in it.
  int fd() const { return wake_.get(); }
  void Put(core::InputBody body);
  std::vector<core::InputBody> Take();

 private:
  explicit Mailbox(transport::UniqueFd wake) : wake_(std::move(wake)) {}

  transport::UniqueFd wake_;  // eventfd
  std::mutex mutex_;
  std::vector<core::InputBody> bodies_;  // guarded by mutex_
};

class Worker {
 public:
  // Nothing to tell the loop: nullopt.
  using Job = std::function<std::optional<core::InputBody>()>;

  // `mailbox` outlives the worker.
  explicit Worker(Mailbox& mailbox);
  // Finishes the job in hand and drops those that wait.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // In the order of the calls.
  void Do(Job job);

 private:
  void Run();

  Mailbox& mailbox_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // guarded by mutex_
  bool stop_ = false;     // guarded by mutex_
  std::thread thread_;
};

}  // namespace lockstep::loop

#endif  // LOCKSTEP_BRIDGE_LOOP_WORKER_H_
