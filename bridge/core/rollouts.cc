#include "bridge/core/rollouts.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "bridge/core/emit.h"
#include "bridge/core/tickets.h"
#include "policy/admission.h"

namespace lockstep::core {
namespace {

using Logprobs = std::optional<absl::Span<const float>>;

constexpr uint64_t kMaxRefusalEvents = 32;  // single ones, between two summaries

std::string Subject(const std::string& id) { return absl::StrCat("rollout ", id); }

bool EverSealed(const Machine& m, uint64_t number) {
  const Version* version = Find(m.versions, number);
  if (version == nullptr) {
    return std::binary_search(m.live_versions.begin(), m.live_versions.end(), number);
  }
  return version->state == VersionStage::kSealed || version->state == VersionStage::kVerified ||
         version->state == VersionStage::kLive || version->state == VersionStage::kRetired;
}

// A sampler may not lower the level that the contract demands of it; an operator who submits
// recorded rollouts is asked for the level to judge them at, and the decision states it.
enum class LowestLevel { kContracts, kRolloutsOwn };

AdmissionPolicy PolicyOf(const Machine& m, LowestLevel lowest) {
  AdmissionPolicy policy;
  policy.max_lag = m.config.max_lag;
  policy.allow_mixed_versions = m.config.allow_mixed_versions;
  if (const Epoch* epoch = ReferenceEpoch(m)) {
    if (lowest == LowestLevel::kContracts) policy.minimum_level = epoch->level;
    policy.tolerance = epoch->contract.tolerance;
  }
  if (m.config.tolerance_max_abs_diff >= 0 && m.config.tolerance_mean_k3 >= 0) {
    policy.tolerance = Tolerance{static_cast<float>(m.config.tolerance_max_abs_diff),
                                 static_cast<float>(m.config.tolerance_mean_k3)};
  }
  return policy;
}

bool ExactFamily(const Machine& m) {
  const Epoch* epoch = ReferenceEpoch(m);
  return epoch == nullptr || epoch->contract.family != "none";
}

bool Names(const Rollout& rollout, uint64_t version) {
  return std::any_of(rollout.spans.begin(), rollout.spans.end(),
                     [version](const TokenSpan& span) { return span.version == version; });
}

SamplerFacts FactsOf(const Machine& m, const Rollout& rollout) {
  SamplerFacts facts;
  facts.exact_family = ExactFamily(m);
  // The agreed contract is the run's, also for a sampler that states another.
  if (const Epoch* epoch = ReferenceEpoch(m)) facts.contract_id = epoch->contract_id;
  const Sampler* sampler = Find(m.samplers, rollout.sampler);
  if (sampler == nullptr) return facts;
  facts.known = true;
  if (sampler->connected) facts.live_incarnation = sampler->incarnation;
  facts.fenced = sampler->state == SamplerState::kQuarantined;
  if (facts.fenced && !sampler->reasons.empty()) {
    facts.fence_reason = sampler->reasons.front().message;
  }
  for (const Activation& activation : sampler->history) {
    if (!Names(rollout, activation.version)) continue;
    // An activation is only ever recorded after its digests were found equal.
    facts.activations.push_back({activation.version, activation.cache_epoch,
                                 /*digests_equal=*/true, activation.components_verified,
                                 activation.components_total});
  }
  return facts;
}

void SetRescore(AdmissionFacts& facts, const Logprobs& trainer_logprobs) {
  if (!trainer_logprobs.has_value()) return;
  facts.rescore = RescoreState::kArrived;
  facts.trainer_logprobs = *trainer_logprobs;
}

AdmissionFacts GatherFacts(const Machine& m, const Rollout& rollout,
                           const Logprobs& trainer_logprobs) {
  AdmissionFacts facts;
  facts.run = m.config.run;
  facts.ticket_key = m.config.ticket_key;
  // Beyond the limit the judgement refuses before it looks at a span.
  if (rollout.spans.size() <= kMaxRolloutSpans) {
    facts.sampler = FactsOf(m, rollout);
    for (const TokenSpan& span : rollout.spans) {
      const bool listed =
          !facts.known_versions.empty() && facts.known_versions.back() == span.version;
      if (!listed && EverSealed(m, span.version)) facts.known_versions.push_back(span.version);
    }
  }
  facts.live_versions = m.live_versions;
  facts.rescore_timeout_ms = m.config.rescore_timeout_ms;
  SetRescore(facts, trainer_logprobs);
  return facts;
}

// A pending rollout passed every other check when it was submitted, and only its tokens are
// judged now: the facts below pass those checks again, whatever has happened since.
Decision DecidePending(const Machine& m, const PendingDecision& pending, RescoreState rescore,
                       absl::Span<const float> trainer_logprobs) {
  const Rollout& rollout = pending.rollout;
  AdmissionFacts facts;
  facts.run = m.config.run;
  facts.ticket_key = m.config.ticket_key;
  facts.sampler.known = true;
  facts.sampler.live_incarnation = rollout.incarnation;
  facts.sampler.contract_id = rollout.contract_id;
  facts.sampler.exact_family = pending.exact_family;
  for (const TokenSpan& span : rollout.spans) {
    facts.sampler.activations.push_back({span.version, rollout.cache_epoch, true, 1, 1});
    facts.known_versions.push_back(span.version);
  }
  facts.rescore = rescore;
  facts.trainer_logprobs = trainer_logprobs;
  facts.rescore_timeout_ms = m.config.rescore_timeout_ms;
  AdmissionPolicy policy = PolicyOf(m, LowestLevel::kRolloutsOwn);
  policy.max_lag = std::numeric_limits<uint64_t>::max();
  policy.allow_mixed_versions = true;
  policy.minimum_level = pending.decision.level;
  return DecideAdmission(rollout, facts, policy);
}

void Remember(Machine& m, const Decision& decision) {
  const auto [entry, fresh] = m.recent.insert_or_assign(decision.rollout_id, decision);
  if (!fresh) return;
  m.recent_order.push_back(decision.rollout_id);
  if (m.recent_order.size() <= kMaxRecentDecisions) return;
  m.recent.erase(m.recent_order.front());
  m.recent_order.pop_front();
}

void CountDecision(Machine& m, const Decision& decision) {
  if (m.unreported.admitted == 0 && m.unreported.refused.empty()) {
    m.timers.Set(TimerKind::kRolloutEvents, 0, m.time.now_ms + kRolloutEventsEveryMs);
  }
  if (decision.kind == DecisionKind::kAdmit) {
    ++m.rollouts.admitted;
    ++m.unreported.admitted;
    return;
  }
  const std::string reason(RefusalCodeName(decision.reasons.front().code));
  ++m.rollouts.refused[reason];
  ++m.unreported.refused[reason];
  if (++m.refusal_events > kMaxRefusalEvents) return;
  RecordEvent(m, "refuse", Subject(decision.rollout_id),
              absl::StrCat(reason, ": ", decision.reasons.front().message));
}

// The decision is final: durable, counted, remembered.
void Settle(Machine& m, const Decision& decision) {
  Record(m, DecisionRecord{decision, std::nullopt});
  CountDecision(m, decision);
  Remember(m, decision);
}

void SettlePending(Machine& m, const std::string& id, Decision decision) {
  const auto found = m.pending.find(id);
  const PendingDecision pending = std::move(found->second);
  m.pending.erase(found);
  m.pending_ids.erase(pending.number);
  m.timers.Cancel(TimerKind::kRescore, pending.number);
  Settle(m, decision);
  for (const ReplyTo& reply : pending.replies) Answer(m, reply, DecisionReply{decision});
}

void HoldPending(Machine& m, Decision decision, const Rollout& rollout, const ReplyTo& reply) {
  if (m.pending.size() >= kMaxPendingRollouts) {
    Refuse(m, reply, Subject(rollout.id),
           Refusal{RefusalCode::kLimitExceeded, rollout.id,
                   absl::StrCat(kMaxPendingRollouts,
                                " rollouts wait for the trainer's re-scoring, which is the limit; "
                                "submit again once the trainer has caught up")},
           /*final=*/false);
    return;
  }
  const uint64_t number = m.next_pending++;
  m.timers.Set(TimerKind::kRescore, number, m.time.now_ms + m.config.rescore_timeout_ms);
  m.pending_ids[number] = rollout.id;
  Record(m, DecisionRecord{decision, rollout});
  Answer(m, reply, DecisionReply{decision});
  m.pending[rollout.id] =
      PendingDecision{std::move(decision), rollout, number, ExactFamily(m), {reply}};
}

// A known id with other content. The decision that stands is not touched.
void AnswerDuplicate(Machine& m, const Rollout& rollout, const ReplyTo& reply,
                     const Digest256& prior_content, LowestLevel lowest) {
  AdmissionFacts facts = GatherFacts(m, rollout, std::nullopt);
  facts.prior_content = prior_content;
  Decision decision = DecideAdmission(rollout, facts, PolicyOf(m, lowest));
  CountRefusal(m, Subject(rollout.id), decision.reasons.back());
  Answer(m, reply, DecisionReply{std::move(decision)});
}

const Decision* DecisionOf(const Machine& m, const std::string& id,
                           const std::optional<Decision>& prior) {
  if (const Decision* recent = Find(m.recent, id)) return recent;
  const bool decided = prior.has_value() && prior->kind != DecisionKind::kPending;
  return decided ? &*prior : nullptr;
}

void Submit(Machine& m, const Rollout& rollout, const ReplyTo& reply,
            const std::optional<Decision>& prior, const Logprobs& trainer_logprobs,
            LowestLevel lowest) {
  if (PendingDecision* pending = Find(m.pending, rollout.id)) {
    if (pending->rollout.content != rollout.content) {
      return AnswerDuplicate(m, rollout, reply, pending->rollout.content, lowest);
    }
    if (pending->replies.size() >= kMaxRepliesPerPending) {
      pending->replies.erase(pending->replies.begin());
    }
    pending->replies.push_back(reply);
    if (trainer_logprobs.has_value()) {
      SettlePending(m, rollout.id,
                    DecidePending(m, *pending, RescoreState::kArrived, *trainer_logprobs));
    } else {
      Answer(m, reply, DecisionReply{pending->decision});
    }
    return;
  }
  if (const Decision* decided = DecisionOf(m, rollout.id, prior)) {
    if (decided->content != rollout.content) {
      return AnswerDuplicate(m, rollout, reply, decided->content, lowest);
    }
    return Answer(m, reply, DecisionReply{*decided});
  }
  Decision decision =
      DecideAdmission(rollout, GatherFacts(m, rollout, trainer_logprobs), PolicyOf(m, lowest));
  if (decision.kind == DecisionKind::kPending) {
    return HoldPending(m, std::move(decision), rollout, reply);
  }
  Settle(m, decision);
  Answer(m, reply, DecisionReply{std::move(decision)});
}

// Refused before it is looked at: its id could not name a decision.
bool BadId(Machine& m, const Rollout& rollout, const ReplyTo& reply) {
  if (rollout.id.size() <= kMaxRolloutIdBytes) return false;
  Refuse(m, reply, "rollout",
         Refusal{RefusalCode::kLimitExceeded, "id",
                 absl::StrCat("a rollout's id has at most ", kMaxRolloutIdBytes,
                              " bytes, this has ", rollout.id.size())});
  return true;
}

const Activation* NewestActivation(const Sampler& sampler, uint64_t version) {
  for (auto it = sampler.history.rbegin(); it != sampler.history.rend(); ++it) {
    if (it->version == version) return &*it;
  }
  return nullptr;
}

// By name: live on the version now, else the first that ever had it, else the first live.
const Sampler* ChooseSampler(const Machine& m, std::optional<uint64_t> number) {
  const Version* version = number.has_value() ? Find(m.versions, *number) : nullptr;
  if (version != nullptr && !version->live_on.empty()) {
    return Find(m.samplers, *version->live_on.begin());
  }
  const Sampler* first_live = nullptr;
  for (const auto& [name, sampler] : m.samplers) {
    if (number.has_value() && NewestActivation(sampler, *number) != nullptr) return &sampler;
    if (first_live == nullptr && sampler.live_version.has_value()) first_live = &sampler;
  }
  return first_live;
}

void FillRollout(const Machine& m, Rollout& rollout) {
  std::optional<uint64_t> number;
  if (!rollout.spans.empty()) number = rollout.spans.back().version;
  const Sampler* sampler =
      rollout.sampler.empty() ? ChooseSampler(m, number) : Find(m.samplers, rollout.sampler);
  if (sampler == nullptr) return;
  const Activation* activation = number.has_value() ? NewestActivation(*sampler, *number) : nullptr;
  rollout.sampler = sampler->name;
  rollout.incarnation = sampler->incarnation;
  rollout.contract_id = sampler->contract_id;
  rollout.cache_epoch = activation != nullptr ? activation->cache_epoch : sampler->cache_epoch;
  rollout.ticket = TicketFor(m, *sampler, number.value_or(0), rollout.cache_epoch);
}

}  // namespace

void HandleSubmitRollout(Machine& m, const Session& session, const ReplyTo& reply,
                         const SubmitRollout& message, const std::optional<Decision>& prior) {
  const Rollout& rollout = message.rollout;
  if (BadId(m, rollout, reply)) return;
  if (session.key.role != PeerRole::kSampler || rollout.sampler != session.name) {
    Refuse(m, reply, Subject(rollout.id),
           Refusal{RefusalCode::kUnauthorised, rollout.sampler,
                   absl::StrCat(PeerRoleName(session.key.role), " '", session.name,
                                "' may not submit rollouts of sampler '", rollout.sampler, "'")});
    return;
  }
  if (rollout.id.empty()) {
    Rollout named = rollout;
    named.id = ToHex(rollout.content);
    return Submit(m, named, reply, prior, std::nullopt, LowestLevel::kContracts);
  }
  Submit(m, rollout, reply, prior, std::nullopt, LowestLevel::kContracts);
}

void HandleSubmitRolloutFor(Machine& m, const Session& session, const ReplyTo& reply,
                            const SubmitRolloutFor& message, const std::optional<Decision>& prior) {
  if (BadId(m, message.rollout, reply)) return;
  if (session.key.role != PeerRole::kOperator) {
    Refuse(m, reply, Subject(message.rollout.id),
           Refusal{RefusalCode::kUnauthorised, message.rollout.id,
                   "only an operator submits rollouts for a sampler; a sampler submits its own"});
    return;
  }
  Rollout rollout = message.rollout;
  if (rollout.id.empty()) rollout.id = ToHex(rollout.content);
  FillRollout(m, rollout);
  Logprobs logprobs;
  if (message.trainer_logprobs.has_value())
    logprobs = absl::MakeConstSpan(*message.trainer_logprobs);
  Submit(m, rollout, reply, prior, logprobs, LowestLevel::kRolloutsOwn);
}

void HandleSubmitRescore(Machine& m, const Session& session, const ReplyTo& reply,
                         const SubmitRescore& message, const std::optional<Decision>& prior) {
  const std::string& id = message.rollout_id;
  if (session.key.role == PeerRole::kSampler) {
    Refuse(m, reply, "rescore",
           Refusal{RefusalCode::kUnauthorised, id.substr(0, kMaxRolloutIdBytes),
                   "re-scoring is the trainer's; a sampler may not judge its own rollouts"});
    return;
  }
  if (PendingDecision* pending = Find(m.pending, id)) {
    Decision decision =
        DecidePending(m, *pending, RescoreState::kArrived, message.trainer_logprobs);
    Answer(m, reply, DecisionReply{decision});
    return SettlePending(m, id, std::move(decision));
  }
  if (const Decision* decided = DecisionOf(m, id, prior)) {
    return Answer(m, reply, DecisionReply{*decided});
  }
  Refuse(m, reply, "rescore",
         Refusal{RefusalCode::kBadMessage, id.substr(0, kMaxRolloutIdBytes),
                 "no rollout of this id waits for re-scoring; submit the rollout first"},
         /*final=*/false);
}

void RescoreTimedOut(Machine& m, uint64_t number) {
  const std::string* found = Find(m.pending_ids, number);
  if (found == nullptr) return;
  const std::string id = *found;
  SettlePending(m, id, DecidePending(m, m.pending.at(id), RescoreState::kTimedOut, {}));
}

void ReportRollouts(Machine& m) {
  const RolloutCounts counts = std::exchange(m.unreported, {});
  m.timers.Cancel(TimerKind::kRolloutEvents, 0);
  m.refusal_events = 0;
  if (counts.admitted > 0) {
    RecordEvent(m, "admit", "rollouts", absl::StrCat("admitted ", counts.admitted, " rollouts"));
  }
  if (counts.refused.empty()) return;
  std::string text = "refused";
  for (const auto& [reason, count] : counts.refused) {
    absl::StrAppend(&text, " ", count, " with ", reason);
  }
  RecordEvent(m, "refuse", "rollouts", text);
}

}  // namespace lockstep::core
