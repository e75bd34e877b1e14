#ifndef LOCKSTEP_TRAINER_CLIENT_TRAINER_H_
#define LOCKSTEP_TRAINER_CLIENT_TRAINER_H_

// The trainer's side of Lockstep: state a contract and a manifest once, then publish
// versions. Tensors are copied out once, digested in the same pass, and may change again as
// soon as `on_released` is called, long before the samplers are live.
//
// Example:
//   TrainerOptions options;
//   options.contract_json = contract_json;   // policy/resolve.h, or `lockstep contract resolve`
//   options.manifest = manifest;
//   LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Trainer> trainer, Trainer::Connect(options));
//   auto outcome = trainer->Publish(step, tensors);
//   ...
//   absl::StatusOr<PublishOutcome> result = outcome.get();  // who is live, who failed and why

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bridge/transport/client_session.h"
#include "policy/manifest.h"
#include "policy/protocol.h"

namespace lockstep {

struct TrainerOptions {
  transport::BridgeAddress bridge;  // where and as whom
  std::string name = "trainer";
  std::string contract_json;
  Manifest manifest;
  SourceRole source_role = SourceRole::kActor;
  // Absent: shared memory when the bridge is on this host, else TCP.
  std::optional<TransportKind> transport;
  // For copying and digesting; 0: one per processor. At most kMaxTrainerThreads.
  int threads = 0;
};

inline constexpr int kMaxTrainerThreads = 16;

// One tensor's bytes: row-major, contiguous, little-endian, as the manifest describes it.
struct TensorBytesView {
  absl::string_view name;
  absl::Span<const uint8_t> bytes;
};

struct PublishOptions {
  // Called on a client thread once the tensors are no longer read and may change: once for
  // every publish, also one that failed, before its future is ready.
  std::function<void()> on_released;
};

// Thread-safe. All callbacks run on the client's own threads.
class Trainer {
 public:
  // Connects, registers and takes an epoch. Unavailable when there is no bridge;
  // FailedPrecondition with the refusals' text when the bridge refuses the registration.
  static absl::StatusOr<std::unique_ptr<Trainer>> Connect(TrainerOptions options);

  // Leaves the bridge; publishes in flight end with Cancelled.
  ~Trainer();

  // Publishes `tensors`, which must be exactly the manifest's synced tensors, as `version`.
  // One publish runs at a time; others wait in order. The future holds the outcome per sampler
  // once the version is durable and every agreed sampler is live or failed.
  // Errors: InvalidArgument (tensors do not fit the manifest, tied tensors differ),
  // FailedPrecondition (refused: version backwards, stale epoch, ...; last_refusals() has them),
  // Unavailable (the bridge was lost and the bytes are no longer held), Cancelled.
  // While no bridge is there a publish waits for one. One whose bridge is restarted under it is
  // started again by itself: from the tensors until they are released, from the copy in shared
  // memory after that; over TCP there is none, and a restart between release and seal is
  // Unavailable. A trainer whose epoch a newer one took stays refused until it connects anew.
  std::future<absl::StatusOr<PublishOutcome>> Publish(uint64_t version,
                                                      absl::Span<const TensorBytesView> tensors,
                                                      PublishOptions options = {});

  // The trainer's log-probabilities (float32, one per completion token) of a rollout at level
  // `tokens`; the future holds the decision.
  std::future<absl::StatusOr<Decision>> SubmitRescore(const std::string& rollout_id,
                                                      absl::Span<const float> logprobs);

  uint64_t epoch() const;
  std::string contract_short() const;
  TransportKind transport() const;
  // Of the last call that failed with FailedPrecondition.
  std::vector<Refusal> last_refusals() const;

 private:
  class Impl;
  explicit Trainer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TRAINER_CLIENT_TRAINER_H_
