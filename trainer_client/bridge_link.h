#ifndef LOCKSTEP_TRAINER_CLIENT_BRIDGE_LINK_H_
#define LOCKSTEP_TRAINER_CLIENT_BRIDGE_LINK_H_

// A trainer's session with the bridge as its publishing thread sees it: which epoch it may
// write, whether the bridge was lost since, and questions that wait for their answer. Internal
// to trainer_client.
//
// Example, the publishing thread:
//   LOCKSTEP_ASSIGN_OR_RETURN(const Standing standing, link.WaitRegistered());
//   absl::StatusOr<Message> answer = link.Ask(offer);
//   if (!answer.ok() && link.LostSince(standing)) ...;   // start the publish again

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bridge/transport/client_session.h"
#include "bridge/transport/round_feed.h"
#include "policy/protocol.h"

namespace lockstep {

// What the bridge granted, and when: both counts grow and are compared with later ones.
struct Standing {
  uint64_t epoch = 0;
  std::string contract_short;
  uint64_t losses = 0;   // sessions that ended
  uint64_t bridges = 0;  // bridges met that knew nothing of this process
};

class BridgeLink {
 public:
  // `on_drop` runs on the session's thread with a DropArena's number.
  BridgeLink(RegisterTrainer registration, std::function<void(uint64_t)> on_drop)
      : registration_(std::move(registration)), on_drop_(std::move(on_drop)) {}
  ~BridgeLink() { Close(); }
  BridgeLink(const BridgeLink&) = delete;
  BridgeLink& operator=(const BridgeLink&) = delete;

  // Errors as Trainer::Connect.
  absl::Status Open(transport::SessionOptions options);

  // Ends every wait with Cancelled; thread-safe. The session stays.
  void Stop();
  // Says Goodbye; nobody may be waiting or ask any more.
  void Close() { session_.reset(); }

  // Waits while there is no bridge. FailedPrecondition when it refuses this trainer.
  absl::StatusOr<Standing> WaitRegistered();

  bool LostSince(const Standing& standing) const;
  // Waits until LostSince; Cancelled when stopped.
  absl::Status WaitLost(const Standing& standing);

  // Asks once and waits: never sent again by itself, Unavailable when the bridge was lost
  // meanwhile. A refusal is FailedPrecondition with its text; last_refusals() has it.
  absl::StatusOr<Message> Ask(Message message);

  void Post(Message message) { session_->Post(std::move(message)); }

  std::future<absl::StatusOr<Decision>> Rescore(const std::string& rollout_id,
                                                absl::Span<const float> logprobs);

  // The transfer that a lost bridge or Stop cancels; nullptr: none. It must outlive its place.
  void SetFeed(transport::RoundFeed* feed);

  Standing standing() const;
  std::vector<Refusal> last_refusals() const;
  void Remember(const std::vector<Refusal>& refusals);

  transport::ClientSession& session() { return *session_; }

 private:
  transport::SessionHooks Hooks();
  std::optional<Message> Registration() const;
  void OnRegistered(const Message& answer);
  void OnRefused(const Refused& refused);
  void OnBridge(const absl::Status& status, bool new_bridge);

  const RegisterTrainer registration_;
  const std::function<void(uint64_t)> on_drop_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool stopped_ = false;
  bool registered_ = false;
  absl::Status refused_;  // why registered_ will not become true by itself
  // Another trainer took the epoch. This one must not take it back by itself, which it would by
  // registering with the next bridge.
  bool superseded_ = false;
  Standing standing_;
  std::vector<Refusal> last_refusals_;
  transport::RoundFeed* feed_ = nullptr;

  // Last: its thread uses the rest.
  std::unique_ptr<transport::ClientSession> session_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TRAINER_CLIENT_BRIDGE_LINK_H_
