#ifndef LOCKSTEP_TOOLS_CLI_BRIDGE_SAMPLER_H_
#define LOCKSTEP_TOOLS_CLI_BRIDGE_SAMPLER_H_

// The file-based sampler: takes every version a bridge offers, proves it, and may write it to a
// folder before it is reported live. It decodes nothing.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(const int exit_code,
//                             RunFileSampler(options, stop, [](const SamplerState& state) { ...
//                             }));

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bridge/transport/unique_fd.h"
#include "sampler_client/sampler.h"
#include "tools/cli/bridge_stop_signal.h"

namespace lockstep::tools {

struct FileSamplerOptions {
  SamplerOptions sampler;   // the callbacks are RunFileSampler's to fill in
  std::string dump_folder;  // empty: nothing is written
  // Stay when the contract is refused before it was ever agreed, and wait for a trainer that
  // states the same one. Otherwise the sampler leaves.
  bool stay = false;
};

// States that come from a client's threads, for the command's own.
class StateQueue {
 public:
  static absl::StatusOr<std::unique_ptr<StateQueue>> Make();

  void Push(SamplerState state);
  std::vector<SamplerState> Take();
  int fd() const { return wake_.get(); }  // readable while there are some

 private:
  explicit StateQueue(transport::UniqueFd wake) : wake_(std::move(wake)) {}

  transport::UniqueFd wake_;  // eventfd
  std::mutex mutex_;
  std::vector<SamplerState> states_;  // guarded by mutex_
};

// Whether a sampler's contract was ever agreed, and what its last state makes of an exit.
class SamplerVerdict {
 public:
  explicit SamplerVerdict(bool stay) : stay_(stay) {}

  // True when there is nothing to stay for: another process has its name, or its contract was
  // refused from the start.
  bool Note(const SamplerState& state);

  // kExitRefused while refused, kExitDegraded while quarantined.
  int exit_code() const;

 private:
  bool stay_;
  bool agreed_ = false;
  std::string state_;
};

// Runs until `stop`, or until SamplerVerdict says so; each change of state is reported once. An
// error: the folder cannot be written to, or no bridge is there or takes this sampler.
absl::StatusOr<int> RunFileSampler(FileSamplerOptions options, StopSignal& stop,
                                   absl::FunctionRef<void(const SamplerState&)> report);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_BRIDGE_SAMPLER_H_
