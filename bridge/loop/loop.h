#ifndef LOCKSTEP_BRIDGE_LOOP_LOOP_H_
#define LOCKSTEP_BRIDGE_LOOP_LOOP_H_

// The bridge at run time: one thread that owns every socket, hands what arrives to the core in
// batches, and carries out what the core says.
//
// A batch is everything that is readable, within the limits below. Its order is that of
// bridge/core/core.h: messages first, a Tick after them; then one Ledger::Append of all records,
// synced; only then the sends, then the effects (I3). Under load a batch grows while the one
// before it is being synced, so that decisions share an fsync.
//
// A ledger that fails ends the loop: nothing of the batch is acknowledged, nothing is tried
// again, and the process must exit with an error.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(auto loop, Loop::Create(std::move(options), std::move(ledger)));
//   absl::Status ended = loop->Run();   // OK after SIGTERM was drained

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bridge/core/core.h"
#include "bridge/ledger/ledger.h"
#include "bridge/loop/control_socket.h"
#include "bridge/loop/log.h"
#include "bridge/loop/peer_table.h"
#include "bridge/loop/refusal_meter.h"
#include "bridge/loop/spool.h"
#include "bridge/loop/worker.h"
#include "bridge/transport/address.h"
#include "bridge/transport/arena_store.h"
#include "bridge/transport/bulk_server.h"
#include "bridge/transport/fd_server.h"

namespace lockstep::loop {

struct LoopOptions {
  // Addresses, keys, boot and incarnation are filled in by the loop.
  core::Config config;
  transport::Address listen;
  std::optional<ServerKeys> keys;  // tcp only, and needed there
  std::string state_dir;           // for the spool; the ledger's own folder
  // Where SIGTERM and SIGINT come from (BlockStopSignals); -1: nowhere. Outlives the loop.
  int stop_fd = -1;
  LogLevel log_level = LogLevel::kInfo;
};

// Gives random bytes to the core, a system call for many inputs.
class Entropy {
 public:
  std::array<uint8_t, 32> Take();

 private:
  std::array<uint8_t, 4096> pool_{};
  size_t used_ = sizeof(pool_);
};

class Loop {
 public:
  // Below kMaxRecentDecisions: the ledger does not know a batch's decisions yet.
  static constexpr size_t kMaxMessagesPerBatch = 1'024;
  static constexpr size_t kMaxBytesPerBatch = size_t{64} << 20;
  static constexpr size_t kMaxVerdictsPerBatch = 64;
  // Batches that may go on filling up while a Tick is due.
  static constexpr int kMaxBatchesBeforeTick = 16;
  // A Tick later than this finds a bridge that was stopped: what peers said meanwhile gets
  // this long to come in before anybody is judged late.
  static constexpr int64_t kLateTickMs = 500;
  static constexpr int64_t kLateGraceMs = 100;

  // Opens every socket and starts the workers. Errors as ControlSocket::Bind.
  static absl::StatusOr<std::unique_ptr<Loop>> Create(LoopOptions options,
                                                      std::unique_ptr<ledger::Ledger> ledger);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Until the core is done (a drained SIGTERM, an operator's shutdown): OK. Cancelled on a
  // second signal; the ledger's error when it failed.
  absl::Status Run();

  const core::Config& config() const { return options_.config; }
  const std::string& state_dir() const { return options_.state_dir; }

 private:
  struct EventsWanted {
    core::PeerId peer = 0;
    uint64_t reply_to = 0;
    EventsRequest request;
  };
  struct Batch {
    core::Outputs outputs;
    std::vector<EventsWanted> events;
    std::vector<core::PeerId> leaving;  // said Goodbye
  };

  Loop(LoopOptions options, std::unique_ptr<ledger::Ledger> ledger);
  absl::Status Open();

  // loop.cc: what arrives.
  absl::Status Wait();
  int64_t WaitMs() const;
  absl::Status TakeSignals();
  void TakeFollowUps();
  void TakeMailbox();
  void TakeVerdicts();
  void TakeDescriptors();
  void TakeBulk();
  absl::Status TakeControl();
  void TickIfDue();
  void Step(core::InputBody body);
  core::Time Now() const;

  // loop_frames.cc: one frame of the control port.
  absl::Status HandleFrame(const wire::RoutedFrame& routed);
  absl::Status HandleEnvelope(core::PeerId peer, const std::string& name, Envelope envelope);

  // loop_commit.cc: what the core said.
  absl::Status Commit();
  void LogEvents() const;
  void Send(core::PeerId peer, const Envelope& envelope);
  absl::Status AnswerEvents(const EventsWanted& wanted);
  void Carry(const core::Effect& effect);
  void Create(const core::CreateArena& create);
  void Close(uint64_t arena_id);
  void Start(const core::DigestWork& work);
  void Start(const core::CompareWork& work);
  void Start(const core::SpoolWork& work);
  void Start(const core::SpoolDrop& drop);
  void Start(const core::SpoolLoad& load);

  LoopOptions options_;
  const Log log_;
  const Spool spool_;
  const std::unique_ptr<ledger::Ledger> ledger_;
  Entropy entropy_;
  transport::ArenaStore store_;
  std::unique_ptr<ControlSocket> control_;
  std::optional<transport::FdServer> descriptors_;  // beside ipc only
  std::unique_ptr<transport::BulkServer> bulk_;
  std::unique_ptr<core::Core> core_;
  PeerTable peers_;
  RefusalMeter meter_;

  Batch batch_;
  std::deque<core::InputBody> follow_ups_;  // inputs that carrying out a batch gave rise to
  std::vector<int> readable_descriptors_;   // of descriptors_, by the newest Wait
  bool bulk_readable_ = false;
  bool control_has_more_ = false;
  int batches_since_due_ = 0;
  std::optional<int64_t> grace_until_ms_;
  bool draining_ = false;
  bool done_ = false;

  // Last, so that they end first.
  std::unique_ptr<Mailbox> mailbox_;
  std::unique_ptr<Worker> digests_;
  std::unique_ptr<Worker> disk_;
  std::unique_ptr<Worker> unmapping_;  // giving back a large arena takes long
};

}  // namespace lockstep::loop

#endif  // LOCKSTEP_BRIDGE_LOOP_LOOP_H_
