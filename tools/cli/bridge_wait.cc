#include "tools/cli/bridge_wait.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lockstep::tools {
namespace {

bool InRound(const SamplerStatus& sampler) {
  return sampler.state == "receiving" || sampler.state == "sealed" ||
         sampler.state == "verifying" || sampler.state == "activating";
}

bool IsSealed(const VersionStatus& version) {
  return version.state == "sealed" || version.state == "verified" || version.state == "live" ||
         version.state == "retired";
}

std::optional<uint64_t> NewestSealed(const StatusReply& status) {
  std::optional<uint64_t> newest;
  for (const VersionStatus& version : status.versions) {
    if (IsSealed(version)) newest = version.version;
  }
  return newest;
}

const VersionStatus* FindVersion(const StatusReply& status, uint64_t number) {
  for (const VersionStatus& version : status.versions) {
    if (version.version == number) return &version;
  }
  return nullptr;
}

std::string Samplers(size_t count) {
  return absl::StrCat(count, count == 1 ? " sampler" : " samplers");
}

}  // namespace

WaitVerdict JudgeWait(const StatusReply& status, const WaitGoal& goal) {
  WaitVerdict verdict;
  bool moving = false;
  size_t refused = 0;
  for (const SamplerStatus& sampler : status.samplers) {
    if (sampler.live_version == goal.version) verdict.live.push_back(sampler.name);
    moving |= sampler.connected && InRound(sampler);
    refused += sampler.state == "refused" || sampler.state == "quarantined";
  }
  const VersionStatus* version = FindVersion(status, goal.version);
  const bool sealed = version != nullptr && IsSealed(*version);
  if (verdict.live.size() >= goal.samplers && (sealed || goal.samplers > 0)) {
    verdict.state = WaitState::kReached;
    return verdict;
  }
  const std::string number = absl::StrCat("version ", goal.version);
  const std::optional<uint64_t> newest = NewestSealed(status);
  if (version != nullptr && version->state == "retired") {
    verdict.state = WaitState::kHopeless;
    verdict.why = absl::StrCat(number, " is retired: its bytes are gone");
  } else if (newest.has_value() && *newest > goal.version && !moving) {
    verdict.state = WaitState::kHopeless;
    verdict.why = absl::StrCat("version ", *newest, " is sealed, and samplers are never taken to ",
                               "an older version; wait for that one");
  } else if (!sealed) {
    verdict.why = version == nullptr
                      ? absl::StrCat(number, " has not been offered yet")
                      : absl::StrCat(number, " is ", version->state, ", not sealed yet");
  } else {
    verdict.why = absl::StrCat(number, " is live on ", Samplers(verdict.live.size()), " of ",
                               goal.samplers, " wanted");
    if (refused > 0) {
      absl::StrAppend(&verdict.why, "; ", Samplers(refused), refused == 1 ? " is" : " are",
                      " refused or quarantined and not counted");
    }
  }
  return verdict;
}

std::vector<std::string> Degradations(const StatusReply& status) {
  std::vector<std::string> reasons(status.alarms);
  const std::optional<uint64_t> newest = NewestSealed(status);
  for (const SamplerStatus& sampler : status.samplers) {
    if (sampler.state == "quarantined") {
      const std::string sentence = absl::StrCat("sampler '", sampler.name, "' is quarantined");
      const bool alarmed =
          std::any_of(status.alarms.begin(), status.alarms.end(),
                      [&](const std::string& alarm) { return absl::StartsWith(alarm, sentence); });
      if (!alarmed) reasons.push_back(sentence);
      continue;
    }
    const bool agreed =
        sampler.connected && sampler.state != "refused" && sampler.state != "waiting";
    if (agreed && newest.has_value() && sampler.live_version != newest) {
      reasons.push_back(absl::StrCat("sampler '", sampler.name, "' is ", sampler.state,
                                     " and not live on version ", *newest));
    }
  }
  if (status.draining) reasons.push_back("the bridge is draining");
  return reasons;
}

}  // namespace lockstep::tools
