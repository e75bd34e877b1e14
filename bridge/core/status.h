#ifndef LOCKSTEP_BRIDGE_CORE_STATUS_H_
#define LOCKSTEP_BRIDGE_CORE_STATUS_H_

// What the core shows to people: the state of everything, and why a version, a sampler or a
// rollout is where it is.

#include <optional>

#include "bridge/core/state.h"

namespace lockstep::core {

StatusReply MakeStatus(const Machine& m, Time time);

ExplainReply ExplainVersion(const Machine& m, const std::string& id, Time time);
ExplainReply ExplainSampler(const Machine& m, const std::string& id, Time time);
// `stored` is the ledger's decision, when it has one.
ExplainReply ExplainRollout(const Machine& m, const std::string& id,
                            const std::optional<Decision>& stored);

// The first reason why the sampler is not live, as shown in status; empty when all is well.
std::string SamplerReason(const Sampler& sampler);

}  // namespace lockstep::core

#endif  // LOCKSTEP_BRIDGE_CORE_STATUS_H_
