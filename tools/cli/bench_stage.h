#ifndef LOCKSTEP_TOOLS_CLI_BENCH_STAGE_H_
#define LOCKSTEP_TOOLS_CLI_BENCH_STAGE_H_

// What a benchmark runs against: a bridge and a sampler of its own, as processes, in a folder
// that is removed at the end. The benchmark itself is the trainer.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(auto stage, BenchStage::Start({}));
//   LOCKSTEP_RETURN_IF_ERROR(stage->StartSampler(config_json, "tcp"));

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bridge/transport/client_session.h"
#include "tools/process/child_process.h"

namespace lockstep::tools {

// The bridge's binary: beside this program, in the build tree it was built in, or where
// LOCKSTEPD says. NotFound with these places.
absl::StatusOr<std::string> FindLockstepd();

struct StageOptions {
  std::string parent;  // of the folder; empty: the system's temporary one
  std::vector<std::string> bridge_flags;
};

class BenchStage {
 public:
  static absl::StatusOr<std::unique_ptr<BenchStage>> Start(const StageOptions& options);
  ~BenchStage();
  BenchStage(const BenchStage&) = delete;
  BenchStage& operator=(const BenchStage&) = delete;

  // Returns when the bridge knows it. `transport`: "shm" or "tcp".
  absl::Status StartSampler(absl::string_view config_json, const std::string& transport);

  transport::BridgeAddress address() const;
  // An operator's session with the bridge.
  transport::ClientSession& session() { return *session_; }
  // The ledger lies in memory: nothing is as durable as it says.
  bool state_in_memory() const;

 private:
  explicit BenchStage(std::string folder) : folder_(std::move(folder)) {}

  absl::Status StartBridge(const StageOptions& options);
  // What a process wrote to its log before it ended.
  absl::Status Died(const std::string& who) const;

  std::string folder_;
  std::unique_ptr<ChildProcess> bridge_;
  std::unique_ptr<ChildProcess> sampler_;
  std::unique_ptr<transport::ClientSession> session_;
};

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_BENCH_STAGE_H_
