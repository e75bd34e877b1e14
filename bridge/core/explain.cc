#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bridge/core/emit.h"
#include "bridge/core/status.h"
#include "policy/admission.h"

namespace lockstep::core {
namespace {

constexpr size_t kMaxNamedSamplers = 16;  // in one paragraph

std::string Short(const Digest256& digest) { return ToHex(digest).substr(0, 16); }

float AsFloat(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

std::string TokenText(uint32_t bits) {
  return absl::StrFormat("0x%08x (%.9g)", bits, static_cast<double>(AsFloat(bits)));
}

void Fact(ExplainReply& reply, std::string name, std::string value) {
  reply.facts.push_back({std::move(name), std::move(value)});
}

void ReasonParagraphs(ExplainReply& reply, const std::vector<Refusal>& reasons) {
  for (const Refusal& reason : reasons) {
    reply.paragraphs.push_back(absl::StrCat(RefusalCodeName(reason.code),
                                            reason.key.empty() ? "" : " at ", reason.key, ": ",
                                            reason.message));
  }
}

std::string NamesOf(const std::set<std::string>& names) {
  std::vector<std::string> shown;
  for (const std::string& name : names) {
    if (shown.size() == kMaxNamedSamplers) {
      shown.push_back(absl::StrCat("and ", names.size() - kMaxNamedSamplers, " more"));
      break;
    }
    shown.push_back(name);
  }
  return absl::StrJoin(shown, ", ");
}

// Who has not got the version, and why.
void AbsenteeParagraphs(const Machine& m, const Version& version, ExplainReply& reply) {
  size_t named = 0;
  for (const auto& [name, sampler] : m.samplers) {
    if (sampler.live_version == version.record.version || ++named > kMaxNamedSamplers) continue;
    const std::string why = SamplerReason(sampler);
    reply.paragraphs.push_back(absl::StrCat("Sampler ", name, " is ",
                                            SamplerStateName(sampler.state),
                                            why.empty() ? "" : " - ", why, "."));
  }
}

std::string WhatNext(const Machine& m, const Version& version) {
  switch (version.state) {
    case VersionStage::kOffered:
    case VersionStage::kTransferring:
      return "The trainer is still moving its bytes. If it stopped, its lease lapses and the "
             "version is discarded; its number may then be offered again.";
    case VersionStage::kDiscarded:
      return "It was never sealed, so no sampler serves it; its number may be offered again.";
    case VersionStage::kRetired:
      return "Nothing serves it any more and its bytes are gone; to bring them back, publish them "
             "under a new number.";
    default:
      break;
  }
  if (m.newest_sealed != version.record.version) {
    return "A newer version is sealed; samplers are taken to that one.";
  }
  if (!version.bytes_held) {
    return "The bridge no longer holds its bytes (it was restarted and they were not on disk): "
           "samplers that serve it go on, others wait for the next publish.";
  }
  return "It is the newest version: every agreed sampler is taken to it.";
}

void SamplerAdvice(const Sampler& sampler, ExplainReply& reply) {
  switch (sampler.state) {
    case SamplerState::kRefused:
      reply.paragraphs.push_back(
          "It is never sent weights. Start it again with the trainer's contract, or restart the "
          "trainer with this one; registration compares them anew.");
      return;
    case SamplerState::kQuarantined:
      reply.paragraphs.push_back(absl::StrCat(
          "It is fenced: no rounds, and its rollouts are refused. Look at its memory, its loader "
          "and its build first; then restart it, or run `lockstep quarantine release ",
          sampler.name, "`, which syncs it anew."));
      return;
    case SamplerState::kWaiting:
      reply.paragraphs.push_back("It waits for a trainer; nothing is wrong with it.");
      return;
    case SamplerState::kGone:
      reply.paragraphs.push_back(
          "Its process or connection is gone. When it comes back it registers and is synced; a "
          "new process starts empty.");
      return;
    default:
      return;
  }
}

void ComparisonFacts(const Decision& decision, ExplainReply& reply) {
  Fact(reply, "compared_tokens", absl::StrCat(decision.compared_tokens));
  Fact(reply, "mismatched_tokens", absl::StrCat(decision.mismatched_tokens));
  Fact(reply, "k1", absl::StrFormat("%.17g", decision.k1));
  Fact(reply, "k2", absl::StrFormat("%.17g", decision.k2));
  Fact(reply, "k3", absl::StrFormat("%.17g", decision.k3));
  Fact(reply, "max_abs_diff", absl::StrFormat("%.9g", decision.max_abs_diff));
  Fact(reply, "k3_float32_naive",
       absl::StrFormat("%.9g", static_cast<double>(decision.k3_float32_naive)));
  for (const TokenMismatch& token : decision.mismatches) {
    Fact(reply, absl::StrCat("token ", token.index),
         absl::StrCat("sampler ", TokenText(token.sampler_bits), ", trainer ",
                      TokenText(token.trainer_bits)));
  }
}

void ComparisonParagraphs(const Decision& decision, ExplainReply& reply) {
  if (!decision.compared || decision.mismatches.empty()) return;
  const TokenMismatch& first = decision.mismatches.front();
  const double d = static_cast<double>(AsFloat(first.trainer_bits)) -
                   static_cast<double>(AsFloat(first.sampler_bits));
  reply.paragraphs.push_back(absl::StrFormat(
      "Token %d was scored %s by the sampler when it chose it and %s by the trainer: d = %.9g. %d "
      "of %d tokens differ. K1 %.6g, K2 %.6g, K3 %.6g in float64.",
      first.index, TokenText(first.sampler_bits), TokenText(first.trainer_bits), d,
      decision.mismatched_tokens, decision.compared_tokens, decision.k1, decision.k2, decision.k3));
  if (decision.k3_float32_naive == 0) {
    reply.paragraphs.push_back(
        "The usual float32 K3, (exp(d) - d) - 1, prints 0 here: for a small d, exp(d) - d rounds "
        "to exactly 1. K3 = 0 does not prove equality; the gate compares bits.");
  }
  reply.paragraphs.push_back(
      decision.tolerance_mode
          ? "The run judges family `none` by a tolerance, not by bits."
          : "Equal weights and equal programs give equal bits. Look for a program outside the "
            "contract on one side (attention, sampling head), another batch composition where the "
            "program is not batch-invariant, or log-probabilities taken after temperature.");
}

}  // namespace

ExplainReply ExplainVersion(const Machine& m, const std::string& id, Time time) {
  ExplainReply reply;
  uint64_t number = 0;
  const Version* version = absl::SimpleAtoi(id, &number) ? Find(m.versions, number) : nullptr;
  if (version == nullptr) return reply;
  const VersionRecord& record = version->record;
  reply.found = true;
  reply.headline = absl::StrCat("version ", number, " is ", VersionStageName(version->state));
  if (!version->live_on.empty()) {
    absl::StrAppend(&reply.headline, " on ", version->live_on.size(), " samplers");
    reply.paragraphs.push_back(absl::StrCat("Served by ", NamesOf(version->live_on), "."));
  }
  if (version->publish.has_value() && !version->publish->waiting.empty()) {
    reply.paragraphs.push_back(
        absl::StrCat("Its publish (", time.now_ms - version->publish->started_ms,
                     " ms so far) waits for ", NamesOf(version->publish->waiting), "."));
  }
  if (record.zero_change) {
    reply.paragraphs.push_back(
        "zero_change: no byte differs from the version before. If an optimizer step was made, it "
        "did not reach the published tensors.");
  }
  if (record.nan_elements > 0) {
    reply.paragraphs.push_back(absl::StrCat(record.nan_elements,
                                            " of its elements are NaN; they are synced as they "
                                            "are. Look at the training step."));
  }
  reply.paragraphs.push_back(WhatNext(m, *version));
  AbsenteeParagraphs(m, *version, reply);
  Fact(reply, "epoch", absl::StrCat(record.epoch));
  Fact(reply, "contract", version->contract_short);
  Fact(reply, "manifest_root", ToHex(record.digest.manifest_root));
  Fact(reply, "bytes", absl::StrCat(record.bytes));
  Fact(reply, "tensors", absl::StrCat(version->manifest->tensors.size()));
  Fact(reply, "components", absl::StrCat(record.components.size()));
  Fact(reply, "bytes_held", version->bytes_held ? "yes" : "no");
  Fact(reply, "on_disk", record.on_disk ? "yes" : "no");
  if (record.rollback_of.has_value()) {
    Fact(reply, "rollback_of", absl::StrCat(*record.rollback_of));
  }
  Fact(reply, "sealed_wall_ms", absl::StrCat(record.sealed_wall_ms));
  return reply;
}

ExplainReply ExplainSampler(const Machine& m, const std::string& id, Time time) {
  ExplainReply reply;
  const Sampler* sampler = Find(m.samplers, id);
  if (sampler == nullptr) return reply;
  reply.found = true;
  reply.headline = absl::StrCat("sampler ", id, " is ", SamplerStateName(sampler->state));
  if (!sampler->reasons.empty()) {
    absl::StrAppend(&reply.headline, ": ", RefusalCodeName(sampler->reasons.front().code));
  } else if (sampler->live_version.has_value()) {
    absl::StrAppend(&reply.headline, " on version ", *sampler->live_version);
  }
  ReasonParagraphs(reply, sampler->reasons);
  if (!sampler->note.empty()) reply.paragraphs.push_back(absl::StrCat(sampler->note, "."));
  if (sampler->round.has_value()) {
    reply.paragraphs.push_back(absl::StrCat(
        "It is being taken to version ", sampler->round->version, " over ", sampler->transport,
        ", for ", time.now_ms - sampler->round->started_ms, " ms now."));
  }
  SamplerAdvice(*sampler, reply);
  if (const Epoch* epoch = ReferenceEpoch(m)) {
    Fact(reply, "trainer_contract", epoch->contract_id);
  }
  Fact(reply, "sampler_contract", sampler->contract_id);
  Fact(reply, "incarnation", ToHex(sampler->incarnation));
  Fact(reply, "connected", sampler->connected ? "yes" : "no");
  Fact(reply, "live_version",
       sampler->live_version.has_value() ? absl::StrCat(*sampler->live_version) : "none");
  Fact(reply, "cache_epoch", absl::StrCat(sampler->cache_epoch));
  Fact(reply, "components",
       absl::StrCat(sampler->components_verified, "/", sampler->components_total));
  Fact(reply, "transport", sampler->transport);
  Fact(reply, "bytes_sent", absl::StrCat(sampler->bytes_sent));
  return reply;
}

ExplainReply ExplainRollout(const Machine& m, const std::string& id,
                            const std::optional<Decision>& stored) {
  ExplainReply reply;
  const PendingDecision* pending = Find(m.pending, id);
  const Decision* decision = pending != nullptr ? &pending->decision : Find(m.recent, id);
  if (decision == nullptr && stored.has_value()) decision = &*stored;
  if (decision == nullptr) return reply;
  reply.found = true;
  reply.headline = absl::StrCat("rollout ", id);
  switch (decision->kind) {
    case DecisionKind::kAdmit:
      absl::StrAppend(&reply.headline, " admitted at level ", AdmissionLevelName(decision->level));
      reply.paragraphs.push_back(
          decision->level == AdmissionLevel::kTokens
              ? "Bytes, kernels and every log-probability were shown equal on both sides."
              : "What its level demands was shown equal on both sides.");
      break;
    case DecisionKind::kPending:
      absl::StrAppend(&reply.headline, " pending: waits for the trainer's log-probabilities");
      reply.paragraphs.push_back(
          "Every other check passed. It is decided when the trainer submits its re-scoring, or "
          "refused with rescore_timeout.");
      break;
    case DecisionKind::kRefuse:
      absl::StrAppend(&reply.headline, " refused: ",
                      decision->reasons.empty() ? "no reason recorded"
                                                : RefusalCodeName(decision->reasons.front().code));
      break;
  }
  ReasonParagraphs(reply, decision->reasons);
  ComparisonParagraphs(*decision, reply);
  Fact(reply, "sampler", decision->sampler);
  Fact(reply, "contract", decision->contract_id);
  Fact(reply, "content", Short(decision->content));
  for (const TokenSpan& span : decision->spans) {
    Fact(reply, absl::StrCat("tokens ", span.start, "..", span.end),
         absl::StrCat("version ", span.version));
  }
  if (decision->compared) ComparisonFacts(*decision, reply);
  return reply;
}

}  // namespace lockstep::core
