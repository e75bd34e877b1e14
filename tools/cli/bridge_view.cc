#include "tools/cli/bridge_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

namespace lockstep::tools {
namespace {

std::string CountsText(const std::vector<ReasonCount>& counts) {
  return absl::StrJoin(counts, ", ", [](std::string* out, const ReasonCount& count) {
    absl::StrAppend(out, count.reason, " ", count.count);
  });
}

std::string TrainerLine(const StatusReply& status) {
  if (!status.trainer.has_value()) return "";
  const TrainerStatus& trainer = *status.trainer;
  return absl::StrCat("trainer ", trainer.name, ": ", trainer.connected ? "connected" : "gone",
                      ", epoch ", trainer.epoch, ", contract ", trainer.contract_short);
}

std::string VersionLine(const VersionStatus& version) {
  std::string line = absl::StrCat("version ", version.version, ": ", version.state);
  if (version.samplers_live > 0) {
    absl::StrAppend(&line, " on ", version.samplers_live,
                    version.samplers_live == 1 ? " sampler" : " samplers");
  }
  if (version.rollback_of.has_value()) {
    absl::StrAppend(&line, ", the bytes of version ", *version.rollback_of);
  }
  if (version.zero_change) absl::StrAppend(&line, ", zero_change");
  if (version.nan_elements > 0) absl::StrAppend(&line, ", ", version.nan_elements, " NaN");
  return line;
}

// A line for each element of `now` whose text differs from that of its namesake in `before`,
// and `gone` for those that are no more.
template <typename T, typename Name, typename Line>
void AddChanges(const std::vector<T>& before, const std::vector<T>& now, const Name& name,
                const Line& line, const std::string& gone, std::vector<std::string>& out) {
  const auto find = [&](const std::vector<T>& in, const T& wanted) {
    return std::find_if(in.begin(), in.end(),
                        [&](const T& other) { return name(other) == name(wanted); });
  };
  for (const T& element : now) {
    const auto old = find(before, element);
    if (old == before.end() || line(*old) != line(element)) out.push_back(line(element));
  }
  for (const T& element : before) {
    if (find(now, element) == now.end()) out.push_back(absl::StrCat(name(element), gone));
  }
}

bool AnyRollouts(const StatusReply& status) {
  return status.rollouts_admitted > 0 || status.rollouts_pending > 0 ||
         !status.rollouts_refused.empty();
}

}  // namespace

std::string SamplerLine(const SamplerStatus& sampler) {
  std::string line = sampler.state;
  if (sampler.live_version.has_value()) {
    absl::StrAppend(&line, sampler.state == "live" ? " on version " : ", live on version ",
                    *sampler.live_version);
  }
  if (sampler.components_total > 0) {
    absl::StrAppend(&line, ", ", sampler.components_verified, "/", sampler.components_total,
                    " components equal");
  }
  if (!sampler.transport.empty()) absl::StrAppend(&line, ", over ", sampler.transport);
  if (!sampler.reason.empty()) absl::StrAppend(&line, ": ", sampler.reason);
  return line;
}

std::string RolloutsLine(const StatusReply& status) {
  uint64_t refused = 0;
  for (const ReasonCount& count : status.rollouts_refused) refused += count.count;
  std::string line = absl::StrCat(status.rollouts_admitted, " admitted, ", refused, " refused");
  if (refused > 0) absl::StrAppend(&line, " (", CountsText(status.rollouts_refused), ")");
  return absl::StrCat(line, ", ", status.rollouts_pending, " pending");
}

std::vector<std::string> StatusChanges(const StatusReply& before, const StatusReply& now) {
  std::vector<std::string> changes;
  const std::string trainer = TrainerLine(now);
  if (trainer != TrainerLine(before) && !trainer.empty()) changes.push_back(trainer);
  AddChanges(
      before.versions, now.versions,
      [](const VersionStatus& version) { return absl::StrCat("version ", version.version); },
      VersionLine, ": forgotten", changes);
  AddChanges(
      before.samplers, now.samplers,
      [](const SamplerStatus& sampler) { return absl::StrCat("sampler ", sampler.name); },
      [](const SamplerStatus& sampler) {
        return absl::StrCat("sampler ", sampler.name, ": ", SamplerLine(sampler));
      },
      ": forgotten", changes);
  const std::string rollouts = RolloutsLine(now);
  if (AnyRollouts(now) && rollouts != RolloutsLine(before)) {
    changes.push_back(absl::StrCat("rollouts: ", rollouts));
  }
  AddChanges(
      before.alarms, now.alarms,
      [](const std::string& alarm) { return absl::StrCat("alarm: ", alarm); },
      [](const std::string& alarm) { return absl::StrCat("alarm: ", alarm); }, ": over", changes);
  if (now.draining && !before.draining) changes.push_back("the bridge is draining");
  return changes;
}

std::string BytesText(uint64_t bytes) {
  constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB"};
  if (bytes < 1000) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (value /= 1000; value >= 999.95 && unit + 1 < std::size(kUnits); value /= 1000) ++unit;
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string TimeText(uint64_t wall_ms) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(static_cast<int64_t>(wall_ms)),
                          absl::UTCTimeZone());
}

}  // namespace lockstep::tools
