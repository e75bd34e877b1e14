#include "sampler_client/sampler.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bridge/transport/probe_runner.h"
#include "bridge/transport/shm.h"
#include "bridge/transport/tcp.h"
#include "policy/contract.h"
#include "policy/status_macros.h"
#include "sampler_client/arena_holds.h"
#include "sampler_client/rollout_content.h"
#include "sampler_client/round_worker.h"

namespace lockstep {
namespace {

constexpr absl::Duration kDescriptorTimeout = absl::Seconds(10);

int ThreadsOf(int asked) {
  const int most = asked > 0 ? asked : static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(most, 1, kMaxSamplerThreads);
}

absl::StatusOr<Contract> ContractOf(const SamplerOptions& options) {
  ContractReading reading = ReadContract(options.contract_json);
  if (options.manifest.has_value()) {
    for (Refusal& refusal : CheckManifest(*options.manifest)) {
      reading.refusals.push_back(std::move(refusal));
    }
  }
  if (!reading.refusals.empty()) {
    return absl::InvalidArgumentError(FormatRefusals(reading.refusals));
  }
  if (!options.on_flush_cache) {
    return absl::InvalidArgumentError(
        "on_flush_cache is empty; without its receipt no version goes live, so set it");
  }
  if (options.transports.empty()) {
    return absl::InvalidArgumentError("no transport is allowed; name shm, tcp or both");
  }
  return *std::move(reading.contract);
}

}  // namespace

class Sampler::Impl {
 public:
  Impl(SamplerOptions options, RegisterSampler registration)
      : options_(std::move(options)),
        registration_(std::move(registration)),
        holds_([this](uint64_t arena_id) { Post(ReleaseArena{arena_id}); }),
        slots_([this](uint64_t, uint64_t arena_id) { holds_.Drop(arena_id); }) {}

  ~Impl() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closing_ = true;
      changed_.notify_all();
    }
    // The session's thread goes on calling the worker until the session has ended.
    worker_->Stop();
    slots_.Deactivate();
    std::unique_ptr<transport::ClientSession> session;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      session = std::move(session_);
    }
    session.reset();
  }

  absl::Status Open(Contract contract) {
    RoundWorker::Options worker;
    worker.contract = std::move(contract);
    worker.threads = ThreadsOf(options_.threads);
    worker.callbacks = {options_.on_pause, options_.on_flush_cache, options_.on_activate,
                        options_.on_resume};
    worker.installer = [this](TransportKind kind) { return MakeInstaller(kind); };
    worker.run = [this] {
      transport::ClientSession* session = Session();
      return session == nullptr ? std::string() : session->welcome().run;
    };
    worker.post = [this](Message message) { Post(std::move(message)); };
    worker.on_step = [this](const std::string& step) { Change([&] { step_ = step; }); };
    worker.on_switched = [this](uint64_t version, uint64_t cache_epoch) {
      Change([&] {
        live_.reset();
        switched_ = {version, cache_epoch};
      });
    };
    worker_ = std::make_unique<RoundWorker>(std::move(worker), slots_, holds_);

    transport::SessionOptions session;
    session.bridge = options_.bridge;
    session.role = PeerRole::kSampler;
    session.name = options_.name;
    absl::StatusOr<std::unique_ptr<transport::ClientSession>> opened =
        transport::ClientSession::Open(std::move(session), Hooks());
    if (!opened.ok()) return opened.status();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      session_ = *std::move(opened);
      ready_ = true;
    }
    changed_.notify_all();
    worker_->MeetBridge();
    return absl::OkStatus();
  }

  WeightsGuard Weights() { return slots_.Acquire(); }

  std::future<absl::StatusOr<Decision>> SubmitRollout(Rollout rollout) {
    Complete(rollout);
    auto promise = std::make_shared<std::promise<absl::StatusOr<Decision>>>();
    std::future<absl::StatusOr<Decision>> future = promise->get_future();
    session_->Request(
        lockstep::SubmitRollout{std::move(rollout)},
        [promise](absl::StatusOr<Message> answer) {
          if (!answer.ok()) return promise->set_value(answer.status());
          if (const Refused* refused = std::get_if<Refused>(&*answer)) {
            return promise->set_value(
                absl::FailedPreconditionError(transport::RefusalsText(*refused)));
          }
          DecisionReply* reply = std::get_if<DecisionReply>(&*answer);
          if (reply == nullptr) {
            return promise->set_value(absl::InternalError("the bridge answered no decision"));
          }
          promise->set_value(std::move(reply->decision));
        },
        {.resend = true, .is_last = [](const Message& answer) {
           const DecisionReply* reply = std::get_if<DecisionReply>(&answer);
           return reply == nullptr || reply->decision.kind != DecisionKind::kPending;
         }});
    return future;
  }

  absl::Status WaitLive(uint64_t version, absl::Duration timeout) {
    const absl::Time deadline = absl::Now() + timeout;
    std::unique_lock<std::mutex> lock(mutex_);
    const bool reached = changed_.wait_until(lock, absl::ToChronoTime(deadline), [&] {
      return closing_ || (live_.has_value() && live_->version >= version);
    });
    if (closing_) return absl::CancelledError("the sampler is being closed");
    if (reached) return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat("version ", version, " is not live after ",
                                                    absl::FormatDuration(timeout),
                                                    "; the sampler is ", StateLocked().state));
  }

  SamplerState state() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return StateLocked();
  }

 private:
  transport::SessionHooks Hooks() {
    transport::SessionHooks hooks;
    hooks.registration = [this](const Welcome&) -> std::optional<Message> {
      const std::lock_guard<std::mutex> lock(mutex_);
      RegisterSampler registration = registration_;
      registration.live = live_;
      return registration;
    };
    hooks.on_registered = [this](const Message& answer) { OnStanding(answer); };
    hooks.on_message = [this](const Message& message) { OnMessage(message); };
    hooks.on_bridge = [this](const absl::Status& status, bool new_bridge) {
      OnBridge(status, new_bridge);
    };
    return hooks;
  }

  // Registered or Refused: asked for, or because a trainer has registered meanwhile.
  void OnStanding(const Message& message) {
    if (const Registered* registered = std::get_if<Registered>(&message)) {
      Change([&] {
        // A claim that is taken up is not confirmed by a message; one that is not is followed by
        // a round.
        standing_ = registered->waiting ? "waiting" : live_.has_value() ? "live" : "assigned";
        contract_id_ = registered->contract_id;
        contract_short_ = registered->contract_short;
        reasons_.clear();
      });
    } else if (const Refused* refused = std::get_if<Refused>(&message)) {
      Change([&] {
        standing_ = "refused";
        reasons_ = refused->refusals;
      });
    }
  }

  void OnMessage(const Message& message) {
    if (const RoundStart* start = std::get_if<RoundStart>(&message)) {
      worker_->Start(*start);
    } else if (const RoundProgress* progress = std::get_if<RoundProgress>(&message)) {
      worker_->Progress(*progress);
    } else if (const RoundKey* key = std::get_if<RoundKey>(&message)) {
      worker_->Key(*key);
    } else if (const lockstep::Activate* activate = std::get_if<lockstep::Activate>(&message)) {
      worker_->Activate(*activate);
    } else if (const Live* live = std::get_if<Live>(&message)) {
      OnLive(*live);
    } else if (const RoundAbort* abort = std::get_if<RoundAbort>(&message)) {
      worker_->Abort(abort->round_id, absl::AbortedError(abort->refusal.message));
    } else if (const lockstep::Fence* fence = std::get_if<lockstep::Fence>(&message)) {
      worker_->Abort(0, absl::AbortedError(fence->refusal.message));
      worker_->Fence();
      Change([&] {
        standing_ = "quarantined";
        reasons_ = {fence->refusal};
        live_.reset();
        switched_ = {};
        step_.clear();
      });
    } else if (std::holds_alternative<Unfence>(message)) {
      Change([&] {
        standing_ = "assigned";
        reasons_.clear();
      });
    } else {
      OnStanding(message);
    }
  }

  void OnLive(const Live& live) {
    bool current = false;
    Change([&] {
      // Else of a round that was given up meanwhile: what is in place is not what it speaks of.
      current = switched_ == std::make_pair(live.version, live.cache_epoch);
      if (!current) return;
      live_ = LiveClaim{live.version, live.cache_epoch, live.ticket};
      tickets_[live.version] = *live_;
      if (tickets_.size() > kMaxKeptTickets) tickets_.erase(tickets_.begin());
      standing_ = "live";
      reasons_.clear();
      step_.clear();
    });
    if (current && options_.on_live) options_.on_live(live.version);
  }

  void OnBridge(const absl::Status& status, bool new_bridge) {
    if (!status.ok()) worker_->Abort(0, status);
    if (status.ok() && new_bridge) {
      worker_->Abort(0, absl::UnavailableError("the bridge was restarted"));
      worker_->MeetBridge();
    }
    Change([&] {
      step_.clear();
      bridge_lost_ = !status.ok();
    });
  }

  absl::StatusOr<std::unique_ptr<transport::Installer>> MakeInstaller(TransportKind kind) {
    transport::ClientSession* session = Session();
    if (session == nullptr) return absl::CancelledError("the sampler is being closed");
    const Welcome welcome = session->welcome();
    if (kind == TransportKind::kTcp) {
      return std::make_unique<transport::TcpInstaller>(
          transport::BulkEndpoint{welcome.bulk_address, welcome.bulk_key, session->incarnation()},
          transport::BulkOptions());
    }
    if (welcome.fd_socket_path.empty()) {
      return absl::FailedPreconditionError("the bridge offers no shared memory");
    }
    auto installer = std::make_unique<transport::ShmInstaller>(
        welcome.fd_socket_path, session->incarnation(), kDescriptorTimeout);
    LOCKSTEP_RETURN_IF_ERROR(installer->Open());
    return installer;
  }

  // Waits for Open to have stored it, since its thread may bring a round before; null when the
  // sampler is closed first.
  transport::ClientSession* Session() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return ready_ || closing_; });
    return session_.get();
  }

  void Post(Message message) {
    if (transport::ClientSession* session = Session()) session->Post(std::move(message));
  }

  void Complete(Rollout& rollout) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (rollout.sampler.empty()) rollout.sampler = options_.name;
    if (rollout.incarnation == Incarnation{}) rollout.incarnation = session_->incarnation();
    if (rollout.contract_id.empty()) rollout.contract_id = contract_id_;
    const auto ticket =
        rollout.spans.empty() ? tickets_.end() : tickets_.find(rollout.spans.back().version);
    if (ticket != tickets_.end()) {
      if (rollout.cache_epoch == 0) rollout.cache_epoch = ticket->second.cache_epoch;
      if (rollout.ticket == Digest256{}) rollout.ticket = ticket->second.ticket;
    }
    if (rollout.content == Digest256{}) rollout.content = RolloutContent(rollout);
    if (rollout.id.empty()) rollout.id = ToHex(rollout.content);
  }

  SamplerState StateLocked() const {
    SamplerState state;
    state.state = step_.empty() ? standing_ : step_;
    if (bridge_lost_ && standing_ != "refused") state.state = "disconnected";
    if (live_.has_value()) state.live_version = live_->version;
    state.contract_short = contract_short_;
    state.reasons = reasons_;
    return state;
  }

  template <typename Mutation>
  void Change(Mutation mutation) {
    SamplerState state;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      mutation();
      state = StateLocked();
      changed_.notify_all();
    }
    if (options_.on_state) options_.on_state(state);
  }

  const SamplerOptions options_;
  const RegisterSampler registration_;

  mutable std::mutex mutex_;  // guards what follows, up to slots_
  std::condition_variable changed_;
  bool ready_ = false;
  bool closing_ = false;
  bool bridge_lost_ = false;
  std::string standing_ = "waiting";
  std::string step_;  // of the running round; empty: none
  std::string contract_id_;
  std::string contract_short_;
  std::vector<Refusal> reasons_;
  std::optional<LiveClaim> live_;
  std::pair<uint64_t, uint64_t> switched_;  // version and cache epoch that readers get
  std::map<uint64_t, LiveClaim> tickets_;   // by version

  ArenaHolds holds_;
  WeightSlots slots_;
  std::unique_ptr<transport::ClientSession> session_;
  std::unique_ptr<RoundWorker> worker_;
};

Sampler::Sampler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Sampler::~Sampler() = default;

absl::StatusOr<std::unique_ptr<Sampler>> Sampler::Connect(SamplerOptions options) {
  LOCKSTEP_ASSIGN_OR_RETURN(Contract contract, ContractOf(options));
  RegisterSampler registration;
  registration.contract_json = options.contract_json;
  LOCKSTEP_ASSIGN_OR_RETURN(registration.evidence, transport::MakeEvidence());
  registration.manifest = options.manifest;
  registration.transports = options.transports;
  auto impl = std::make_unique<Impl>(std::move(options), std::move(registration));
  LOCKSTEP_RETURN_IF_ERROR(impl->Open(std::move(contract)));
  return std::unique_ptr<Sampler>(new Sampler(std::move(impl)));
}

WeightsGuard Sampler::Weights() const { return impl_->Weights(); }

std::future<absl::StatusOr<Decision>> Sampler::SubmitRollout(Rollout rollout) {
  return impl_->SubmitRollout(std::move(rollout));
}

absl::Status Sampler::WaitLive(uint64_t version, absl::Duration timeout) {
  return impl_->WaitLive(version, timeout);
}

SamplerState Sampler::state() const { return impl_->state(); }

}  // namespace lockstep
