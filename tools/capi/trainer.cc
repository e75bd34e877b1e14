// The trainer of lockstep.h.

#include "trainer_client/trainer.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "policy/status_macros.h"
#include "tools/capi/common.h"
#include "tools/cli/bridge_json.h"
#include "tools/cli/json_line.h"

namespace lockstep::capi {
namespace {

using OutcomeFuture = std::shared_future<absl::StatusOr<PublishOutcome>>;

lockstep_publish_result ResultOf(const PublishOutcome& outcome) {
  lockstep_publish_result result{};
  result.size = sizeof(result);
  result.version = outcome.version;
  result.samplers = outcome.samplers.size();
  for (const SamplerOutcome& sampler : outcome.samplers) {
    if (sampler.state == "live") ++result.samplers_live;
  }
  result.nan_elements = outcome.nan_elements;
  result.zero_change = outcome.zero_change ? 1 : 0;
  return result;
}

// Calls on_done as publishes end, in their order, on a thread of its own: a trainer's session
// must not run what may take its time.
class DoneCaller {
 public:
  DoneCaller() : thread_([this] { Run(); }) {}
  // Once nothing will be added and every future has or gets its value.
  ~DoneCaller() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void Add(OutcomeFuture outcome, const lockstep_publish_options& options) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      jobs_.push_back({std::move(outcome), options});
    }
    changed_.notify_all();
  }

 private:
  struct Job {
    OutcomeFuture outcome;
    lockstep_publish_options options{};
  };

  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      Call(job);
      lock.lock();
    }
  }

  static void Call(const Job& job) {
    const absl::StatusOr<PublishOutcome>& outcome = job.outcome.get();
    if (outcome.ok()) {
      const lockstep_publish_result result = ResultOf(*outcome);
      return job.options.on_done(job.options.user, LOCKSTEP_OK, nullptr, &result);
    }
    const std::string why(outcome.status().message());
    job.options.on_done(job.options.user, static_cast<int32_t>(outcome.status().code()),
                        why.c_str(), nullptr);
  }

  std::mutex mutex_;  // guards jobs_, stop_
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace
}  // namespace lockstep::capi

struct lockstep_trainer {
  // The trainer ends before the caller of what it answers.
  lockstep::capi::DoneCaller done;
  std::unique_ptr<lockstep::Trainer> trainer;
};

struct lockstep_publish {
  lockstep::capi::OutcomeFuture outcome;
};

namespace lockstep::capi {
namespace {

absl::Status Connect(const lockstep_trainer_options* given, lockstep_trainer** out) {
  if (out == nullptr) return Missing("trainer");
  *out = nullptr;
  LOCKSTEP_ASSIGN_OR_RETURN(const lockstep_trainer_options read, ReadSized(given, "options"));
  if (read.contract_json == nullptr) return Missing("options.contract_json");
  TrainerOptions options;
  LOCKSTEP_ASSIGN_OR_RETURN(options.bridge,
                            BridgeOf(read.bridge, read.run, read.key_file, read.bridge_key_file));
  options.name = TextOr(read.name, "trainer");
  options.contract_json = read.contract_json;
  LOCKSTEP_ASSIGN_OR_RETURN(
      options.manifest,
      ManifestOf(read.tensors, read.tensor_count, read.alias_groups, read.alias_group_count));
  if (read.transport != nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(options.transport, TransportOf(read.transport));
  }
  options.threads = read.threads;
  auto trainer = std::make_unique<lockstep_trainer>();
  LOCKSTEP_ASSIGN_OR_RETURN(trainer->trainer, Trainer::Connect(std::move(options)));
  *out = trainer.release();
  return absl::OkStatus();
}

absl::Status Publish(lockstep_trainer* trainer, uint64_t version, const lockstep_tensor* tensors,
                     size_t tensor_count, const lockstep_publish_options* given,
                     lockstep_publish** out) {
  if (out != nullptr) *out = nullptr;
  if (trainer == nullptr) return Missing("trainer");
  if (tensors == nullptr && tensor_count > 0) return Missing("tensors");
  lockstep_publish_options read{};
  if (given != nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(read, ReadSized(given, "options"));
  }
  std::vector<TensorBytesView> views;
  views.reserve(tensor_count);
  for (size_t i = 0; i < tensor_count; ++i) {
    if (tensors[i].name == nullptr) return Missing(absl::StrCat("tensors[", i, "].name"));
    if (tensors[i].data == nullptr && tensors[i].bytes > 0) {
      return Missing(absl::StrCat("the data of tensor '", tensors[i].name, "'"));
    }
    views.push_back(
        {tensors[i].name, {static_cast<const uint8_t*>(tensors[i].data), tensors[i].bytes}});
  }
  PublishOptions options;
  if (read.on_released != nullptr) {
    options.on_released = [read] { read.on_released(read.user); };
  }
  std::unique_ptr<lockstep_publish> publish = std::make_unique<lockstep_publish>();
  publish->outcome = trainer->trainer->Publish(version, views, std::move(options)).share();
  if (read.on_done != nullptr) trainer->done.Add(publish->outcome, read);
  if (out != nullptr) *out = publish.release();
  return absl::OkStatus();
}

absl::Status Rescore(lockstep_trainer* trainer, const char* rollout_id, const float* logprobs,
                     size_t token_count, lockstep_decision** out) {
  if (out == nullptr) return Missing("decision");
  *out = nullptr;
  if (trainer == nullptr) return Missing("trainer");
  if (rollout_id == nullptr) return Missing("rollout_id");
  if (logprobs == nullptr && token_count > 0) return Missing("logprobs");
  *out = NewDecision(
      trainer->trainer->SubmitRescore(rollout_id, absl::MakeConstSpan(logprobs, token_count))
          .share());
  return absl::OkStatus();
}

absl::StatusOr<PublishOutcome> OutcomeOf(const lockstep_publish* publish, int64_t timeout_ms) {
  if (publish == nullptr) return Missing("publish");
  LOCKSTEP_RETURN_IF_ERROR(WaitReady(publish->outcome, timeout_ms));
  return publish->outcome.get();
}

}  // namespace
}  // namespace lockstep::capi

using lockstep::capi::Guarded;
using lockstep::capi::Missing;

extern "C" {

int32_t lockstep_trainer_connect(const lockstep_trainer_options* options,
                                 lockstep_trainer** trainer) {
  return Guarded([&] { return lockstep::capi::Connect(options, trainer); });
}

void lockstep_trainer_destroy(lockstep_trainer* trainer) { delete trainer; }

uint64_t lockstep_trainer_epoch(const lockstep_trainer* trainer) {
  return trainer == nullptr ? 0 : trainer->trainer->epoch();
}

int32_t lockstep_trainer_publish(lockstep_trainer* trainer, uint64_t version,
                                 const lockstep_tensor* tensors, size_t tensor_count,
                                 const lockstep_publish_options* options,
                                 lockstep_publish** publish) {
  return Guarded([&] {
    return lockstep::capi::Publish(trainer, version, tensors, tensor_count, options, publish);
  });
}

int32_t lockstep_publish_wait(lockstep_publish* publish, int64_t timeout_ms,
                              lockstep_publish_result* result) {
  return Guarded([&]() -> absl::Status {
    const auto outcome = lockstep::capi::OutcomeOf(publish, timeout_ms);
    if (!outcome.ok()) return outcome.status();
    return lockstep::capi::WriteSized(lockstep::capi::ResultOf(*outcome), result, "result");
  });
}

int32_t lockstep_publish_json(lockstep_publish* publish, char** json) {
  return Guarded([&]() -> absl::Status {
    if (json == nullptr) return Missing("json");
    *json = nullptr;
    const auto outcome = lockstep::capi::OutcomeOf(publish, 0);
    if (!outcome.ok()) return outcome.status();
    *json = lockstep::capi::NewString(
        lockstep::tools::JsonLine(lockstep::tools::OutcomeJson(*outcome)));
    return absl::OkStatus();
  });
}

void lockstep_publish_destroy(lockstep_publish* publish) { delete publish; }

int32_t lockstep_trainer_submit_rescore(lockstep_trainer* trainer, const char* rollout_id,
                                        const float* logprobs, size_t token_count,
                                        lockstep_decision** decision) {
  return Guarded([&] {
    return lockstep::capi::Rescore(trainer, rollout_id, logprobs, token_count, decision);
  });
}

}  // extern "C"
