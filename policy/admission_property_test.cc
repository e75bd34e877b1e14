// For every set of failing checks: never admitted, every failing check listed, the first one
// first; and with none failing, admitted.

#include <cmath>
#include <functional>
#include <vector>

#include "gtest/gtest.h"
#include "policy/admission.h"
#include "policy/admission_testing.h"
#include "rapidcheck.h"

namespace lockstep {
namespace {

struct Fault {
  RefusalCode code;
  // Breaks this one check; called in the order below, so later faults see earlier ones.
  std::function<void(AdmissionCase&)> break_it;
  // Checks on versions need a sampler with a history.
  bool needs_history = false;
  bool ends_history = false;
};

const std::vector<Fault>& Faults() {
  static const auto& faults = *new std::vector<Fault>{
      {RefusalCode::kStaleIncarnation,
       [](AdmissionCase& c) { c.facts.sampler.live_incarnation = Incarnation{99}; }, false, true},
      {RefusalCode::kQuarantined, [](AdmissionCase& c) { c.facts.sampler.fenced = true; }},
      {RefusalCode::kContractMismatch, [](AdmissionCase& c) { c.rollout.contract_id += "0"; }},
      {RefusalCode::kVersionNotLive,
       [](AdmissionCase& c) {
         auto& activations = c.facts.sampler.activations;
         // The oldest span's version; the newest stays for the checks after this one.
         std::erase_if(activations, [&](const ActivationFacts& activation) {
           return activation.version == c.rollout.spans.front().version;
         });
       },
       true},
      {RefusalCode::kUnknownVersion,
       [](AdmissionCase& c) { std::erase(c.facts.known_versions, c.rollout.spans[1].version); }},
      {RefusalCode::kBadSpans, [](AdmissionCase& c) { --c.rollout.spans.back().end; }},
      {RefusalCode::kStaleCache,
       [](AdmissionCase& c) { c.facts.sampler.activations.back().cache_epoch += 1000; }, true},
      {RefusalCode::kLagExceeded, [](AdmissionCase& c) { c.live_versions.push_back(1000); }},
      {RefusalCode::kMixedVersions,
       [](AdmissionCase& c) { c.policy.allow_mixed_versions = false; }},
      {RefusalCode::kDigestMismatch,
       [](AdmissionCase& c) { c.facts.sampler.activations.back().digests_equal = false; }, true},
      {RefusalCode::kKernelMismatch,
       [](AdmissionCase& c) { --c.facts.sampler.activations.back().components_verified; }, true},
      {RefusalCode::kLogprobMismatch,
       [](AdmissionCase& c) {
         float& logprob =
             c.trainer_logprobs[*rc::gen::inRange<size_t>(0, c.trainer_logprobs.size())];
         logprob = std::nextafter(logprob, -1e9f);
       }},
      {RefusalCode::kDuplicate,
       [](AdmissionCase& c) { c.facts.prior_content = Blake2b256("other"); }},
      {RefusalCode::kBadTicket,
       [](AdmissionCase& c) {
         c.rollout.ticket[*rc::gen::inRange<size_t>(0, 32)] ^= 1 << *rc::gen::inRange(0, 8);
       }},
  };
  return faults;
}

// An admitted rollout of three or more versions with random tokens, spans and values.
AdmissionCase RandomAdmittedCase() {
  AdmissionCase c = AdmittedCase();
  const auto versions = *rc::gen::inRange<uint64_t>(3, 7);
  c.facts.sampler.activations.clear();
  c.facts.known_versions.clear();
  c.live_versions.clear();
  c.rollout.spans.clear();
  uint64_t version = 0;
  uint64_t tokens = 0;
  uint64_t cache_epoch = 0;
  for (uint64_t i = 0; i < versions; ++i) {
    version += *rc::gen::inRange<uint64_t>(1, 4);
    cache_epoch += *rc::gen::inRange<uint64_t>(1, 3);
    const auto components = *rc::gen::inRange<uint32_t>(1, 30);
    const auto length = *rc::gen::inRange<uint64_t>(2, 6);
    c.facts.sampler.activations.push_back({version, cache_epoch, true, components, components});
    c.facts.known_versions.push_back(version);
    c.live_versions.push_back(version);
    c.rollout.spans.push_back({version, tokens, tokens + length});
    tokens += length;
  }
  c.rollout.cache_epoch = cache_epoch;
  c.rollout.tokens.assign(tokens, 1);
  c.rollout.sampler_logprobs.clear();
  for (uint64_t i = 0; i < tokens; ++i) {
    c.rollout.sampler_logprobs.push_back(-0.01f * static_cast<float>(*rc::gen::inRange(1, 2000)));
  }
  c.trainer_logprobs = c.rollout.sampler_logprobs;
  c.policy.max_lag = versions - 1;
  c.policy.allow_mixed_versions = true;
  c.Sign();
  return c;
}

TEST(AdmissionProperty, NothingIsAdmittedWhileAnyCheckFails) {
  EXPECT_TRUE(rc::check("faults are listed in order and never admitted", [] {
    AdmissionCase c = RandomAdmittedCase();
    RC_ASSERT(c.Decide().kind == DecisionKind::kAdmit);
    const auto chosen =
        *rc::gen::container<std::vector<bool>>(Faults().size(), rc::gen::arbitrary<bool>());
    bool history = true;
    std::vector<RefusalCode> expected;
    for (size_t i = 0; i < Faults().size(); ++i) {
      if (!chosen[i]) continue;
      const Fault& fault = Faults()[i];
      fault.break_it(c);
      if (fault.ends_history) history = false;
      if (!fault.needs_history || history) expected.push_back(fault.code);
    }
    const Decision decision = c.Decide();
    RC_ASSERT((decision.kind == DecisionKind::kAdmit) == expected.empty());
    if (expected.empty()) return;
    RC_ASSERT(decision.kind == DecisionKind::kRefuse);
    RC_ASSERT(decision.reasons.front().code == expected.front());
    std::vector<RefusalCode> listed;
    for (const Refusal& refusal : decision.reasons) {
      if (listed.empty() || listed.back() != refusal.code) listed.push_back(refusal.code);
    }
    RC_ASSERT(listed == expected);
  }));
}

TEST(AdmissionProperty, EachSingleFaultRefusesAtEveryLevelThatIncludesItsCheck) {
  EXPECT_TRUE(rc::check("one fault is enough", [] {
    AdmissionCase c = RandomAdmittedCase();
    const Fault& fault = Faults()[*rc::gen::inRange<size_t>(0, Faults().size())];
    c.rollout.level = *rc::gen::element(AdmissionLevel::kWeights, AdmissionLevel::kKernels,
                                        AdmissionLevel::kTokens);
    fault.break_it(c);
    const bool checked =
        (fault.code != RefusalCode::kKernelMismatch ||
         c.rollout.level >= AdmissionLevel::kKernels) &&
        (fault.code != RefusalCode::kLogprobMismatch || c.rollout.level >= AdmissionLevel::kTokens);
    RC_ASSERT((c.Decide().kind == DecisionKind::kAdmit) == !checked);
  }));
}

}  // namespace
}  // namespace lockstep
