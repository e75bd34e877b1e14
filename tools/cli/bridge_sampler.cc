#include "tools/cli/bridge_sampler.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"
#include "tools/cli/bridge_dump.h"
#include "tools/cli/exit_codes.h"

namespace lockstep::tools {
namespace {

constexpr absl::Duration kWakeEvery = absl::Hours(1);

absl::Status Dump(const std::string& folder, const WeightsGuard& weights) {
  return DumpVersion({folder, weights->version, *weights->manifest,
                      [&](size_t index) { return weights->Tensor(index); }});
}

absl::Status CheckFolder(const std::string& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (!failed && ::access(folder.c_str(), W_OK) == 0) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("cannot write to the folder '", folder,
                                          "': ", failed ? failed.message() : strerror(errno),
                                          "; name one that may be written to"));
}

bool Same(const SamplerState& a, const SamplerState& b) {
  return a.state == b.state && a.live_version == b.live_version && a.reasons == b.reasons;
}

bool HasReason(const SamplerState& state, RefusalCode code) {
  return std::any_of(state.reasons.begin(), state.reasons.end(),
                     [code](const Refusal& reason) { return reason.code == code; });
}

}  // namespace

absl::StatusOr<std::unique_ptr<StateQueue>> StateQueue::Make() {
  transport::UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return absl::InternalError(absl::StrCat("eventfd: ", strerror(errno)));
  return std::unique_ptr<StateQueue>(new StateQueue(std::move(wake)));
}

void StateQueue::Push(SamplerState state) {
  const std::lock_guard<std::mutex> lock(mutex_);
  states_.push_back(std::move(state));
  ::eventfd_write(wake_.get(), 1);
}

std::vector<SamplerState> StateQueue::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  eventfd_t count = 0;
  ::eventfd_read(wake_.get(), &count);
  return std::exchange(states_, {});
}

bool SamplerVerdict::Note(const SamplerState& state) {
  state_ = state.state;
  if (HasReason(state, RefusalCode::kStaleIncarnation)) {
    state_ = "refused";
    return true;
  }
  // A bridge that is shutting down takes the registration when it is back.
  if (HasReason(state, RefusalCode::kShuttingDown)) return false;
  if (state.state == "refused") return !agreed_ && !stay_;
  agreed_ |= state.state == "assigned" || state.state == "receiving" || state.state == "live";
  return false;
}

int SamplerVerdict::exit_code() const {
  if (state_ == "refused") return kExitRefused;
  return state_ == "quarantined" ? kExitDegraded : kExitConverged;
}

absl::StatusOr<int> RunFileSampler(FileSamplerOptions options, StopSignal& stop,
                                   absl::FunctionRef<void(const SamplerState&)> report) {
  if (!options.dump_folder.empty()) LOCKSTEP_RETURN_IF_ERROR(CheckFolder(options.dump_folder));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<StateQueue> queue, StateQueue::Make());
  options.sampler.on_flush_cache = [](uint64_t version) -> absl::StatusOr<std::string> {
    return absl::StrCat("a file-based sampler keeps no prefix cache; version ", version);
  };
  if (!options.dump_folder.empty()) {
    options.sampler.on_activate = [folder = options.dump_folder](const WeightsGuard& weights) {
      return Dump(folder, weights);
    };
  }
  options.sampler.on_state = [&queue](const SamplerState& state) { queue->Push(state); };
  SamplerVerdict verdict(options.stay);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Sampler> sampler,
                            Sampler::Connect(std::move(options.sampler)));
  queue->Push(sampler->state());
  SamplerState reported;
  for (;;) {
    const bool stopped = stop.WaitUnlessReadable(queue->fd(), kWakeEvery);
    for (const SamplerState& state : queue->Take()) {
      if (!Same(state, reported)) report(state);
      reported = state;
      if (verdict.Note(state)) return verdict.exit_code();
    }
    if (stopped) return verdict.exit_code();
  }
}

}  // namespace lockstep::tools
