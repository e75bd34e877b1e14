#ifndef LOCKSTEP_BRIDGE_CORE_OUTCOMES_H_
#define LOCKSTEP_BRIDGE_CORE_OUTCOMES_H_

// How a publish ends for each sampler, and when the trainer is told.

#include <optional>
#include <string>
#include <vector>

#include "bridge/core/state.h"

namespace lockstep::core {

// Which request the outcome of a publish answers.
const ReplyTo& OutcomeReply(const Publish& publish);

// The publish waits for every sampler that can take the version and has not got it.
void ExpectSamplers(const Machine& m, const Version& version, Publish& publish);

// Version `newer` is sealed: samplers that have not sealed an older one skip it.
void SupersedeOlder(Machine& m, uint64_t newer);

// A sampler's end of the publish of `version`; of no effect when nothing waits for it.
void ReportOutcome(Machine& m, uint64_t version, const Sampler& sampler, std::string state,
                   std::vector<Refusal> refusals);

// The same for every publish that waits for this sampler, and for that of version `also`.
void ReportToWaiting(Machine& m, const Sampler& sampler, const std::string& state,
                     const std::vector<Refusal>& refusals,
                     std::optional<uint64_t> also = std::nullopt);

// Answers the publish when nothing is missing any more.
void MaybeAnswerPublish(Machine& m, Version& version);

}  // namespace lockstep::core

#endif  // LOCKSTEP_BRIDGE_CORE_OUTCOMES_H_
