// The sampler of lockstep.h.

#include "sampler_client/sampler.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "policy/contract.h"
#include "policy/status_macros.h"
#include "tools/capi/common.h"
#include "tools/cli/json_line.h"

struct lockstep_sampler {
  std::unique_ptr<lockstep::Sampler> sampler;
};

struct lockstep_weights {
  lockstep::WeightsGuard guard;  // empty when borrowed
  const lockstep::ServedVersion* version = nullptr;
};

namespace lockstep::capi {
namespace {

std::string StateText(const SamplerState& state) {
  nlohmann::json reasons = nlohmann::json::array();
  for (const Refusal& reason : state.reasons) {
    reasons.push_back({{"code", std::string(RefusalCodeName(reason.code))},
                       {"key", reason.key},
                       {"message", reason.message}});
  }
  nlohmann::json live;
  if (state.live_version.has_value()) live = *state.live_version;
  return tools::JsonLine({{"state", state.state},
                          {"live_version", live},
                          {"contract", state.contract_short},
                          {"reasons", reasons}});
}

// What a callback answered.
absl::Status Answered(int32_t code, absl::string_view callback) {
  if (code == LOCKSTEP_OK) return absl::OkStatus();
  return absl::Status(absl::StatusCode::kAborted,
                      absl::StrCat(callback, " answered with code ", code));
}

void SetCallbacks(const lockstep_sampler_options& given, SamplerOptions& options) {
  if (given.on_pause != nullptr) {
    options.on_pause = [given](uint64_t version) {
      return Answered(given.on_pause(given.user, version), "on_pause");
    };
  }
  if (given.on_flush_cache != nullptr) {
    options.on_flush_cache = [given](uint64_t version) -> absl::StatusOr<std::string> {
      std::array<char, LOCKSTEP_RECEIPT_BYTES> receipt{};
      LOCKSTEP_RETURN_IF_ERROR(
          Answered(given.on_flush_cache(given.user, version, receipt.data(), receipt.size()),
                   "on_flush_cache"));
      const auto end = std::find(receipt.begin(), receipt.end(), '\0');
      return std::string(receipt.begin(), end);
    };
  }
  if (given.on_activate != nullptr) {
    options.on_activate = [given](const WeightsGuard& weights) {
      lockstep_weights borrowed;
      borrowed.version = &*weights;
      return Answered(given.on_activate(given.user, weights->version, &borrowed), "on_activate");
    };
  }
  if (given.on_resume != nullptr) {
    options.on_resume = [given](uint64_t version) { given.on_resume(given.user, version); };
  }
  if (given.on_live != nullptr) {
    options.on_live = [given](uint64_t version) { given.on_live(given.user, version); };
  }
  if (given.on_state != nullptr) {
    options.on_state = [given](const SamplerState& state) {
      given.on_state(given.user, StateText(state).c_str());
    };
  }
}

absl::Status Connect(const lockstep_sampler_options* given, lockstep_sampler** out) {
  if (out == nullptr) return Missing("sampler");
  *out = nullptr;
  LOCKSTEP_ASSIGN_OR_RETURN(const lockstep_sampler_options read, ReadSized(given, "options"));
  if (read.contract_json == nullptr) return Missing("options.contract_json");
  if (read.on_flush_cache == nullptr) return Missing("options.on_flush_cache");
  SamplerOptions options;
  LOCKSTEP_ASSIGN_OR_RETURN(options.bridge,
                            BridgeOf(read.bridge, read.run, read.key_file, read.bridge_key_file));
  options.name = TextOr(read.name, "sampler");
  options.contract_json = read.contract_json;
  if (read.tensors != nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        options.manifest,
        ManifestOf(read.tensors, read.tensor_count, read.alias_groups, read.alias_group_count));
  }
  if (read.transports != nullptr) {
    options.transports.clear();
    for (absl::string_view name : absl::StrSplit(read.transports, ',')) {
      LOCKSTEP_ASSIGN_OR_RETURN(const TransportKind kind, TransportOf(name));
      options.transports.push_back(kind);
    }
  }
  options.threads = read.threads;
  SetCallbacks(read, options);
  auto sampler = std::make_unique<lockstep_sampler>();
  LOCKSTEP_ASSIGN_OR_RETURN(sampler->sampler, Sampler::Connect(std::move(options)));
  *out = sampler.release();
  return absl::OkStatus();
}

absl::StatusOr<AdmissionLevel> LevelOf(const char* name) {
  const std::optional<Level> level = LevelFromName(TextOr(name, "tokens"));
  if (level.has_value()) return static_cast<AdmissionLevel>(*level);
  return absl::InvalidArgumentError(
      absl::StrCat("rollout.level '", name, "' is none of weights, kernels, tokens"));
}

absl::Status Submit(lockstep_sampler* sampler, const lockstep_rollout* given,
                    lockstep_decision** out) {
  if (out == nullptr) return Missing("decision");
  *out = nullptr;
  if (sampler == nullptr) return Missing("sampler");
  LOCKSTEP_ASSIGN_OR_RETURN(const lockstep_rollout read, ReadSized(given, "rollout"));
  if (read.spans == nullptr && read.span_count > 0) return Missing("rollout.spans");
  if (read.token_count > 0) {
    if (read.tokens == nullptr) return Missing("rollout.tokens");
    if (read.sampler_logprobs == nullptr) return Missing("rollout.sampler_logprobs");
  }
  Rollout rollout;
  rollout.id = TextOr(read.id, "");
  for (size_t i = 0; i < read.span_count; ++i) {
    rollout.spans.push_back({read.spans[i].version, read.spans[i].start, read.spans[i].end});
  }
  LOCKSTEP_ASSIGN_OR_RETURN(rollout.level, LevelOf(read.level));
  rollout.tokens.assign(read.tokens, read.tokens + read.token_count);
  rollout.sampler_logprobs.assign(read.sampler_logprobs, read.sampler_logprobs + read.token_count);
  *out = NewDecision(sampler->sampler->SubmitRollout(std::move(rollout)).share());
  return absl::OkStatus();
}

absl::Status View(const lockstep_weights* weights, size_t index, lockstep_tensor_view* view) {
  const Manifest& manifest = *weights->version->manifest;
  if (index >= manifest.tensors.size()) {
    return absl::NotFoundError(
        absl::StrCat("there is no tensor ", index, ", only ", manifest.tensors.size(), " of them"));
  }
  const TensorSpec& spec = manifest.tensors[index];
  *view = {};
  view->name = spec.name.c_str();
  view->dtype = DtypeName(spec.dtype).data();  // a literal, so it ends in 0
  view->shape = spec.shape.data();
  view->rank = spec.shape.size();
  if (spec.origin == TensorOrigin::kSynced) {
    const absl::Span<const uint8_t> bytes = weights->version->Tensor(index);
    view->data = bytes.data();
    view->bytes = bytes.size();
  }
  return absl::OkStatus();
}

absl::Status Find(const lockstep_weights* weights, absl::string_view name,
                  lockstep_tensor_view* view) {
  const std::vector<TensorSpec>& tensors = weights->version->manifest->tensors;
  const auto found =
      std::lower_bound(tensors.begin(), tensors.end(), name,
                       [](const TensorSpec& spec, absl::string_view n) { return spec.name < n; });
  if (found == tensors.end() || found->name != name) {
    return absl::NotFoundError(
        absl::StrCat("version ", weights->version->version, " has no tensor '", name, "'"));
  }
  return View(weights, static_cast<size_t>(found - tensors.begin()), view);
}

// Longer than any process lives, and what a clock can add without overflow.
constexpr int64_t kForeverMs = int64_t{100} * 365 * 24 * 3'600 * 1'000;

absl::Duration TimeoutOf(int64_t timeout_ms) {
  return absl::Milliseconds(timeout_ms < 0 ? kForeverMs : std::min(timeout_ms, kForeverMs));
}

}  // namespace
}  // namespace lockstep::capi

using lockstep::capi::Guarded;
using lockstep::capi::Missing;

extern "C" {

int32_t lockstep_sampler_connect(const lockstep_sampler_options* options,
                                 lockstep_sampler** sampler) {
  return Guarded([&] { return lockstep::capi::Connect(options, sampler); });
}

void lockstep_sampler_destroy(lockstep_sampler* sampler) { delete sampler; }

int32_t lockstep_sampler_wait_live(lockstep_sampler* sampler, uint64_t version,
                                   int64_t timeout_ms) {
  return Guarded([&]() -> absl::Status {
    if (sampler == nullptr) return Missing("sampler");
    return sampler->sampler->WaitLive(version, lockstep::capi::TimeoutOf(timeout_ms));
  });
}

int32_t lockstep_sampler_state(lockstep_sampler* sampler, char** state_json) {
  return Guarded([&]() -> absl::Status {
    if (state_json == nullptr) return Missing("state_json");
    *state_json = nullptr;
    if (sampler == nullptr) return Missing("sampler");
    *state_json = lockstep::capi::NewString(lockstep::capi::StateText(sampler->sampler->state()));
    return absl::OkStatus();
  });
}

int32_t lockstep_sampler_weights(lockstep_sampler* sampler, lockstep_weights** weights) {
  return Guarded([&]() -> absl::Status {
    if (weights == nullptr) return Missing("weights");
    *weights = nullptr;
    if (sampler == nullptr) return Missing("sampler");
    auto held = std::make_unique<lockstep_weights>();
    held->guard = sampler->sampler->Weights();
    if (!held->guard) {
      return absl::FailedPreconditionError(
          "no version is served yet; wait with lockstep_sampler_wait_live");
    }
    held->version = &*held->guard;
    *weights = held.release();
    return absl::OkStatus();
  });
}

void lockstep_weights_release(lockstep_weights* weights) { delete weights; }

uint64_t lockstep_weights_version(const lockstep_weights* weights) {
  return weights == nullptr ? 0 : weights->version->version;
}

size_t lockstep_weights_count(const lockstep_weights* weights) {
  return weights == nullptr ? 0 : weights->version->manifest->tensors.size();
}

int32_t lockstep_weights_at(const lockstep_weights* weights, size_t index,
                            lockstep_tensor_view* view) {
  return Guarded([&]() -> absl::Status {
    if (weights == nullptr) return Missing("weights");
    if (view == nullptr) return Missing("view");
    return lockstep::capi::View(weights, index, view);
  });
}

int32_t lockstep_weights_find(const lockstep_weights* weights, const char* name,
                              lockstep_tensor_view* view) {
  return Guarded([&]() -> absl::Status {
    if (weights == nullptr) return Missing("weights");
    if (name == nullptr) return Missing("name");
    if (view == nullptr) return Missing("view");
    return lockstep::capi::Find(weights, name, view);
  });
}

int32_t lockstep_sampler_submit_rollout(lockstep_sampler* sampler, const lockstep_rollout* rollout,
                                        lockstep_decision** decision) {
  return Guarded([&] { return lockstep::capi::Submit(sampler, rollout, decision); });
}

}  // extern "C"
