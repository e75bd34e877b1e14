// events, explain, wait, and what only an operator may do.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "nlohmann/json.hpp"
#include "policy/status_macros.h"
#include "tools/cli/bridge_commands.h"
#include "tools/cli/bridge_connect.h"
#include "tools/cli/bridge_json.h"
#include "tools/cli/bridge_stop_signal.h"
#include "tools/cli/bridge_tables.h"
#include "tools/cli/bridge_view.h"
#include "tools/cli/bridge_wait.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/json_line.h"

namespace lockstep::tools {
namespace {

constexpr uint32_t kEventsAtOnce = 1'000;
constexpr absl::Duration kFollowEvery = absl::Milliseconds(250);
constexpr absl::Duration kLookEvery = absl::Milliseconds(50);
constexpr double kMaxTimeoutSeconds = 30 * 24 * 3600;
// A rollback digests the version that comes back.
constexpr absl::Duration kActTimeout = absl::Minutes(2);

void PrintEvent(const Event& event, Io& io) {
  if (io.format == Format::kJson) {
    io.out << JsonLine(EventJson(event)) << "\n";
  } else {
    io.out << event.seq << "  " << TimeText(event.wall_ms) << "  " << event.kind << "  "
           << event.subject << ": " << event.text << "\n";
  }
}

// Prints what came after `seq`, and moves it.
absl::Status PrintEventsAfter(transport::ClientSession& session, uint64_t& seq, Io& io) {
  for (;;) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const EventsReply reply,
        session.Call<EventsReply>(EventsRequest{seq, kEventsAtOnce}, kAnswerTimeout));
    for (const Event& event : reply.events) {
      PrintEvent(event, io);
      seq = event.seq;
    }
    io.out << std::flush;
    if (reply.events.empty() || seq >= reply.last_seq) return absl::OkStatus();
  }
}

absl::StatusOr<ExplainRequest> ReadExplain(const std::vector<std::string>& words) {
  if (words[0] == "version") return ExplainRequest{ExplainKind::kVersion, words[1]};
  if (words[0] == "sampler") return ExplainRequest{ExplainKind::kSampler, words[1]};
  if (words[0] == "rollout") return ExplainRequest{ExplainKind::kRollout, words[1]};
  return absl::InvalidArgumentError(
      absl::StrCat("explain takes version N, sampler NAME or rollout ID, got '", words[0], "'"));
}

absl::StatusOr<int> Act(const Args& args, OperatorAct act, Io& io) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto session, OpenOperator(args));
  transport::RequestOptions once;
  once.resend = false;
  LOCKSTEP_ASSIGN_OR_RETURN(const ActReply reply,
                            session->Call<ActReply>(std::move(act), kActTimeout, once));
  if (io.format == Format::kJson) {
    io.out << JsonLine({{"done", reply.done}, {"message", reply.message}}) << "\n";
  } else {
    (reply.done ? io.out : io.err) << reply.message << "\n";
  }
  return reply.done ? kExitConverged : kExitRefused;
}

struct WaitRequest {
  WaitGoal goal;
  absl::Duration timeout;
};

absl::StatusOr<WaitRequest> ReadWait(const Args& args) {
  WaitRequest request;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto version, args.U64("--version"));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto samplers, args.U64("--samplers"));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto timeout, args.Number("--timeout"));
  if (!version.has_value() || !timeout.has_value()) {
    return absl::InvalidArgumentError("wait needs --version N and --timeout SECONDS");
  }
  if (*timeout < 0 || *timeout > kMaxTimeoutSeconds) {
    return absl::InvalidArgumentError(
        absl::StrCat("--timeout takes 0 to ", kMaxTimeoutSeconds, " seconds, got ", *timeout));
  }
  request.goal = {*version, samplers.value_or(1)};
  request.timeout = absl::Seconds(*timeout);
  return request;
}

struct WaitResult {
  WaitVerdict verdict;
  int exit_code = kExitTimedOut;
};

absl::StatusOr<WaitResult> WaitFor(transport::ClientSession& session, const WaitRequest& request) {
  const absl::Time deadline = absl::Now() + request.timeout;
  WaitResult result;
  result.verdict.why = "the bridge did not answer";
  for (;;) {
    // One answer is always waited for: --timeout 0 asks how things are.
    const absl::StatusOr<StatusReply> status =
        AskStatus(session, std::max(deadline - absl::Now(), absl::Seconds(1)));
    if (!status.ok() && !absl::IsDeadlineExceeded(status.status())) return status.status();
    if (status.ok()) {
      result.verdict = JudgeWait(*status, request.goal);
      if (result.verdict.state == WaitState::kReached) result.exit_code = kExitConverged;
      if (result.verdict.state == WaitState::kHopeless) result.exit_code = kExitHopeless;
      if (result.verdict.state != WaitState::kNotYet) return result;
    }
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return result;
    absl::SleepFor(std::min(left, kLookEvery));
  }
}

absl::StatusOr<int> Events(const Args& args, Io& io) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto after, args.U64("--after"));
  std::optional<StopSignal> stop;
  if (args.Has("--follow")) {
    LOCKSTEP_ASSIGN_OR_RETURN(stop, StopSignal::Make());
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto session, OpenOperator(args));
  uint64_t seq = after.value_or(0);
  LOCKSTEP_RETURN_IF_ERROR(PrintEventsAfter(*session, seq, io));
  while (stop.has_value() && !stop->Wait(kFollowEvery)) {
    const absl::Status status = PrintEventsAfter(*session, seq, io);
    // A bridge that restarts is waited for.
    if (!status.ok() && !absl::IsDeadlineExceeded(status)) return status;
  }
  return kExitConverged;
}

absl::StatusOr<int> Explain(const Args& args, Io& io) {
  LOCKSTEP_ASSIGN_OR_RETURN(ExplainRequest request, ReadExplain(args.words()));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto session, OpenOperator(args));
  LOCKSTEP_ASSIGN_OR_RETURN(const ExplainReply reply,
                            session->Call<ExplainReply>(request, kAnswerTimeout));
  if (io.format == Format::kJson) {
    io.out << JsonLine(ExplainJson(reply)) << "\n";
  } else if (reply.found) {
    io.out << ExplainText(reply, io);
  }
  if (reply.found) return kExitConverged;
  return absl::NotFoundError(absl::StrCat(
      "the bridge knows no ", args.words()[0], " '", args.words()[1],
      "'; `lockstep status` lists versions and samplers, `lockstep rollout submit -o json` prints "
      "the ids of rollouts"));
}

absl::StatusOr<int> Wait(const Args& args, Io& io) {
  LOCKSTEP_ASSIGN_OR_RETURN(const WaitRequest request, ReadWait(args));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto session, OpenOperator(args));
  LOCKSTEP_ASSIGN_OR_RETURN(const WaitResult result, WaitFor(*session, request));
  const WaitVerdict& verdict = result.verdict;
  const char* name = result.exit_code == kExitConverged  ? "reached"
                     : result.exit_code == kExitHopeless ? "hopeless"
                                                         : "timed_out";
  if (io.format == Format::kJson) {
    io.out << JsonLine({{"result", name},
                        {"version", request.goal.version},
                        {"samplers", request.goal.samplers},
                        {"live", verdict.live},
                        {"why", verdict.why}})
           << "\n";
  } else if (result.exit_code == kExitConverged) {
    io.out << "version " << request.goal.version << " is live on " << verdict.live.size()
           << (verdict.live.size() == 1 ? " sampler" : " samplers") << "\n";
  }
  if (result.exit_code == kExitTimedOut) {
    io.err << "lockstep wait: timed out after " << absl::FormatDuration(request.timeout) << ": "
           << verdict.why << "\n";
  } else if (result.exit_code == kExitHopeless) {
    io.err << "lockstep wait: can no longer succeed: " << verdict.why << "\n";
  }
  return result.exit_code;
}

absl::StatusOr<int> Rollback(const Args& args, Io& io) {
  return Act(args, {OperatorAction::kRollback, args.words().empty() ? "" : args.words()[0]}, io);
}

absl::StatusOr<int> Retire(const Args& args, Io& io) {
  return Act(args, {OperatorAction::kRetire, args.words()[0]}, io);
}

absl::StatusOr<int> Release(const Args& args, Io& io) {
  return Act(args, {OperatorAction::kQuarantineRelease, args.words()[0]}, io);
}

}  // namespace

std::vector<Command> InquiryCommands() {
  return {
      {.name = "events",
       .help = "what happened, in order",
       .flags = WithBridgeFlags({{"--follow", "", "go on with what happens from now on"},
                                 {"--after", "SEQ", "only events after this number"}}),
       .run = Events},
      {.name = "explain",
       .words = "version|sampler|rollout ID",
       .min_words = 2,
       .max_words = 2,
       .help = "why a version, a sampler or a rollout is as it is, with the numbers",
       .flags = WithBridgeFlags({}),
       .run = Explain},
      {.name = "wait",
       .help = "return when that many samplers are live on a version",
       .details =
           "Refused samplers do not count. Exits with 0 when it is so, 5 when the time is over, "
           "and 6 when\nit can no longer be: the version is retired, or a newer one is sealed and "
           "no sampler is still\non its way. --samplers 0 waits until the version is sealed.\n",
       .flags = WithBridgeFlags({{"--version", "N", "the version; needed"},
                                 {"--samplers", "N", "how many; default 1"},
                                 {"--timeout", "SECONDS", "how long at most; needed"}}),
       .run = Wait},
  };
}

std::vector<Command> ActCommands() {
  return {
      {.name = "rollback",
       .words = "[VERSION]",
       .max_words = 1,
       .help = "bring an earlier version's bytes back as a new version",
       .details = "Without VERSION: the one before the newest that samplers served.\n",
       .flags = WithBridgeFlags({}),
       .run = Rollback},
      {.name = "retire",
       .words = "VERSION",
       .min_words = 1,
       .max_words = 1,
       .help = "give an old version's bytes up",
       .flags = WithBridgeFlags({}),
       .run = Retire},
      {.name = "quarantine release",
       .words = "SAMPLER",
       .min_words = 1,
       .max_words = 1,
       .help = "take a quarantined sampler back; it is synced anew",
       .flags = WithBridgeFlags({}),
       .run = Release},
  };
}

}  // namespace lockstep::tools
