#include "tools/cli/bridge_json.h"

#include "absl/strings/str_format.h"
#include "policy/admission.h"
#include "policy/contract_json.h"

namespace lockstep::tools {
namespace {

using nlohmann::json;

template <typename T>
json OrNull(const std::optional<T>& value) {
  return value.has_value() ? json(*value) : json(nullptr);
}

json CountsJson(const std::vector<ReasonCount>& counts) {
  json out = json::object();
  for (const ReasonCount& count : counts) out[count.reason] = count.count;
  return out;
}

json TrainerJson(const std::optional<TrainerStatus>& trainer) {
  if (!trainer.has_value()) return nullptr;
  return {{"name", trainer->name},
          {"epoch", trainer->epoch},
          {"connected", trainer->connected},
          {"contract", trainer->contract_short},
          {"source_role", trainer->source_role}};
}

json VersionJson(const VersionStatus& version) {
  return {{"version", version.version},
          {"epoch", version.epoch},
          {"state", version.state},
          {"manifest_root", ToHex(version.manifest_root)},
          {"contract", version.contract_short},
          {"bytes", version.bytes},
          {"tensors", version.tensors},
          {"nan_elements", version.nan_elements},
          {"zero_change", version.zero_change},
          {"bytes_held", version.bytes_held},
          {"on_disk", version.on_disk},
          {"samplers_live", version.samplers_live},
          {"rollback_of", OrNull(version.rollback_of)},
          {"sealed_ms", version.sealed_wall_ms}};
}

json SamplerJson(const SamplerStatus& sampler) {
  return {{"name", sampler.name},
          {"state", sampler.state},
          {"live_version", OrNull(sampler.live_version)},
          {"transport", sampler.transport},
          {"components_verified", sampler.components_verified},
          {"components_total", sampler.components_total},
          {"reason", sampler.reason},
          {"contract", sampler.contract_short},
          {"connected", sampler.connected},
          {"bytes_sent", sampler.bytes_sent},
          {"incarnation", ToHex(sampler.incarnation)}};
}

absl::string_view DecisionName(DecisionKind kind) {
  switch (kind) {
    case DecisionKind::kAdmit:
      return "admit";
    case DecisionKind::kRefuse:
      return "refuse";
    case DecisionKind::kPending:
      return "pending";
  }
  return "refuse";
}

json MismatchesJson(const std::vector<TokenMismatch>& mismatches) {
  json out = json::array();
  for (const TokenMismatch& mismatch : mismatches) {
    out.push_back({{"token", mismatch.index},
                   {"sampler_bits", absl::StrFormat("%08x", mismatch.sampler_bits)},
                   {"trainer_bits", absl::StrFormat("%08x", mismatch.trainer_bits)}});
  }
  return out;
}

}  // namespace

json VersionsJson(const StatusReply& status) {
  json out = json::array();
  for (const VersionStatus& version : status.versions) out.push_back(VersionJson(version));
  return out;
}

json SamplersJson(const StatusReply& status) {
  json out = json::array();
  for (const SamplerStatus& sampler : status.samplers) out.push_back(SamplerJson(sampler));
  return out;
}

json StatusJson(const StatusReply& status) {
  return {{"run", status.run},
          {"contract", status.contract_short},
          {"contract_id", status.contract_id},
          {"software", status.software},
          {"listen", status.listen},
          {"uptime_ms", status.uptime_ms},
          {"draining", status.draining},
          {"trainer", TrainerJson(status.trainer)},
          {"versions", VersionsJson(status)},
          {"samplers", SamplersJson(status)},
          {"rollouts",
           {{"admitted", status.rollouts_admitted},
            {"pending", status.rollouts_pending},
            {"refused", CountsJson(status.rollouts_refused)}}},
          {"refusals", CountsJson(status.refusals)},
          {"alarms", status.alarms}};
}

json EventJson(const Event& event) {
  return {{"seq", event.seq},
          {"time_ms", event.wall_ms},
          {"kind", event.kind},
          {"subject", event.subject},
          {"text", event.text}};
}

json ExplainJson(const ExplainReply& reply) {
  json facts = json::object();
  for (const ExplainFact& fact : reply.facts) facts[fact.name] = fact.value;
  return {{"found", reply.found},
          {"headline", reply.headline},
          {"paragraphs", reply.paragraphs},
          {"facts", facts}};
}

json OutcomeJson(const PublishOutcome& outcome) {
  json samplers = json::array();
  for (const SamplerOutcome& sampler : outcome.samplers) {
    samplers.push_back({{"name", sampler.sampler},
                        {"state", sampler.state},
                        {"refusals", RefusalsJson(sampler.refusals)},
                        {"components_verified", sampler.components_verified},
                        {"components_total", sampler.components_total},
                        {"elapsed_ms", sampler.elapsed_ms}});
  }
  return {{"version", outcome.version},
          {"zero_change", outcome.zero_change},
          {"nan_elements", outcome.nan_elements},
          {"samplers", samplers}};
}

json DecisionJson(const Decision& decision) {
  json reasons = json::array();
  for (const Refusal& reason : decision.reasons) {
    reasons.push_back(std::string(RefusalCodeName(reason.code)));
  }
  json spans = json::array();
  for (const TokenSpan& span : decision.spans) {
    spans.push_back({span.version, span.start, span.end});
  }
  const auto compared = [&](auto value) { return decision.compared ? json(value) : json(nullptr); };
  return {{"id", decision.rollout_id},
          {"decision", std::string(DecisionName(decision.kind))},
          {"reasons", reasons},
          {"refusals", RefusalsJson(decision.reasons)},
          {"level", std::string(AdmissionLevelName(decision.level))},
          {"sampler", decision.sampler},
          {"contract_id", decision.contract_id},
          {"spans", spans},
          {"k1", compared(decision.k1)},
          {"k2", compared(decision.k2)},
          {"k3", compared(decision.k3)},
          {"k3_float32_naive", compared(decision.k3_float32_naive)},
          {"max_abs_diff", compared(decision.max_abs_diff)},
          {"compared_tokens", decision.compared_tokens},
          {"mismatched_tokens", compared(decision.mismatched_tokens)},
          {"mismatches", MismatchesJson(decision.mismatches)},
          {"tolerance_mode", decision.tolerance_mode}};
}

}  // namespace lockstep::tools
