#include "tools/cli/bench_sync.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "policy/resolve.h"
#include "policy/status_macros.h"
#include "tools/cli/bench_limits.h"
#include "tools/cli/bench_stage.h"
#include "trainer_client/trainer.h"

namespace lockstep::tools {
namespace {

// No exact family: any tensors are a checkpoint of it.
constexpr char kConfig[] = R"({"model_type": "lockstep_bench", "hidden_act": "silu"})";
// Those of a projection in an 8-billion-parameter model.
constexpr uint64_t kColumns = 4'096;
constexpr uint64_t kRows = 14'336;
constexpr uint64_t kRowBytes = kColumns * 2;  // bf16
constexpr uint64_t kMinBytes = kRowBytes;
constexpr uint64_t kMaxBytes = uint64_t{1} << 36;
constexpr int kWarmupRounds = 4;  // more than the versions that a bridge keeps
constexpr int kLimitPasses = 5;
constexpr absl::Duration kPublishTimeout = absl::Minutes(5);

struct Model {
  Manifest manifest;
  std::vector<std::vector<uint8_t>> tensors;  // parallel to manifest.tensors
  std::vector<TensorBytesView> views;
  uint64_t bytes = 0;
};

Model MakeModel(uint64_t bytes) {
  Model model;
  uint64_t rows = bytes / kRowBytes;
  uint64_t word = 0x9E3779B97F4A7C15;
  for (int i = 0; rows > 0; ++i) {
    const uint64_t part = std::min(rows, kRows);
    rows -= part;
    model.manifest.tensors.push_back(
        {absl::StrFormat("layers.%03d.weight", i), Dtype::kBF16, {part, kColumns}});
    std::vector<uint8_t>& tensor = model.tensors.emplace_back(part * kRowBytes);
    for (size_t at = 0; at < tensor.size(); at += sizeof(word)) {
      word = word * 6364136223846793005 + 1442695040888963407;
      // Exponents of weights, so that the probe's products are ordinary numbers.
      const uint64_t weights = (word & 0x807F807F807F807F) | 0x3C003C003C003C00;
      std::memcpy(tensor.data() + at, &weights, sizeof(weights));
    }
    model.bytes += tensor.size();
  }
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    model.views.push_back({model.manifest.tensors[i].name, model.tensors[i]});
  }
  return model;
}

absl::StatusOr<std::unique_ptr<Trainer>> StartTrainer(const BenchStage& stage, const Model& model) {
  Resolution resolution = ResolveConfig(kConfig, {});
  if (!resolution.contract.has_value()) {
    return absl::InternalError(FormatRefusals(resolution.refusals));
  }
  TrainerOptions options;
  options.bridge = stage.address();
  options.contract_json = ContractToJson(*resolution.contract);
  options.manifest = model.manifest;
  options.transport = TransportKind::kShm;
  return Trainer::Connect(std::move(options));
}

// Seconds from Publish to live.
absl::StatusOr<double> PublishOnce(Trainer& trainer, uint64_t version, Model& model,
                                   SyncBenchResult& result) {
  // An optimizer's step: every tensor differs from the version before.
  for (std::vector<uint8_t>& tensor : model.tensors) ++tensor[0];
  const absl::Time start = absl::Now();
  auto future = trainer.Publish(version, model.views);
  if (future.wait_for(absl::ToChronoSeconds(kPublishTimeout)) != std::future_status::ready) {
    return absl::DeadlineExceededError(absl::StrCat("version ", version, " is not live after ",
                                                    absl::FormatDuration(kPublishTimeout)));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const PublishOutcome outcome, future.get());
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  const bool live = outcome.samplers.size() == 1 && outcome.samplers[0].state == "live";
  if (!live) {
    return absl::InternalError(absl::StrCat(
        "version ", version, " did not go live: ",
        outcome.samplers.empty() ? "there is no sampler"
                                 : absl::StrCat(outcome.samplers[0].state, " ",
                                                FormatRefusals(outcome.samplers[0].refusals))));
  }
  result.components_verified = outcome.samplers[0].components_verified;
  return seconds;
}

}  // namespace

absl::StatusOr<SyncBenchResult> RunSyncBench(const SyncBenchOptions& options) {
  if (options.bytes < kMinBytes || options.bytes > kMaxBytes || options.rounds < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--bytes takes ", kMinBytes, " to ", kMaxBytes, " and --rounds at least 1"));
  }
  Model model = MakeModel(options.bytes);
  SyncBenchResult result;
  result.bytes = model.bytes;
  {
    const std::vector<uint8_t> source(model.bytes, 1);
    if (options.transport == "tcp") {
      LOCKSTEP_ASSIGN_OR_RETURN(result.limit_gbytes_per_s, SocketRate(source, kLimitPasses));
    } else {
      result.limit_gbytes_per_s = MemoryCopyRate(source, kLimitPasses);
    }
  }
  StageOptions stage_options;
  stage_options.bridge_flags = {"--spool-max-bytes", "0"};
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<BenchStage> stage,
                            BenchStage::Start(stage_options));
  LOCKSTEP_RETURN_IF_ERROR(stage->StartSampler(kConfig, options.transport));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer, StartTrainer(*stage, model));
  std::vector<double> seconds;
  for (int i = 0; i < kWarmupRounds + options.rounds; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(const double took,
                              PublishOnce(*trainer, static_cast<uint64_t>(i), model, result));
    if (i >= kWarmupRounds) seconds.push_back(took);
  }
  std::sort(seconds.begin(), seconds.end());
  const double gbytes = static_cast<double>(result.bytes) * 1e-9;
  const double median = seconds[seconds.size() / 2];
  result.median_ms = median * 1e3;
  result.gbytes_per_s = gbytes / median;
  result.best_gbytes_per_s = gbytes / seconds.front();
  result.ratio = result.gbytes_per_s / result.limit_gbytes_per_s;
  return result;
}

}  // namespace lockstep::tools
