#ifndef LOCKSTEP_TOOLS_CLI_BRIDGE_PUBLISH_H_
#define LOCKSTEP_TOOLS_CLI_BRIDGE_PUBLISH_H_

// The file-based trainer: publishes safetensors checkpoints of one model as versions.
//
// Example:
//   FileTrainer trainer(options, config_text);
//   LOCKSTEP_ASSIGN_OR_RETURN(PublishOutcome outcome, trainer.Publish(path, 3, stop));

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/cli/bridge_stop_signal.h"
#include "trainer_client/trainer.h"

namespace lockstep::tools {

class FileTrainer {
 public:
  // `options` without its manifest, which the first checkpoint says.
  FileTrainer(TrainerOptions options, std::string config_text);

  // Connects with the first checkpoint. Returns when the version is durable and every agreed
  // sampler is live or failed. Errors besides Trainer's: InvalidArgument for a file that is no
  // safetensors file; FailedPrecondition for a checkpoint that does not fit the config, or not
  // the first one's manifest; Cancelled when `stop` came meanwhile: what was not sealed by then
  // is discarded.
  absl::StatusOr<PublishOutcome> Publish(const std::string& path, uint64_t version,
                                         StopSignal& stop);

  // "" before the first Publish has connected.
  std::string contract_short() const;

  // The bridge refused the last Publish because a newer version is there.
  bool was_older() const { return was_older_; }

 private:
  absl::Status Connect(Manifest manifest);

  TrainerOptions options_;
  std::string config_text_;
  std::unique_ptr<Trainer> trainer_;
  bool was_older_ = false;
};

// 0 when every agreed sampler is live on the version, or none is registered; 1 when some failed.
// Refused samplers, and those that wait for another trainer, do not count.
int ExitCodeOf(const PublishOutcome& outcome);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_BRIDGE_PUBLISH_H_
