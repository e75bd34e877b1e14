// rollout submit: recorded rollouts, judged.

#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "policy/status_macros.h"
#include "tools/cli/bridge_commands.h"
#include "tools/cli/bridge_connect.h"
#include "tools/cli/bridge_json.h"
#include "tools/cli/bridge_submit.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/json_line.h"

namespace lockstep::tools {
namespace {

constexpr double kMaxAnswerSeconds = 24 * 3600;

// What became of the lines of a file.
struct Totals {
  uint64_t admitted = 0;
  uint64_t pending = 0;
  uint64_t unreadable = 0;
  std::map<std::string, uint64_t> refused;  // by first reason

  uint64_t refused_count() const {
    uint64_t count = 0;
    for (const auto& [reason, n] : refused) count += n;
    return count;
  }
};

void Count(const SubmittedLine& line, Totals& totals) {
  if (!line.decision.ok()) {
    ++totals.unreadable;
    return;
  }
  switch (line.decision->kind) {
    case DecisionKind::kAdmit:
      ++totals.admitted;
      return;
    case DecisionKind::kPending:
      ++totals.pending;
      return;
    case DecisionKind::kRefuse:
      const auto& reasons = line.decision->reasons;
      ++totals.refused[reasons.empty() ? "no reason"
                                       : std::string(RefusalCodeName(reasons.front().code))];
  }
}

// A line that cannot be read has no id and no decision of the bridge's; it is refused here.
nlohmann::json LineJson(const SubmittedLine& line) {
  if (line.decision.ok()) {
    nlohmann::json out = DecisionJson(*line.decision);
    out["line"] = line.number;
    return out;
  }
  Decision unreadable;
  unreadable.reasons = {{RefusalCode::kBadMessage, absl::StrCat("line ", line.number),
                         std::string(line.decision.status().message())}};
  nlohmann::json out = DecisionJson(unreadable);
  out["id"] = nullptr;
  out["line"] = line.number;
  return out;
}

std::string LineText(const SubmittedLine& line) {
  std::string text = absl::StrCat("line ", line.number, ": ");
  if (!line.decision.ok()) {
    return absl::StrCat(text, "unreadable: ", line.decision.status().message());
  }
  const Decision& decision = *line.decision;
  switch (decision.kind) {
    case DecisionKind::kAdmit:
      absl::StrAppend(&text, "admitted");
      break;
    case DecisionKind::kPending:
      absl::StrAppend(&text, "pending");
      break;
    case DecisionKind::kRefuse:
      absl::StrAppend(&text, "refused, ",
                      absl::StrJoin(decision.reasons, "; ", [](std::string* out, const Refusal& r) {
                        absl::StrAppend(out, RefusalCodeName(r.code), ": ", r.message);
                      }));
  }
  absl::StrAppend(&text, "  (", decision.rollout_id);
  if (decision.compared) {
    absl::StrAppendFormat(&text, ", k3 %.6g, %d of %d tokens differ", decision.k3,
                          decision.mismatched_tokens, decision.compared_tokens);
  }
  return absl::StrCat(text, ")");
}

std::string TotalsText(const Totals& totals) {
  const uint64_t refused = totals.refused_count();
  std::string text =
      absl::StrCat(totals.admitted + totals.pending + totals.unreadable + refused,
                   " rollouts: ", totals.admitted, " admitted, ", refused, " refused");
  if (refused > 0) {
    absl::StrAppend(&text, " (", absl::StrJoin(totals.refused, ", ", absl::PairFormatter(" ")),
                    ")");
  }
  if (totals.pending > 0) {
    absl::StrAppend(&text, ", ", totals.pending, " pending (wait for the trainer's re-scoring)");
  }
  if (totals.unreadable > 0) absl::StrAppend(&text, ", ", totals.unreadable, " unreadable");
  return text;
}

// 0 only when every line was admitted: a script that goes on then may train on all of them.
int CodeOf(const Totals& totals) {
  if (totals.refused_count() + totals.pending + totals.unreadable == 0) return kExitConverged;
  if (totals.admitted + totals.pending > 0) return kExitDegraded;
  return totals.refused.empty() ? kExitUsage : kExitRefused;
}

absl::StatusOr<SubmitOptions> ReadOptions(const Args& args) {
  SubmitOptions options;
  options.sampler = args.TextOr("--sampler", "");
  constexpr absl::string_view kLevels[] = {"weights", "kernels", "tokens"};
  LOCKSTEP_ASSIGN_OR_RETURN(const auto given, args.OneOf("--level", kLevels));
  const std::string level = given.value_or("tokens");
  if (level == "weights") options.level = AdmissionLevel::kWeights;
  if (level == "kernels") options.level = AdmissionLevel::kKernels;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto timeout, args.Number("--timeout"));
  if (timeout.has_value()) {
    if (*timeout <= 0 || *timeout > kMaxAnswerSeconds) {
      return absl::InvalidArgumentError(
          absl::StrCat("--timeout takes up to ", kMaxAnswerSeconds, " seconds, got ", *timeout));
    }
    options.answer_timeout = absl::Seconds(*timeout);
  }
  return options;
}

absl::StatusOr<int> Submit(const Args& args, Io& io) {
  LOCKSTEP_ASSIGN_OR_RETURN(const SubmitOptions options, ReadOptions(args));
  const std::string& path = args.words()[0];
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return absl::NotFoundError(
        absl::StrCat("cannot read '", path, "'; name a file with one rollout a line"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto session, OpenOperator(args));
  Totals totals;
  RolloutFile file(in);
  LOCKSTEP_RETURN_IF_ERROR(SubmitRollouts(
      file, options,
      [&session](SubmitRolloutFor message, SubmitAnswer answer) {
        session->Request(std::move(message), std::move(answer));
      },
      [&](const SubmittedLine& line) {
        Count(line, totals);
        if (!line.decision.ok()) {
          io.err << "lockstep rollout submit: " << path << " " << LineText(line) << "\n";
        }
        const bool admitted = line.decision.ok() && line.decision->kind == DecisionKind::kAdmit;
        if (io.format == Format::kJson) {
          io.out << JsonLine(LineJson(line)) << "\n";
        } else if (io.format == Format::kWide || (line.decision.ok() && !admitted)) {
          io.out << LineText(line) << "\n";
        }
      }));
  (io.format == Format::kJson ? io.err : io.out) << TotalsText(totals) << "\n";
  return CodeOf(totals);
}

}  // namespace

std::vector<Command> RolloutCommands() {
  return {{
      .name = "rollout submit",
      .words = "FILE.jsonl",
      .min_words = 1,
      .max_words = 1,
      .help = "submit recorded rollouts, one a line, and print what was decided",
      .details =
          "A line has policy_version (or spans: [[version, start, end], ...]), tokens, "
          "sampler_logprobs,\nand may have trainer_logprobs (taken as the trainer's re-scoring) "
          "and "
          "id. Without an id it is\nthe BLAKE2b-256 of the line in canonical form: keys sorted, no "
          "white space, floats as the hex\ndigits of their float32 bits. The same id and content "
          "gives the same answer again.\n\n"
          "The table shows what was not admitted, -o wide every line, -o json one object a line in "
          "the\norder of the file. A line that cannot be read is refused by its number and the "
          "rest go on.\nExits with 0 when every line was admitted, 1 when some were, 4 when none "
          "was, 2 when no line\ncould be read. Pending counts as not admitted.\n",
      .flags = WithBridgeFlags(
          {{"--sampler", "NAME",
            "who decoded them; default the first by name that is live on the "
            "version"},
           {"--level", "LEVEL", "weights, kernels or tokens (default); each includes those before"},
           {"--timeout", "SECONDS", "for one answer; default 60"}}),
      .run = Submit,
  }};
}

}  // namespace lockstep::tools
