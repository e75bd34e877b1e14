#ifndef LOCKSTEP_TOOLS_PROCESS_CHILD_PROCESS_H_
#define LOCKSTEP_TOOLS_PROCESS_CHILD_PROCESS_H_

// Child processes for the demo, the benchmarks and the end-to-end tests: started without a
// shell, ended with their owner.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(auto bridge, ChildProcess::Start({lockstepd, "--listen", address},
//                                                              {.stderr_path = log}));
//   LOCKSTEP_ASSIGN_OR_RETURN(Finished status, RunToEnd({lockstep, "status"}, absl::Seconds(10)));

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace lockstep::tools {

struct ProcessOptions {
  std::string stdout_path;  // empty: /dev/null
  std::string stderr_path;  // appended to; empty: /dev/null
  // NAME=VALUE, on top of this process's environment.
  std::vector<std::string> environment;
  // Live on when this process dies; otherwise the child is killed then.
  bool outlive_parent = false;
};

class ChildProcess {
 public:
  // `words[0]` is the program's path.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(absl::Span<const std::string> words,
                                                             const ProcessOptions& options);
  // Kills what still runs, and waits for it.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // The exit code, or 128 + the signal that ended it; nullopt while it runs.
  std::optional<int> ExitCode();
  // DeadlineExceeded when it still runs after `timeout`.
  absl::StatusOr<int> Wait(absl::Duration timeout);
  // Leaves it running for good.
  void Detach() { pid_ = -1; }

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_;
  std::optional<int> exit_code_;
};

struct Finished {
  int exit_code = 0;
  std::string out;
  std::string err;
};

// DeadlineExceeded (and the child is killed) after `timeout`.
absl::StatusOr<Finished> RunToEnd(absl::Span<const std::string> words, absl::Duration timeout,
                                  const std::vector<std::string>& environment = {});

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_PROCESS_CHILD_PROCESS_H_
