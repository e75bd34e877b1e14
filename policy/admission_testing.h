#ifndef LOCKSTEP_POLICY_ADMISSION_TESTING_H_
#define LOCKSTEP_POLICY_ADMISSION_TESTING_H_

// For tests: a rollout, with its facts, that is admitted at level `tokens`.

#include <string>
#include <vector>

#include "policy/admission.h"
#include "policy/ticket.h"

namespace lockstep {

struct AdmissionCase {
  Rollout rollout;
  AdmissionFacts facts;  // its spans point into the vectors below
  AdmissionPolicy policy;
  std::vector<uint64_t> live_versions;
  std::vector<float> trainer_logprobs;

  Decision Decide() {
    facts.live_versions = live_versions;
    facts.trainer_logprobs = trainer_logprobs;
    return DecideAdmission(rollout, facts, policy);
  }

  // The ticket for what the rollout states now.
  void Sign() {
    rollout.ticket =
        MakeTicket(facts.ticket_key, {facts.run, rollout.sampler, rollout.incarnation,
                                      rollout.spans.back().version, rollout.cache_epoch});
  }
};

// Five tokens of version 4, which sampler s1 serves as its third version.
inline AdmissionCase AdmittedCase() {
  AdmissionCase c;
  c.facts.run = "default";
  c.facts.ticket_key = Blake2b256("ticket key");
  SamplerFacts& sampler = c.facts.sampler;
  sampler.known = true;
  sampler.live_incarnation = Incarnation{7};
  sampler.contract_id = "contract-1";
  sampler.activations = {{2, 11, true, 18, 18}, {3, 12, true, 18, 18}, {4, 13, true, 18, 18}};
  c.facts.known_versions = {2, 3, 4, 5};
  c.live_versions = {1, 2, 3, 4};
  c.facts.rescore = RescoreState::kArrived;
  c.rollout.id = "r1";
  c.rollout.content = Blake2b256("content");
  c.rollout.sampler = "s1";
  c.rollout.incarnation = Incarnation{7};
  c.rollout.contract_id = "contract-1";
  c.rollout.spans = {{4, 0, 5}};
  c.rollout.cache_epoch = 13;
  c.rollout.level = AdmissionLevel::kTokens;
  c.rollout.tokens = {2, 9, 7, 7, 14};
  c.rollout.sampler_logprobs = {-0.5f, -0.25f, -1.0573037f, -0.1f, -0.001f};
  c.trainer_logprobs = c.rollout.sampler_logprobs;
  c.Sign();
  return c;
}

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_ADMISSION_TESTING_H_
