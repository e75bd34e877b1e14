#ifndef LOCKSTEP_SAMPLER_CLIENT_SAMPLER_H_
#define LOCKSTEP_SAMPLER_CLIENT_SAMPLER_H_

// The sampler's side of Lockstep: state a contract, receive versions into the slot that no
// reader uses, prove what is installed, switch, and submit rollouts for admission.
//
// Example:
//   SamplerOptions options;
//   options.name = "s1";
//   options.contract_json = contract_json;
//   options.on_flush_cache = [&](uint64_t version) { return engine.FlushPrefixCache(version); };
//   LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Sampler> sampler, Sampler::Connect(options));
//   WeightsGuard weights = sampler->Weights();  // one version for as long as the guard lives

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bridge/transport/client_session.h"
#include "policy/manifest.h"
#include "policy/protocol.h"
#include "sampler_client/weight_slots.h"

namespace lockstep {

// What the sampler is doing, for its own logs.
struct SamplerState {
  std::string state;  // as SamplerStatus::state
  std::optional<uint64_t> live_version;
  std::string contract_short;
  std::vector<Refusal> reasons;  // of a refusal or a fence
};

struct SamplerOptions {
  transport::BridgeAddress bridge;  // where and as whom
  std::string name = "sampler";
  std::string contract_json;
  // What the engine serves; absent: whatever the trainer states.
  std::optional<Manifest> manifest;
  // Those it may use, most wanted first.
  std::vector<TransportKind> transports = {TransportKind::kShm, TransportKind::kTcp};
  int threads = 0;  // for digests and the probe; 0: one per processor, at most kMaxThreads

  // Called in this order on the client's round thread. An error of the first two fails the round
  // and the version served before stays; an error of on_activate leaves readers without a
  // version until a round succeeds. All may be empty but on_flush_cache.
  //
  // Stop starting requests (or keep on: readers hold their guards either way).
  std::function<absl::Status(uint64_t version)> on_pause;
  // Drop prefix and radix caches of older versions; returns a receipt that says what was
  // flushed (never empty). It comes before the switch, so an engine that went on after on_pause
  // flushes once more in on_activate what it has cached since.
  std::function<absl::StatusOr<std::string>(uint64_t version)> on_flush_cache;
  // New readers get `weights` from here on.
  std::function<absl::Status(const WeightsGuard& weights)> on_activate;
  // After on_pause was called, when the switch to `version` will not happen: go on with what was
  // served.
  std::function<void(uint64_t version)> on_resume;

  // The bridge has confirmed: rollouts of this version will be judged.
  std::function<void(uint64_t version)> on_live;
  // Any change of SamplerState.
  std::function<void(const SamplerState&)> on_state;
};

inline constexpr int kMaxSamplerThreads = 16;
inline constexpr size_t kMaxKeptTickets = 1'024;

// Thread-safe.
class Sampler {
 public:
  // Connects and registers. A contract that differs from the trainer's is not an error here:
  // the sampler stays registered as refused (state().reasons, on_state) until one of the two
  // registers anew. Unavailable when there is no bridge; InvalidArgument for bad options.
  static absl::StatusOr<std::unique_ptr<Sampler>> Connect(SamplerOptions options);

  // Leaves the bridge. Guards must be gone.
  ~Sampler();

  // Pins the live version; empty() while there is none. Cheap; hold it for one forward pass
  // or one request, not for ever: an old slot is freed when its last guard is gone.
  WeightsGuard Weights() const;

  // Submits a rollout; what is not set is filled in: sampler, incarnation and contract of this
  // one, cache epoch and ticket as they came with Live of the last span's version (of the last
  // kMaxKeptTickets; so submit a version's rollouts after on_live), `content` as
  // rollout_content.h says and the hex of it as id. At level `tokens` the first answer may be
  // `pending`; the future holds the final decision. While no bridge is there it waits for one.
  std::future<absl::StatusOr<Decision>> SubmitRollout(Rollout rollout);

  // Waits until `version` or a newer one is live here; DeadlineExceeded otherwise.
  absl::Status WaitLive(uint64_t version, absl::Duration timeout);

  SamplerState state() const;

 private:
  class Impl;
  explicit Sampler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_CLIENT_SAMPLER_H_
