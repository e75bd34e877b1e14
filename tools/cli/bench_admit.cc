#include "tools/cli/bench_admit.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "policy/resolve.h"
#include "policy/status_macros.h"
#include "tools/cli/bench_stage.h"
#include "trainer_client/trainer.h"

namespace lockstep::tools {
namespace {

constexpr uint64_t kVersion = 1;
constexpr uint64_t kMaxRollouts = 10'000'000;
constexpr uint64_t kMaxTokens = 100'000;
constexpr size_t kMaxInFlight = 1'000;  // a bridge's queue
constexpr absl::Duration kTimeout = absl::Minutes(2);

// One layer of an exact family, so that the probe has components to verify.
constexpr char kConfig[] = R"({"model_type": "qwen3_5_text", "hidden_act": "silu",
  "architectures": ["Qwen3_5ForCausalLM"], "hidden_size": 128, "intermediate_size": 384,
  "num_hidden_layers": 1, "rms_norm_eps": 1e-6, "vocab_size": 64, "tie_word_embeddings": true,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32})";

Manifest MakeManifest() {
  Manifest manifest;
  manifest.tensors = {
      {"model.embed_tokens.weight", Dtype::kBF16, {64, 128}},
      {"model.layers.0.input_layernorm.weight", Dtype::kBF16, {128}},
      {"model.layers.0.mlp.down_proj.weight", Dtype::kBF16, {128, 384}},
      {"model.layers.0.mlp.gate_proj.weight", Dtype::kBF16, {384, 128}},
      {"model.layers.0.mlp.up_proj.weight", Dtype::kBF16, {384, 128}},
      {"model.layers.0.post_attention_layernorm.weight", Dtype::kBF16, {128}},
      {"model.norm.weight", Dtype::kBF16, {128}},
  };
  return manifest;
}

absl::Status GoLive(Trainer& trainer, const Manifest& manifest) {
  std::vector<std::vector<uint8_t>> tensors;
  std::vector<TensorBytesView> views;
  for (const TensorSpec& spec : manifest.tensors) {
    LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t bytes, TensorBytes(spec));
    std::vector<uint8_t>& tensor = tensors.emplace_back(bytes);
    for (size_t i = 0; i < bytes; ++i) tensor[i] = i % 2 == 0 ? static_cast<uint8_t>(i) : 0x3C;
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    views.push_back({manifest.tensors[i].name, tensors[i]});
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const PublishOutcome outcome, trainer.Publish(kVersion, views).get());
  if (outcome.samplers.size() != 1 || outcome.samplers[0].state != "live" ||
      outcome.samplers[0].components_verified == 0) {
    return absl::InternalError("the benchmark's version did not go live with its components");
  }
  return absl::OkStatus();
}

SubmitRolloutFor MakeRollout(uint64_t number, uint64_t tokens) {
  SubmitRolloutFor message;
  Rollout& rollout = message.rollout;
  rollout.content = Blake2b256(absl::StrCat("rollout ", number));
  rollout.id = ToHex(rollout.content);
  rollout.spans = {{kVersion, 0, tokens}};
  for (uint64_t i = 0; i < tokens; ++i) {
    rollout.tokens.push_back(static_cast<int64_t>((number + i) % 50'000));
    rollout.sampler_logprobs.push_back(-static_cast<float>((number * 31 + i * 7) % 1'000) / 256);
  }
  message.trainer_logprobs = rollout.sampler_logprobs;
  return message;
}

// Counts answers; shared with those that come after a timeout.
struct Tally {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t answered = 0;
  uint64_t admitted = 0;
  std::string refused;  // the first that was not admitted, and why
  std::vector<double> ms;
};

void Note(Tally& tally, const absl::StatusOr<Message>& answer, absl::Time start) {
  const double ms = absl::ToDoubleMilliseconds(absl::Now() - start);
  const DecisionReply* reply = answer.ok() ? std::get_if<DecisionReply>(&*answer) : nullptr;
  const bool admitted = reply != nullptr && reply->decision.kind == DecisionKind::kAdmit;
  const std::lock_guard<std::mutex> lock(tally.mutex);
  ++tally.answered;
  tally.ms.push_back(ms);
  tally.admitted += admitted;
  if (!admitted && tally.refused.empty()) {
    tally.refused = reply != nullptr ? FormatRefusals(reply->decision.reasons)
                                     : absl::StrCat("no decision: ", answer.status().message());
  }
  tally.changed.notify_one();
}

double Percentile(std::vector<double>& sorted, double share) {
  return sorted[std::min(sorted.size() - 1,
                         static_cast<size_t>(share * static_cast<double>(sorted.size())))];
}

absl::Status Submit(transport::ClientSession& session, const AdmitBenchOptions& options,
                    const std::shared_ptr<Tally>& tally) {
  const auto timeout = absl::ToChronoSeconds(kTimeout);
  for (uint64_t sent = 0; sent < options.rollouts; ++sent) {
    SubmitRolloutFor message = MakeRollout(sent, options.tokens);
    {
      std::unique_lock<std::mutex> lock(tally->mutex);
      const bool room = tally->changed.wait_for(
          lock, timeout, [&] { return sent - tally->answered < options.in_flight; });
      if (!room) return absl::DeadlineExceededError("the bridge stopped answering");
      if (!tally->refused.empty()) break;
    }
    session.Request(std::move(message),
                    [tally, start = absl::Now()](const absl::StatusOr<Message>& answer) {
                      Note(*tally, answer, start);
                    });
  }
  std::unique_lock<std::mutex> lock(tally->mutex);
  const bool all = tally->changed.wait_for(lock, timeout, [&] {
    return tally->answered == options.rollouts || !tally->refused.empty();
  });
  if (!all) return absl::DeadlineExceededError("the bridge stopped answering");
  if (!tally->refused.empty()) {
    return absl::InternalError(
        absl::StrCat("a rollout that must be admitted was not: ", tally->refused));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AdmitBenchResult> RunAdmitBench(const AdmitBenchOptions& options) {
  if (options.rollouts < 1 || options.rollouts > kMaxRollouts || options.tokens < 1 ||
      options.tokens > kMaxTokens || options.in_flight < 1 || options.in_flight > kMaxInFlight) {
    return absl::InvalidArgumentError(absl::StrCat("--rollouts takes 1 to ", kMaxRollouts,
                                                   ", --tokens 1 to ", kMaxTokens,
                                                   ", --in-flight 1 to ", kMaxInFlight));
  }
  StageOptions stage_options;
  stage_options.parent = options.state_parent;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<BenchStage> stage,
                            BenchStage::Start(stage_options));
  LOCKSTEP_RETURN_IF_ERROR(stage->StartSampler(kConfig, "shm"));
  Resolution resolution = ResolveConfig(kConfig, {});
  if (!resolution.contract.has_value()) {
    return absl::InternalError(FormatRefusals(resolution.refusals));
  }
  TrainerOptions trainer_options;
  trainer_options.bridge = stage->address();
  trainer_options.contract_json = ContractToJson(*resolution.contract);
  trainer_options.manifest = MakeManifest();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                            Trainer::Connect(trainer_options));
  LOCKSTEP_RETURN_IF_ERROR(GoLive(*trainer, trainer_options.manifest));

  const auto tally = std::make_shared<Tally>();
  const absl::Time start = absl::Now();
  LOCKSTEP_RETURN_IF_ERROR(Submit(stage->session(), options, tally));
  AdmitBenchResult result;
  result.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  const std::lock_guard<std::mutex> lock(tally->mutex);
  result.decisions = tally->admitted;
  result.decisions_per_s = static_cast<double>(result.decisions) / result.seconds;
  std::sort(tally->ms.begin(), tally->ms.end());
  result.p50_ms = Percentile(tally->ms, 0.5);
  result.p99_ms = Percentile(tally->ms, 0.99);
  result.state_in_memory = stage->state_in_memory();
  return result;
}

}  // namespace lockstep::tools
