#ifndef LOCKSTEP_TOOLS_CLI_BRIDGE_SUBMIT_H_
#define LOCKSTEP_TOOLS_CLI_BRIDGE_SUBMIT_H_

// Submits a file of recorded rollouts: many lines are under way at once, their answers are
// reported in the order of the file, and a line that cannot be read is reported in its place.
//
// Example:
//   absl::Status status = SubmitRollouts(
//       file, options,
//       [&](SubmitRolloutFor message, SubmitAnswer answer) {
//         session->Request(std::move(message), std::move(answer));
//       },
//       [&](const SubmittedLine& line) { Print(line); });

#include <cstdint>
#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "policy/protocol.h"
#include "tools/cli/bridge_rollout_line.h"

namespace lockstep::tools {

// Fewer than a bridge's queue holds (kControlHighWaterMark).
inline constexpr size_t kRolloutsInFlight = 512;

struct SubmitOptions {
  std::string sampler;  // empty: the bridge chooses
  AdmissionLevel level = AdmissionLevel::kTokens;
  size_t in_flight = kRolloutsInFlight;
  absl::Duration answer_timeout = absl::Seconds(60);  // of the oldest line under way
};

struct SubmittedLine {
  uint64_t number = 0;  // in the file
  std::string id;       // empty when the line could not be read
  // InvalidArgument: the line cannot be read, or is not one that a bridge takes.
  absl::StatusOr<Decision> decision;
};

using SubmitAnswer = std::function<void(absl::StatusOr<Message>)>;
// Must not block; the answer may come from any thread, also at once.
using SendRollout = std::function<void(SubmitRolloutFor message, SubmitAnswer answer)>;

// An error ends the submission: the bridge is gone or did not answer in time. What was under way
// may have been decided; submitting the file again gives the same answers.
absl::Status SubmitRollouts(RolloutFile& file, const SubmitOptions& options,
                            const SendRollout& send,
                            absl::FunctionRef<void(const SubmittedLine&)> report);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_BRIDGE_SUBMIT_H_
