#ifndef LOCKSTEP_SAMPLER_CLIENT_ROUND_WORKER_H_
#define LOCKSTEP_SAMPLER_CLIENT_ROUND_WORKER_H_

// The sampler's round thread: installs a version, proves what is installed, switches. One round
// at a time; a newer RoundStart, an abort or a lost bridge ends the one that runs, and the
// version served before stays. Internal to sampler_client.
//
// The order of a switch: on_pause, on_flush_cache, flip, on_activate. The flush comes before the
// flip, so that no reader of the new version can meet a cached block of the old one; an engine
// that does not pause in on_pause must flush again in on_activate what its readers of the old
// version put there meanwhile. Nothing before the flip touches what is served, so whatever fails
// until then (also the flush) leaves the version before in place; on_resume tells the engine.
//
// (epoch, version) only grows here too (I4): a bridge that offers an older one than is served
// (another's state folder, a second bridge) is refused, whatever it says of itself.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bridge/transport/round_feed.h"
#include "bridge/transport/transport.h"
#include "policy/contract.h"
#include "policy/protocol.h"
#include "sampler_client/arena_holds.h"
#include "sampler_client/weight_slots.h"

namespace lockstep {

// As SamplerOptions has them.
struct RoundCallbacks {
  std::function<absl::Status(uint64_t version)> on_pause;
  std::function<absl::StatusOr<std::string>(uint64_t version)> on_flush_cache;
  std::function<absl::Status(const WeightsGuard& weights)> on_activate;
  std::function<void(uint64_t version)> on_resume;
};

class RoundWorker {
 public:
  struct Options {
    Contract contract;
    int threads = 1;
    RoundCallbacks callbacks;
    // Installers of the bridge that is there; errors say why a transport cannot be used.
    std::function<absl::StatusOr<std::unique_ptr<transport::Installer>>(TransportKind)> installer;
    // The run's name, which the digests are bound to.
    std::function<std::string()> run;
    std::function<void(Message)> post;
    // "receiving", "sealed", "verifying", "activating"; "" when a round ended without Live.
    std::function<void(const std::string& state)> on_step;
    // The new version is the one that readers get; nothing is confirmed yet.
    std::function<void(uint64_t version, uint64_t cache_epoch)> on_switched;
  };

  // Both outlive the worker. The owner of `slots` drops a hold for every version they give back.
  RoundWorker(Options options, WeightSlots& slots, ArenaHolds& holds);
  ~RoundWorker();
  RoundWorker(const RoundWorker&) = delete;
  RoundWorker& operator=(const RoundWorker&) = delete;

  // The session's thread calls these; none blocks.
  void Start(RoundStart start);
  void Progress(const RoundProgress& progress);
  void Key(const RoundKey& key);
  void Activate(const lockstep::Activate& activate);
  // Ends the running round; `round_id` 0: whichever it is.
  void Abort(uint64_t round_id, absl::Status why);
  // Another bridge than before is there: its installers are made anew. The one for shared memory
  // is opened at once, used or not, since over it the bridge sees the death of this process.
  void MeetBridge();
  // Readers get nothing from here on, until a later round.
  void Fence();

  // Ends the running round and the thread; what is called afterwards does nothing.
  void Stop();

 private:
  struct Round {
    const RoundStart start;
    transport::RoundFeed feed;
    std::optional<RoundKey> key;
    bool activate = false;
    bool ended = false;  // aborted, or another has begun

    Round(RoundStart s, ArenaHolds& holds);
    ~Round() { holds_.Drop(Arena()); }
    // 0 over TCP: only a mapping holds the bridge's arena.
    uint64_t Arena() const;

   private:
    ArenaHolds& holds_;
  };

  void Run();
  void OpenLines();
  // The rest runs on the worker's thread. An error with the round not ended is reported to the
  // bridge as `code`.
  void Play(Round& round);
  // False: something was found and reported.
  bool Admissible(const Round& round);
  bool Receive(Round& round);
  bool Verify(Round& round);
  void PutInPlace(Round& round);
  absl::Status Install(Round& round);
  absl::Status Prove(Round& round);
  absl::StatusOr<std::string> Flush(const Round& round);
  absl::Status Switch(Round& round, std::string receipt);
  void Deactivate();
  absl::Status WaitFor(Round& round, const std::function<bool()>& holds);
  absl::StatusOr<transport::Installer*> InstallerFor(TransportKind kind);
  void Fail(const Round& round, RefusalCode code, const absl::Status& why);
  bool Ended(const Round& round) const;

  const Options options_;
  WeightSlots& slots_;
  ArenaHolds& holds_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool stopped_ = false;
  bool fence_ = false;
  bool meet_bridge_ = false;
  std::shared_ptr<Round> next_;
  std::shared_ptr<Round> current_;

  // The thread's own.
  std::unique_ptr<transport::Installer> shm_;
  std::unique_ptr<transport::Installer> tcp_;
  uint64_t cache_epoch_ = 0;
  uint64_t served_arena_ = 0;  // that readers get; 0: none, or memory of our own
  uint64_t served_epoch_ = 0;
  uint64_t served_version_ = 0;

  std::thread thread_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_CLIENT_ROUND_WORKER_H_
