#include <algorithm>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "policy/safetensors.h"
#include "policy/status_macros.h"
#include "tools/story/story.h"

namespace lockstep::tools {
namespace {

std::string CellText(const SamplerCell& cell) {
  if (cell.components_total == 0) return cell.state;
  return absl::StrCat(cell.state, " ", cell.components_verified, "/", cell.components_total);
}

std::string VersionLine(const VersionRow& row) {
  const std::string changed = row.changed < 0 ? "-" : absl::StrFormat("%.2f %%", row.changed * 100);
  const std::string s1 = row.samplers.empty() ? "-" : CellText(row.samplers[0]);
  const std::string s2 = row.samplers.size() < 2 ? "-" : CellText(row.samplers[1]);
  return absl::StrFormat("%7d  %9.2f  %7s  %-13s  %-13s  %-14s  %8d  %8d  %7d\n", row.version,
                         static_cast<double>(row.bytes) / 1e6, changed, s1, s2,
                         row.dumps_equal ? "equal" : "DIFFERENT", row.rollouts, row.admitted,
                         row.refused);
}

// The bytes of a safetensors file after its header.
absl::StatusOr<std::vector<char>> DataOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file || bytes.size() < 8) {
    return absl::NotFoundError(absl::StrCat("cannot read '", path, "' as a safetensors file"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t end,
                            SafetensorsHeaderEnd(bytes.size(), {bytes.data(), 8}));
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(end));
  return bytes;
}

}  // namespace

absl::StatusOr<double> ChangedShare(const std::string& before, const std::string& after) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<char> a, DataOf(before));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<char> b, DataOf(after));
  if (a.size() != b.size() || a.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", before, "' and '", after, "' are not of one layout"));
  }
  uint64_t changed = 0;
  for (size_t i = 0; i + 1 < a.size(); i += 2) changed += a[i] != b[i] || a[i + 1] != b[i + 1];
  return static_cast<double>(changed) / (static_cast<double>(a.size()) / 2);
}

std::string ReportText(const StoryReport& report) {
  std::string text = absl::StrCat("\n", report.title, "\ncontract ", report.contract, "\n\n");
  absl::StrAppendFormat(&text, "%7s  %9s  %7s  %-13s  %-13s  %-14s  %8s  %8s  %7s\n", "version",
                        "MB", "changed", "s1 (shm)", "s2 (tcp)", "served bytes", "rollouts",
                        "admitted", "refused");
  for (const VersionRow& row : report.versions) text += VersionLine(row);
  absl::StrAppend(&text, "\ns3 refused: ", report.odd_reason, "\n");
  for (const RefusedRollout& rollout : report.refused) {
    absl::StrAppendFormat(&text,
                          "rollout %s (version %d) refused: %s: %d token differs by %.3g; "
                          "K3 is %.2g in float64, and %g in float32 as usually computed, which "
                          "would have let it pass\n",
                          rollout.id.substr(0, 12), rollout.version, rollout.reason,
                          rollout.mismatched_tokens, rollout.max_abs_diff, rollout.k3,
                          rollout.k3_float32);
  }
  text += "\n";
  for (const Expectation& expectation : report.expectations) {
    absl::StrAppend(&text, expectation.held ? "  held    " : "  FAILED  ", expectation.claim);
    if (!expectation.held && !expectation.seen.empty()) {
      absl::StrAppend(&text, " (seen: ", expectation.seen, ")");
    }
    text += "\n";
  }
  absl::StrAppendFormat(&text, "\n%.1f s\n", report.seconds);
  return text;
}

}  // namespace lockstep::tools
