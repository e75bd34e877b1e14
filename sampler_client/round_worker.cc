#include "sampler_client/round_worker.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bridge/transport/probe_runner.h"
#include "bridge/transport/version_digest.h"
#include "policy/probe_plan.h"
#include "policy/status_macros.h"

namespace lockstep {
namespace {

// How often a wait for readers looks whether its round has ended.
constexpr absl::Duration kLookEvery = absl::Milliseconds(50);

absl::Status RoundEnded() { return absl::CancelledError("the round has ended"); }

}  // namespace

RoundWorker::Round::Round(RoundStart s, ArenaHolds& holds)
    : start(std::move(s)), feed(start.bytes_ready), holds_(holds) {
  holds_.Hold(Arena());
}

uint64_t RoundWorker::Round::Arena() const {
  return start.transport == TransportKind::kShm ? start.arena_id : 0;
}

RoundWorker::RoundWorker(Options options, WeightSlots& slots, ArenaHolds& holds)
    : options_(std::move(options)), slots_(slots), holds_(holds), thread_([this] { Run(); }) {}

RoundWorker::~RoundWorker() { Stop(); }

void RoundWorker::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
    if (current_ != nullptr) {
      current_->ended = true;
      current_->feed.Cancel(absl::CancelledError("the sampler is being closed"));
    }
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void RoundWorker::Start(RoundStart start) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (current_ != nullptr) {
    current_->ended = true;
    current_->feed.Cancel(absl::CancelledError("another round has begun"));
  }
  next_ = std::make_shared<Round>(std::move(start), holds_);
  changed_.notify_all();
}

void RoundWorker::Progress(const RoundProgress& progress) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& round : {current_, next_}) {
    if (round != nullptr && round->start.round_id == progress.round_id) {
      round->feed.Advance(progress.bytes_ready);
    }
  }
}

void RoundWorker::Key(const RoundKey& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (current_ == nullptr || current_->start.round_id != key.round_id) return;
  current_->key = key;
  changed_.notify_all();
}

void RoundWorker::Activate(const lockstep::Activate& activate) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (current_ == nullptr || current_->start.round_id != activate.round_id) return;
  current_->activate = true;
  changed_.notify_all();
}

void RoundWorker::Abort(uint64_t round_id, absl::Status why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (next_ != nullptr && (round_id == 0 || next_->start.round_id == round_id)) next_.reset();
  if (current_ == nullptr || (round_id != 0 && current_->start.round_id != round_id)) return;
  current_->ended = true;
  current_->feed.Cancel(std::move(why));
  changed_.notify_all();
}

void RoundWorker::MeetBridge() {
  const std::lock_guard<std::mutex> lock(mutex_);
  meet_bridge_ = true;
  changed_.notify_all();
}

void RoundWorker::Fence() {
  const std::lock_guard<std::mutex> lock(mutex_);
  fence_ = true;
  changed_.notify_all();
}

void RoundWorker::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopped_ || fence_ || meet_bridge_ || next_ != nullptr; });
    if (stopped_) return;
    const bool fence = std::exchange(fence_, false);
    const bool meet_bridge = std::exchange(meet_bridge_, false);
    const std::shared_ptr<Round> round = current_ = std::exchange(next_, nullptr);
    lock.unlock();
    if (fence) Deactivate();
    if (meet_bridge) OpenLines();
    if (round != nullptr) {
      Play(*round);
      slots_.DropStaged();
    }
    lock.lock();
    current_.reset();
  }
}

void RoundWorker::OpenLines() {
  shm_.reset();
  tcp_.reset();
  absl::StatusOr<std::unique_ptr<transport::Installer>> shm =
      options_.installer(TransportKind::kShm);
  if (shm.ok()) shm_ = *std::move(shm);
}

void RoundWorker::Play(Round& round) {
  if (Admissible(round) && Receive(round) && Verify(round)) PutInPlace(round);
}

bool RoundWorker::Admissible(const Round& round) {
  const RoundStart& start = round.start;
  if (start.epoch < served_epoch_) {
    Fail(round, RefusalCode::kStaleEpoch,
         absl::FailedPreconditionError(absl::StrCat(
             "the version is of epoch ", start.epoch, ", what is served of epoch ", served_epoch_,
             "; an older epoch is not taken. Start the sampler again to follow another run")));
    return false;
  }
  if (start.version < served_version_) {
    Fail(round, RefusalCode::kVersionBackwards,
         absl::FailedPreconditionError(
             absl::StrCat("version ", served_version_,
                          " is served; versions only grow. Start the sampler again to follow "
                          "another run")));
    return false;
  }
  const std::vector<Refusal> refusals = CheckManifest(start.manifest);
  if (!refusals.empty()) {
    Fail(round, RefusalCode::kManifestMismatch,
         absl::InvalidArgumentError(FormatRefusals(refusals)));
    return false;
  }
  return true;
}

bool RoundWorker::Receive(Round& round) {
  options_.on_step("receiving");
  const absl::Status status = Install(round);
  if (!status.ok()) {
    Fail(round, RefusalCode::kTransferFailed, status);
    return false;
  }
  options_.on_step("sealed");
  options_.post(Sealed{round.start.round_id});
  if (WaitFor(round, [&] { return round.key.has_value(); }).ok()) return true;
  options_.on_step("");
  return false;
}

bool RoundWorker::Verify(Round& round) {
  options_.on_step("verifying");
  const absl::Status status = Prove(round);
  if (!status.ok()) {
    Fail(round, RefusalCode::kKernelMismatch, status);
    return false;
  }
  if (WaitFor(round, [&] { return round.activate; }).ok()) return true;
  options_.on_step("");
  return false;
}

void RoundWorker::PutInPlace(Round& round) {
  options_.on_step("activating");
  const RoundCallbacks& callbacks = options_.callbacks;
  const uint64_t version = round.start.version;
  const auto resume = [&] {
    if (callbacks.on_resume) callbacks.on_resume(version);
  };
  absl::Status status = callbacks.on_pause ? callbacks.on_pause(version) : absl::OkStatus();
  if (!status.ok()) {
    resume();
    return Fail(round, RefusalCode::kTransferFailed, status);
  }
  absl::StatusOr<std::string> receipt = Flush(round);
  if (!receipt.ok()) {
    resume();
    return Fail(round, RefusalCode::kFlushReceiptMissing, receipt.status());
  }
  if (Ended(round)) {
    resume();
    return options_.on_step("");
  }
  status = Switch(round, *std::move(receipt));
  if (!status.ok()) Fail(round, RefusalCode::kTransferFailed, status);
}

absl::Status RoundWorker::Install(Round& round) {
  ServedVersion version;
  version.version = round.start.version;
  version.manifest = std::make_shared<const Manifest>(round.start.manifest);
  version.layout = ComputeArenaLayout(*version.manifest);
  absl::Status freed;
  do {
    if (Ended(round)) return RoundEnded();
    freed = slots_.WaitUntilFree(absl::Now() + kLookEvery);
  } while (absl::IsDeadlineExceeded(freed));
  LOCKSTEP_RETURN_IF_ERROR(freed);
  LOCKSTEP_ASSIGN_OR_RETURN(transport::Installer * installer, InstallerFor(round.start.transport));
  LOCKSTEP_ASSIGN_OR_RETURN(
      version.installed,
      installer->Install({round.start.arena_id, version.layout.total_bytes}, round.feed));
  version.arena_id = round.Arena();
  LOCKSTEP_RETURN_IF_ERROR(slots_.Stage(std::move(version)));
  // The slot's own; the round's ends with the round.
  holds_.Hold(round.Arena());
  return absl::OkStatus();
}

absl::Status RoundWorker::Prove(Round& round) {
  const ServedVersion& staged = *slots_.staged();
  RoundKey key;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    key = *round.key;
  }
  Verified verified;
  verified.round_id = round.start.round_id;
  LOCKSTEP_ASSIGN_OR_RETURN(
      verified.digest,
      transport::DigestArena(options_.run(), staged.version, key.key, *staged.manifest,
                             staged.installed->bytes(), options_.threads));
  const ProbePlan plan = DeriveProbePlan(*staged.manifest, options_.contract, key.probe_seed);
  LOCKSTEP_ASSIGN_OR_RETURN(
      verified.components,
      transport::RunProbe(
          plan, [&staged](size_t index) { return staged.Tensor(index); }, options_.threads));
  if (Ended(round)) return RoundEnded();
  options_.post(std::move(verified));
  return absl::OkStatus();
}

absl::StatusOr<std::string> RoundWorker::Flush(const Round& round) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::string receipt,
                            options_.callbacks.on_flush_cache(round.start.version));
  if (receipt.empty()) {
    return absl::FailedPreconditionError(
        "on_flush_cache returned an empty receipt; say what was flushed");
  }
  return receipt;
}

absl::Status RoundWorker::Switch(Round& round, std::string receipt) {
  // The bridge takes the release of the version before for one that came too early until it has
  // heard Activated.
  const uint64_t arena_before = std::exchange(served_arena_, round.Arena());
  holds_.Hold(arena_before);
  const auto drop = absl::MakeCleanup([&] { holds_.Drop(arena_before); });
  LOCKSTEP_RETURN_IF_ERROR(slots_.Flip());
  served_epoch_ = round.start.epoch;
  served_version_ = round.start.version;
  // Never an epoch twice, also when what it stood for was never confirmed: a restarted bridge
  // may still know of it.
  ++cache_epoch_;
  options_.on_switched(round.start.version, cache_epoch_);
  if (options_.callbacks.on_activate) {
    const absl::Status activated = options_.callbacks.on_activate(slots_.Acquire());
    if (!activated.ok()) {
      Deactivate();
      return activated;
    }
  }
  options_.post(Activated{round.start.round_id, cache_epoch_, std::move(receipt)});
  return absl::OkStatus();
}

void RoundWorker::Deactivate() {
  served_arena_ = 0;
  slots_.Deactivate();
}

absl::Status RoundWorker::WaitFor(Round& round, const std::function<bool()>& holds) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || round.ended || holds(); });
  return stopped_ || round.ended ? RoundEnded() : absl::OkStatus();
}

absl::StatusOr<transport::Installer*> RoundWorker::InstallerFor(TransportKind kind) {
  std::unique_ptr<transport::Installer>& place = kind == TransportKind::kShm ? shm_ : tcp_;
  if (place == nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(place, options_.installer(kind));
  }
  return place.get();
}

void RoundWorker::Fail(const Round& round, RefusalCode code, const absl::Status& why) {
  options_.on_step("");
  if (Ended(round)) return;
  options_.post(RoundFailed{
      round.start.round_id,
      Refusal{code, absl::StrCat("version ", round.start.version), std::string(why.message())}});
}

bool RoundWorker::Ended(const Round& round) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stopped_ || round.ended;
}

}  // namespace lockstep
