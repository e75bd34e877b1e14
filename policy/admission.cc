#include "policy/admission.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "policy/logprob_compare.h"
#include "policy/refusal_list.h"
#include "policy/ticket.h"

namespace lockstep {
namespace {

std::string Bits(uint32_t bits) { return absl::StrFormat("0x%08x", bits); }

// One judgement in progress; each Check adds its reasons, in the order of contracts.md.
class Judge {
 public:
  Judge(const Rollout& rollout, const AdmissionFacts& facts, const AdmissionPolicy& policy,
        Decision& decision)
      : rollout_(rollout),
        facts_(facts),
        policy_(policy),
        decision_(decision),
        name_(absl::CHexEscape(rollout.sampler.substr(0, 80))) {}

  // False when the rollout is too large to be looked at any further.
  bool CheckLimits();
  void CheckPeer();
  void CheckContract();
  void CheckVersions();
  void CheckSpans();
  void CheckCache();
  void CheckLag();
  void CheckDigests();
  void CheckProbes();
  void CheckLogprobs();
  void CheckDuplicate();
  void CheckTicketGenuine();

  bool awaits_rescore() const { return awaits_rescore_; }
  std::vector<Refusal> Take();

 private:
  void Add(RefusalCode code, std::string key, std::string message) {
    found_[code].Add(code, std::move(key), std::move(message));
  }
  bool HistoryApplies() const {
    return facts_.sampler.known && facts_.sampler.live_incarnation == rollout_.incarnation;
  }
  // The activation that a span of `version` was decoded under, or the version's first one
  // when all are later than the rollout's cache epoch; npos when there is none.
  static constexpr size_t npos = static_cast<size_t>(-1);
  size_t ActivationOf(uint64_t version) const;
  void CheckUsableLogprobs();
  void CompareWithTrainer();
  void JudgeComparison();

  const Rollout& rollout_;
  const AdmissionFacts& facts_;
  const AdmissionPolicy& policy_;
  Decision& decision_;
  const std::string name_;  // of the sampler, fit for a message
  // One list a code, so that many reasons of one kind never crowd out another kind. The codes
  // are declared in the order of the checks.
  std::map<RefusalCode, RefusalList> found_;
  // Activations the spans rest on, by their place in the history.
  std::set<size_t> used_;
  bool awaits_rescore_ = false;
};

std::vector<Refusal> Judge::Take() {
  std::vector<Refusal> all;
  for (auto& [code, list] : found_) {
    for (Refusal& refusal : std::move(list).Take()) all.push_back(std::move(refusal));
  }
  return all;
}

size_t Judge::ActivationOf(uint64_t version) const {
  size_t first = npos;
  size_t newest_in_time = npos;
  const auto& history = facts_.sampler.activations;
  for (size_t i = 0; i < history.size(); ++i) {
    if (history[i].version != version) continue;
    if (first == npos) first = i;
    if (history[i].cache_epoch <= rollout_.cache_epoch) newest_in_time = i;
  }
  return newest_in_time != npos ? newest_in_time : first;
}

bool Judge::CheckLimits() {
  const auto limit = [this](absl::string_view what, uint64_t got, uint64_t most) {
    if (got <= most) return;
    Add(RefusalCode::kLimitExceeded, std::string(what),
        absl::StrCat("the rollout has ", got, " ", what, "; the limit is ", most));
  };
  limit("id bytes", rollout_.id.size(), kMaxRolloutIdBytes);
  limit("tokens", rollout_.tokens.size(), kMaxRolloutTokens);
  limit("spans", rollout_.spans.size(), kMaxRolloutSpans);
  limit("log-probabilities", rollout_.sampler_logprobs.size(), kMaxRolloutTokens);
  limit("trainer log-probabilities", facts_.trainer_logprobs.size(), kMaxRolloutTokens);
  return found_.empty();
}

void Judge::CheckPeer() {
  if (!facts_.sampler.known) {
    Add(RefusalCode::kUnknownPeer, name_,
        absl::StrCat("no sampler '", name_, "' is registered in run '", facts_.run,
                     "'; submit from a registered sampler"));
    return;
  }
  if (!facts_.sampler.live_incarnation.has_value()) {
    Add(RefusalCode::kStaleIncarnation, name_,
        absl::StrCat("sampler '", name_,
                     "' is gone; its rollouts can no longer be traced to "
                     "what it served"));
  } else if (*facts_.sampler.live_incarnation != rollout_.incarnation) {
    Add(RefusalCode::kStaleIncarnation, name_,
        absl::StrCat("the rollout comes from incarnation ", ToHex(rollout_.incarnation),
                     " of sampler '", name_, "', which now runs as ",
                     ToHex(*facts_.sampler.live_incarnation), "; drop it"));
  }
  if (facts_.sampler.fenced) {
    Add(RefusalCode::kQuarantined, name_,
        absl::StrCat("sampler '", name_, "' is quarantined",
                     facts_.sampler.fence_reason.empty() ? "" : ": ", facts_.sampler.fence_reason,
                     "; release it or restart it first"));
  }
}

void Judge::CheckContract() {
  if (!facts_.sampler.known) return;
  // Whole strings, never a prefix.
  if (!rollout_.contract_id.empty() && rollout_.contract_id == facts_.sampler.contract_id) return;
  Add(RefusalCode::kContractMismatch, "contract_id",
      absl::StrCat("the rollout was made under contract '",
                   absl::CHexEscape(rollout_.contract_id.substr(0, 80)), "', sampler '", name_,
                   "' is agreed on '", facts_.sampler.contract_id,
                   "'; a changed contract needs a new registration"));
}

void Judge::CheckVersions() {
  std::set<uint64_t> seen;
  size_t before = npos;
  for (const TokenSpan& span : rollout_.spans) {
    const std::string key = absl::StrCat("version ", span.version);
    const bool known = std::find(facts_.known_versions.begin(), facts_.known_versions.end(),
                                 span.version) != facts_.known_versions.end();
    if (!known) {
      if (seen.insert(span.version).second) {
        Add(RefusalCode::kUnknownVersion, key,
            absl::StrCat("version ", span.version, " was never sealed in run '", facts_.run,
                         "'; stamp tokens with the version that Live named"));
      }
      continue;
    }
    if (!HistoryApplies()) continue;
    const size_t at = ActivationOf(span.version);
    if (at == npos) {
      if (seen.insert(span.version).second) {
        Add(RefusalCode::kVersionNotLive, key,
            absl::StrCat("version ", span.version, " was never live on sampler '", name_,
                         "' since it started; stamp tokens when they are decoded"));
      }
      continue;
    }
    if (before != npos && at < before) {
      Add(RefusalCode::kVersionNotLive, key,
          absl::StrCat("tokens from ", span.start, " on are stamped with version ", span.version,
                       ", but sampler '", name_, "' had already moved on to version ",
                       facts_.sampler.activations[before].version));
    }
    before = at;
    used_.insert(at);
  }
}

void Judge::CheckSpans() {
  const uint64_t tokens = rollout_.tokens.size();
  const auto bad = [this](std::string why) {
    Add(RefusalCode::kBadSpans, "spans",
        absl::StrCat(why, "; spans must cover every token once, in order"));
  };
  if (tokens == 0) return bad("the rollout has no tokens");
  if (rollout_.spans.empty()) return bad("the rollout has no spans");
  uint64_t covered = 0;
  for (const TokenSpan& span : rollout_.spans) {
    if (span.start != covered || span.end <= span.start) {
      return bad(absl::StrCat("span [", span.start, ", ", span.end, ") of version ", span.version,
                              " does not begin where the one before ended (", covered,
                              ") or is empty"));
    }
    covered = span.end;
  }
  if (covered != tokens) {
    bad(absl::StrCat("the spans end at ", covered, ", the rollout has ", tokens, " tokens"));
  }
}

void Judge::CheckCache() {
  for (size_t at : used_) {
    const ActivationFacts& activation = facts_.sampler.activations[at];
    if (rollout_.cache_epoch >= activation.cache_epoch) continue;
    Add(RefusalCode::kStaleCache, absl::StrCat("version ", activation.version),
        absl::StrCat("the rollout ended under cache epoch ", rollout_.cache_epoch, ", but version ",
                     activation.version, " went live on sampler '", name_, "' with epoch ",
                     activation.cache_epoch,
                     ": it read a prefix or KV cache of older weights; flush before going on"));
  }
}

void Judge::CheckLag() {
  if (rollout_.spans.empty()) return;
  std::set<uint64_t> versions;
  for (const TokenSpan& span : rollout_.spans) versions.insert(span.version);
  const uint64_t oldest = *versions.begin();
  const auto newer =
      std::upper_bound(facts_.live_versions.begin(), facts_.live_versions.end(), oldest);
  const auto lag = static_cast<uint64_t>(facts_.live_versions.end() - newer);
  if (lag > policy_.max_lag) {
    Add(RefusalCode::kLagExceeded, absl::StrCat("version ", oldest),
        absl::StrCat("version ", oldest, " is ", lag, " behind the newest live version ",
                     facts_.live_versions.back(), "; the policy allows ", policy_.max_lag,
                     policy_.max_lag == 0 ? " (strict)" : ""));
  }
  if (versions.size() > 1 && !policy_.allow_mixed_versions) {
    Add(RefusalCode::kMixedVersions, "spans",
        absl::StrCat("the rollout spans ", versions.size(), " versions (", oldest, " to ",
                     *versions.rbegin(),
                     ") and the policy admits one; allow mixed versions, or "
                     "abort generations at an update"));
  }
}

void Judge::CheckDigests() {
  for (size_t at : used_) {
    const ActivationFacts& activation = facts_.sampler.activations[at];
    if (activation.digests_equal) continue;
    Add(RefusalCode::kDigestMismatch, absl::StrCat("version ", activation.version),
        absl::StrCat("the bytes of version ", activation.version, " installed on sampler '", name_,
                     "' were not shown equal to the trainer's"));
  }
}

void Judge::CheckProbes() {
  if (decision_.level < AdmissionLevel::kKernels) return;
  for (size_t at : used_) {
    const ActivationFacts& activation = facts_.sampler.activations[at];
    const bool shown = activation.components_total > 0 || !facts_.sampler.exact_family;
    if (shown && activation.components_verified == activation.components_total) continue;
    Add(RefusalCode::kKernelMismatch, absl::StrCat("version ", activation.version),
        absl::StrCat("the kernel probe of version ", activation.version, " on sampler '", name_,
                     "' agreed on ", activation.components_verified, "/",
                     activation.components_total, " components; all must agree at level ",
                     AdmissionLevelName(decision_.level)));
  }
}

void Judge::CheckUsableLogprobs() {
  const auto& logprobs = rollout_.sampler_logprobs;
  const auto bad = std::find_if_not(logprobs.begin(), logprobs.end(), IsUsableLogprob);
  if (bad == logprobs.end()) return;
  const auto count = static_cast<uint64_t>(
      std::count_if(bad, logprobs.end(), [](float logprob) { return !IsUsableLogprob(logprob); }));
  Add(RefusalCode::kLogprobMismatch, absl::StrCat("token ", bad - logprobs.begin()),
      absl::StrCat(count, " of ", logprobs.size(),
                   " sampler log-probabilities can belong to no "
                   "chosen token; the first is ",
                   *bad, " at token ", bad - logprobs.begin(),
                   ": look for NaN weights or a masked logit in the sampler"));
}

void Judge::CompareWithTrainer() {
  LogprobComparison compared = CompareLogprobs(rollout_.sampler_logprobs, facts_.trainer_logprobs);
  decision_.compared = true;
  decision_.k1 = compared.k1;
  decision_.k2 = compared.k2;
  decision_.k3 = compared.k3;
  decision_.max_abs_diff = compared.max_abs_diff;
  decision_.k3_float32_naive = compared.k3_float32_naive;
  decision_.compared_tokens = compared.compared_tokens;
  decision_.mismatched_tokens = compared.mismatched_tokens;
  decision_.mismatches = std::move(compared.mismatches);
}

void Judge::JudgeComparison() {
  if (decision_.tolerance_mode) {
    const Tolerance& allowed = *policy_.tolerance;
    // Written so that a NaN exceeds every tolerance.
    if (decision_.max_abs_diff <= allowed.max_abs_delta && decision_.k3 <= allowed.mean_k3) return;
    Add(RefusalCode::kToleranceExceeded, "",
        absl::StrCat("judged by a tolerance (family none): max |d| ", decision_.max_abs_diff,
                     " against ", allowed.max_abs_delta, ", mean K3 ", decision_.k3, " against ",
                     allowed.mean_k3));
    return;
  }
  if (decision_.mismatched_tokens == 0) return;
  const TokenMismatch& first = decision_.mismatches.front();
  std::string message =
      absl::StrCat(decision_.mismatched_tokens, " of ", decision_.compared_tokens,
                   " log-probabilities differ in their bits; the first at token ", first.index,
                   ": sampler ", Bits(first.sampler_bits), ", trainer ", Bits(first.trainer_bits),
                   ", max |d| ", decision_.max_abs_diff, ", K3 ", decision_.k3, " in float64");
  if (decision_.k3_float32_naive == 0) {
    absl::StrAppend(&message,
                    " (the usual float32 K3 is 0 here and proves nothing: bits are the gate)");
  }
  Add(RefusalCode::kLogprobMismatch, absl::StrCat("token ", first.index), std::move(message));
}

void Judge::CheckLogprobs() {
  const uint64_t tokens = rollout_.tokens.size();
  const uint64_t scored = rollout_.sampler_logprobs.size();
  const bool demanded = decision_.level == AdmissionLevel::kTokens;
  CheckUsableLogprobs();
  if (scored != tokens && (demanded || scored != 0)) {
    Add(RefusalCode::kLogprobMismatch, "sampler_logprobs",
        absl::StrCat("the rollout has ", tokens, " tokens and ", scored,
                     " sampler log-probabilities; send one a token"));
    return;
  }
  decision_.tolerance_mode =
      demanded && policy_.tolerance.has_value() && !facts_.sampler.exact_family;
  if (facts_.rescore == RescoreState::kArrived) {
    if (facts_.trainer_logprobs.size() == scored) {
      CompareWithTrainer();
      if (demanded) JudgeComparison();
    } else if (demanded) {
      Add(RefusalCode::kLogprobMismatch, "trainer_logprobs",
          absl::StrCat("the trainer re-scored ", facts_.trainer_logprobs.size(),
                       " tokens of a rollout that has ", scored, "; score every token once"));
    }
  } else if (demanded && facts_.rescore == RescoreState::kTimedOut) {
    Add(RefusalCode::kRescoreTimeout, "",
        absl::StrCat("the trainer's re-scored log-probabilities did not come within ",
                     facts_.rescore_timeout_ms, " ms; is the trainer running SubmitRescore?"));
  } else if (demanded) {
    awaits_rescore_ = true;
  }
}

void Judge::CheckDuplicate() {
  if (!facts_.prior_content.has_value() || *facts_.prior_content == rollout_.content) return;
  Add(RefusalCode::kDuplicate, absl::CHexEscape(rollout_.id),
      absl::StrCat("rollout '", absl::CHexEscape(rollout_.id),
                   "' was submitted before with other content (digest ",
                   ToHex(*facts_.prior_content), ", now ", ToHex(rollout_.content),
                   "); give each rollout its own id"));
}

void Judge::CheckTicketGenuine() {
  const uint64_t version = rollout_.spans.empty() ? 0 : rollout_.spans.back().version;
  const TicketSubject subject{facts_.run, rollout_.sampler, rollout_.incarnation, version,
                              rollout_.cache_epoch};
  if (!rollout_.spans.empty() && CheckTicket(facts_.ticket_key, subject, rollout_.ticket)) return;
  Add(RefusalCode::kBadTicket, "",
      absl::StrCat("the ticket is not the one this run gave sampler '", name_, "' for version ",
                   version, " under cache epoch ", rollout_.cache_epoch,
                   "; send the ticket that came with Live"));
}

}  // namespace

Decision DecideAdmission(const Rollout& rollout, const AdmissionFacts& facts,
                         const AdmissionPolicy& policy) {
  Decision decision;
  decision.rollout_id = rollout.id.substr(0, kMaxRolloutIdBytes);
  decision.content = rollout.content;
  decision.level = std::max(rollout.level, policy.minimum_level);
  decision.sampler = rollout.sampler;
  decision.contract_id = rollout.contract_id;
  Judge judge(rollout, facts, policy, decision);
  if (judge.CheckLimits()) {
    decision.spans = rollout.spans;
    judge.CheckPeer();
    judge.CheckContract();
    judge.CheckVersions();
    judge.CheckSpans();
    judge.CheckCache();
    judge.CheckLag();
    judge.CheckDigests();
    judge.CheckProbes();
    judge.CheckLogprobs();
    judge.CheckDuplicate();
    judge.CheckTicketGenuine();
  }
  decision.reasons = judge.Take();
  if (!decision.reasons.empty()) {
    decision.kind = DecisionKind::kRefuse;
  } else if (judge.awaits_rescore()) {
    decision.kind = DecisionKind::kPending;
  } else {
    decision.kind = DecisionKind::kAdmit;
  }
  return decision;
}

absl::string_view AdmissionLevelName(AdmissionLevel level) {
  switch (level) {
    case AdmissionLevel::kWeights:
      return "weights";
    case AdmissionLevel::kKernels:
      return "kernels";
    case AdmissionLevel::kTokens:
      return "tokens";
  }
  return "unknown";
}

}  // namespace lockstep
