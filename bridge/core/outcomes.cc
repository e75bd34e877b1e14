#include "bridge/core/outcomes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "bridge/core/emit.h"
#include "bridge/core/rounds.h"

namespace lockstep::core {

const ReplyTo& OutcomeReply(const Publish& publish) {
  return publish.seal.seq != 0 ? publish.seal : publish.offer;
}

void ExpectSamplers(const Machine& m, const Version& version, Publish& publish) {
  for (const auto& [name, sampler] : m.samplers) {
    const bool takes = sampler.connected && sampler.state != SamplerState::kWaiting &&
                       sampler.state != SamplerState::kRefused &&
                       sampler.state != SamplerState::kQuarantined &&
                       sampler.state != SamplerState::kGone;
    if (!takes || sampler.live_version == version.record.version) continue;
    publish.waiting.insert(name);
    publish.outcomes.erase(name);
  }
}

void SupersedeOlder(Machine& m, uint64_t newer) {
  const Refusal why{RefusalCode::kVersionBackwards, VersionSubject(newer),
                    absl::StrCat("version ", newer, " was sealed meanwhile and is taken instead")};
  for (auto& [number, version] : m.versions) {
    if (number >= newer || !version.publish.has_value()) continue;
    const std::set<std::string> waiting = version.publish->waiting;
    for (const std::string& name : waiting) {
      Sampler& sampler = m.samplers.at(name);
      const bool here = sampler.round.has_value() && sampler.round->version == number;
      if (here && sampler.round->phase != RoundPhase::kReceiving) continue;
      if (here) AbortRound(m, sampler, why);
      ReportOutcome(m, number, sampler, "superseded", {why});
      if (!version.publish.has_value()) break;
    }
  }
}

void ReportOutcome(Machine& m, uint64_t version, const Sampler& sampler, std::string state,
                   std::vector<Refusal> refusals) {
  Version* found = Find(m.versions, version);
  if (found == nullptr || !found->publish.has_value()) return;
  Publish& publish = *found->publish;
  SamplerOutcome& outcome = publish.outcomes[sampler.name];
  outcome.sampler = sampler.name;
  outcome.state = std::move(state);
  outcome.refusals = std::move(refusals);
  outcome.components_verified = sampler.components_verified;
  outcome.components_total = sampler.components_total;
  outcome.elapsed_ms = static_cast<uint64_t>(m.time.now_ms - publish.started_ms);
  publish.waiting.erase(sampler.name);
  MaybeAnswerPublish(m, *found);
}

void ReportToWaiting(Machine& m, const Sampler& sampler, const std::string& state,
                     const std::vector<Refusal>& refusals, std::optional<uint64_t> also) {
  for (auto& [number, version] : m.versions) {
    if (!version.publish.has_value()) continue;
    if (version.publish->waiting.contains(sampler.name) || number == also) {
      ReportOutcome(m, number, sampler, state, refusals);
    }
  }
}

void MaybeAnswerPublish(Machine& m, Version& version) {
  if (!version.publish.has_value()) return;
  Publish& publish = *version.publish;
  if (!publish.sealed || !publish.waiting.empty() || publish.spool_work != 0 ||
      publish.compare_work != 0) {
    return;
  }
  for (const auto& [name, sampler] : m.samplers) {
    if (publish.outcomes.contains(name)) continue;
    const bool live = sampler.live_version == version.record.version;
    if (!live && !sampler.connected && sampler.state != SamplerState::kRefused) continue;
    SamplerOutcome outcome;
    outcome.sampler = name;
    outcome.state = live ? "live" : std::string(SamplerStateName(sampler.state));
    outcome.refusals = sampler.reasons;
    if (live) {
      outcome.components_verified = sampler.components_verified;
      outcome.components_total = sampler.components_total;
    }
    publish.outcomes[name] = std::move(outcome);
  }
  PublishOutcome answer;
  answer.version = version.record.version;
  answer.zero_change = version.record.zero_change;
  answer.nan_elements = version.record.nan_elements;
  for (auto& [name, outcome] : publish.outcomes) answer.samplers.push_back(std::move(outcome));
  const ReplyTo reply = OutcomeReply(publish);
  version.publish.reset();
  Answer(m, reply, std::move(answer));
}

}  // namespace lockstep::core
