#include "tools/cli/bridge_publish.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/checkpoint_check.h"
#include "policy/status_macros.h"
#include "tools/cli/checkpoint_file.h"
#include "tools/cli/exit_codes.h"

namespace lockstep::tools {
namespace {

constexpr size_t kShownRefusals = 8;
constexpr absl::Duration kLookForStopEvery = absl::Milliseconds(50);

// A checkpoint of another model differs in every tensor; the first few say so.
std::string FirstRefusals(std::vector<Refusal> refusals) {
  const size_t more = refusals.size() > kShownRefusals ? refusals.size() - kShownRefusals : 0;
  refusals.resize(refusals.size() - more);
  return absl::StrCat(FormatRefusals(refusals),
                      more > 0 ? absl::StrCat("\nand ", more, " more") : "");
}

// Waits for the outcome or for `stop`.
bool Ready(const std::future<absl::StatusOr<PublishOutcome>>& outcome, StopSignal& stop) {
  while (outcome.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    if (stop.Wait(absl::ZeroDuration())) return false;
    if (outcome.wait_for(absl::ToChronoMilliseconds(kLookForStopEvery)) ==
        std::future_status::ready) {
      return true;
    }
  }
  return true;
}

bool IsVersionBackwards(const std::vector<Refusal>& refusals) {
  return std::any_of(refusals.begin(), refusals.end(), [](const Refusal& refusal) {
    return refusal.code == RefusalCode::kVersionBackwards;
  });
}

}  // namespace

FileTrainer::FileTrainer(TrainerOptions options, std::string config_text)
    : options_(std::move(options)), config_text_(std::move(config_text)) {}

absl::Status FileTrainer::Connect(Manifest manifest) {
  options_.manifest = std::move(manifest);
  LOCKSTEP_ASSIGN_OR_RETURN(trainer_, Trainer::Connect(options_));
  return absl::OkStatus();
}

absl::StatusOr<PublishOutcome> FileTrainer::Publish(const std::string& path, uint64_t version,
                                                    StopSignal& stop) {
  was_older_ = false;
  LOCKSTEP_ASSIGN_OR_RETURN(const CheckpointFile file, CheckpointFile::Open(path));
  std::vector<TensorSpec> specs;
  std::vector<TensorBytesView> views;
  for (const SafetensorsTensor& tensor : file.header().tensors) {
    specs.push_back(tensor.spec);
    views.push_back({tensor.spec.name, file.Bytes(tensor)});
  }
  CheckpointManifest checked = ManifestForCheckpoint(std::move(specs), config_text_);
  if (!checked.refusals.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "'", path, "' is no checkpoint of this config:\n", FirstRefusals(checked.refusals)));
  }
  if (trainer_ == nullptr) {
    LOCKSTEP_RETURN_IF_ERROR(Connect(std::move(checked.manifest)));
  } else if (const auto differences = CompareManifests(options_.manifest, checked.manifest);
             !differences.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", path, "' has other tensors than the first checkpoint of this run:\n",
                     FirstRefusals(differences), "\nstart again to publish another model"));
  }
  std::future<absl::StatusOr<PublishOutcome>> outcome = trainer_->Publish(version, views);
  if (!Ready(outcome, stop)) {
    trainer_.reset();
    outcome.wait();
    return absl::CancelledError(absl::StrCat("stopped while version ", version, " was published"));
  }
  absl::StatusOr<PublishOutcome> result = outcome.get();
  was_older_ =
      absl::IsFailedPrecondition(result.status()) && IsVersionBackwards(trainer_->last_refusals());
  return result;
}

std::string FileTrainer::contract_short() const {
  return trainer_ == nullptr ? "" : trainer_->contract_short();
}

int ExitCodeOf(const PublishOutcome& outcome) {
  const bool all = std::all_of(
      outcome.samplers.begin(), outcome.samplers.end(), [](const SamplerOutcome& sampler) {
        return sampler.state == "live" || sampler.state == "refused" || sampler.state == "waiting";
      });
  return all ? kExitConverged : kExitDegraded;
}

}  // namespace lockstep::tools
