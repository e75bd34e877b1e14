// Rollouts, re-scorings and decisions.

#include "bridge/wire/convert.h"

namespace lockstep::wire {
namespace {

static_assert(static_cast<int>(schema::AdmissionLevel::TOKENS) ==
              static_cast<int>(AdmissionLevel::kTokens));
static_assert(static_cast<int>(schema::DecisionKind::PENDING) ==
              static_cast<int>(DecisionKind::kPending));

}  // namespace

void Write(const TokenSpan& from, schema::TokenSpan::Builder to) {
  to.setVersion(from.version);
  to.setStart(from.start);
  to.setEnd(from.end);
}

absl::Status Read(schema::TokenSpan::Reader from, TokenSpan& to) {
  to = {.version = from.getVersion(), .start = from.getStart(), .end = from.getEnd()};
  return absl::OkStatus();
}

void Write(const Rollout& from, schema::Rollout::Builder to) {
  to.setId(AsText(from.id));
  to.setContent(AsData(from.content));
  to.setSampler(AsText(from.sampler));
  to.setIncarnation(AsData(from.incarnation));
  to.setContractId(AsText(from.contract_id));
  WriteList(from.spans, to.initSpans(ListSize(from.spans.size())));
  to.setCacheEpoch(from.cache_epoch);
  to.setTicket(AsData(from.ticket));
  to.setLevel(static_cast<schema::AdmissionLevel>(from.level));
  WriteList(from.tokens, to.initTokens(ListSize(from.tokens.size())));
  WriteList(from.sampler_logprobs, to.initSamplerLogprobs(ListSize(from.sampler_logprobs.size())));
}

absl::Status Read(schema::Rollout::Reader from, Rollout& to) {
  to.cache_epoch = from.getCacheEpoch();
  return FieldReader()
      .Text(from.getId(), kMaxNameBytes, "rollout.id", to.id)
      .Bytes(from.getContent(), "rollout.content", absl::MakeSpan(to.content))
      .Text(from.getSampler(), kMaxNameBytes, "rollout.sampler", to.sampler)
      .Bytes(from.getIncarnation(), "rollout.incarnation", absl::MakeSpan(to.incarnation))
      .Text(from.getContractId(), kMaxNameBytes, "rollout.contract_id", to.contract_id)
      .List(from.getSpans(), kMaxRolloutSpans, "rollout.spans", to.spans)
      .Bytes(from.getTicket(), "rollout.ticket", absl::MakeSpan(to.ticket))
      .Enum(from.getLevel(), AdmissionLevel::kTokens, "rollout.level", to.level)
      .List(from.getTokens(), kMaxRolloutTokens, "rollout.tokens", to.tokens)
      .List(from.getSamplerLogprobs(), kMaxRolloutTokens, "rollout.sampler_logprobs",
            to.sampler_logprobs)
      .Done();
}

void Write(const SubmitRollout& from, schema::SubmitRollout::Builder to) {
  Write(from.rollout, to.initRollout());
}

absl::Status Read(schema::SubmitRollout::Reader from, SubmitRollout& to) {
  return Read(from.getRollout(), to.rollout);
}

void Write(const SubmitRolloutFor& from, schema::SubmitRolloutFor::Builder to) {
  Write(from.rollout, to.initRollout());
  auto logprobs = to.initTrainerLogprobs();
  if (from.trainer_logprobs.has_value()) {
    WriteList(*from.trainer_logprobs, logprobs.initSome(ListSize(from.trainer_logprobs->size())));
  } else {
    logprobs.setNone();
  }
}

absl::Status Read(schema::SubmitRolloutFor::Reader from, SubmitRolloutFor& to) {
  FieldReader fields;
  fields.Struct(from.getRollout(), to.rollout);
  const auto logprobs = from.getTrainerLogprobs();
  switch (logprobs.which()) {
    case schema::SubmitRolloutFor::TrainerLogprobs::NONE:
      return fields.Done();
    case schema::SubmitRolloutFor::TrainerLogprobs::SOME:
      return fields
          .List(logprobs.getSome(), kMaxRolloutTokens, "submit_rollout_for.trainer_logprobs",
                to.trainer_logprobs.emplace())
          .Done();
  }
  return absl::InvalidArgumentError(
      "bad message: submit_rollout_for.trainer_logprobs is neither none nor some");
}

void Write(const SubmitRescore& from, schema::SubmitRescore::Builder to) {
  to.setRolloutId(AsText(from.rollout_id));
  WriteList(from.trainer_logprobs, to.initTrainerLogprobs(ListSize(from.trainer_logprobs.size())));
}

absl::Status Read(schema::SubmitRescore::Reader from, SubmitRescore& to) {
  return FieldReader()
      .Text(from.getRolloutId(), kMaxNameBytes, "submit_rescore.rollout_id", to.rollout_id)
      .List(from.getTrainerLogprobs(), kMaxRolloutTokens, "submit_rescore.trainer_logprobs",
            to.trainer_logprobs)
      .Done();
}

void Write(const TokenMismatch& from, schema::TokenMismatch::Builder to) {
  to.setIndex(from.index);
  to.setSamplerBits(from.sampler_bits);
  to.setTrainerBits(from.trainer_bits);
}

absl::Status Read(schema::TokenMismatch::Reader from, TokenMismatch& to) {
  to = {.index = from.getIndex(),
        .sampler_bits = from.getSamplerBits(),
        .trainer_bits = from.getTrainerBits()};
  return absl::OkStatus();
}

void Write(const Decision& from, schema::Decision::Builder to) {
  to.setRolloutId(AsText(from.rollout_id));
  to.setContent(AsData(from.content));
  to.setKind(static_cast<schema::DecisionKind>(from.kind));
  WriteRefusals(from.reasons, to.initReasons(RefusalListSize(from.reasons)));
  to.setLevel(static_cast<schema::AdmissionLevel>(from.level));
  to.setSampler(AsText(from.sampler));
  WriteList(from.spans, to.initSpans(ListSize(from.spans.size())));
  to.setContractId(AsText(from.contract_id));
  to.setCompared(from.compared);
  to.setK1(from.k1);
  to.setK2(from.k2);
  to.setK3(from.k3);
  to.setMaxAbsDiff(from.max_abs_diff);
  to.setK3Float32Naive(from.k3_float32_naive);
  to.setComparedTokens(from.compared_tokens);
  to.setMismatchedTokens(from.mismatched_tokens);
  WriteList(from.mismatches, to.initMismatches(ListSize(from.mismatches.size())));
  to.setToleranceMode(from.tolerance_mode);
}

absl::Status Read(schema::Decision::Reader from, Decision& to) {
  to.compared = from.getCompared();
  to.k1 = from.getK1();
  to.k2 = from.getK2();
  to.k3 = from.getK3();
  to.max_abs_diff = from.getMaxAbsDiff();
  to.k3_float32_naive = from.getK3Float32Naive();
  to.compared_tokens = from.getComparedTokens();
  to.mismatched_tokens = from.getMismatchedTokens();
  to.tolerance_mode = from.getToleranceMode();
  return FieldReader()
      .Text(from.getRolloutId(), kMaxNameBytes, "decision.rollout_id", to.rollout_id)
      .Bytes(from.getContent(), "decision.content", absl::MakeSpan(to.content))
      .Enum(from.getKind(), DecisionKind::kPending, "decision.kind", to.kind)
      .List(from.getReasons(), kMaxRefusals, "decision.reasons", to.reasons)
      .Enum(from.getLevel(), AdmissionLevel::kTokens, "decision.level", to.level)
      .Text(from.getSampler(), kMaxNameBytes, "decision.sampler", to.sampler)
      .List(from.getSpans(), kMaxRolloutSpans, "decision.spans", to.spans)
      .Text(from.getContractId(), kMaxNameBytes, "decision.contract_id", to.contract_id)
      .List(from.getMismatches(), kMaxReportedMismatches, "decision.mismatches", to.mismatches)
      .Done();
}

void Write(const DecisionReply& from, schema::DecisionReply::Builder to) {
  Write(from.decision, to.initDecision());
}

absl::Status Read(schema::DecisionReply::Reader from, DecisionReply& to) {
  return Read(from.getDecision(), to.decision);
}

}  // namespace lockstep::wire
