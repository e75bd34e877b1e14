#ifndef LOCKSTEP_POLICY_CONTRACT_TESTING_H_
#define LOCKSTEP_POLICY_CONTRACT_TESTING_H_

// For property tests: contracts of every family, and each way to change one field of one.

#include <functional>
#include <string>
#include <vector>

#include "policy/contract.h"
#include "policy/resolve_testing.h"

namespace lockstep {

inline std::vector<Contract> SampleContracts() {
  std::vector<Contract> samples;
  const auto add = [&](const nlohmann::json& config, const ResolveOptions& options) {
    const Resolution resolution = Resolve(config, options);
    if (resolution.contract) samples.push_back(*resolution.contract);
  };
  ResolveOptions v3 = Exact();
  v3.local_partial = "v3";
  v3.realisation = "silu/sm90_triton@v1";
  ResolveOptions split;
  split.cp = 4;
  split.tp = 2;
  ResolveOptions tolerant;
  tolerant.tolerance = Tolerance{1e-3f, 1e-5f};
  add(QwenDenseConfig(), {});
  add(QwenDenseConfig(), split);
  add(QwenMoeConfig(), {});
  add(GlmConfig(), {});
  add(GlmConfig(), Exact());
  add(GlmConfig(), v3);
  add(GlmConfig(), InLane(Lane::kActiveLora));
  add(LlamaConfig(), tolerant);
  add({{"model_type", "gpt_oss"}, {"num_local_experts", 8}}, {});
  return samples;
}

using Change = std::function<void(Contract&)>;

// Changes that apply to `contract`, each of another field of its identity. `salt` makes the
// new values; the structured bindings stop compiling when a part gains a member.
inline std::vector<Change> OneFieldChanges(const Contract& contract, uint32_t salt) {
  std::vector<Change> changes;
  const std::string text = "x" + std::to_string(salt);
  const uint64_t more = 1 + salt % 1000;
  const float bump = static_cast<float>(more);
  [[maybe_unused]] const auto& [family, parallel, sites, local_partial, lora, scoring, tolerance,
                                level, engine, layout] = contract;
  changes.push_back([=](Contract& c) { c.family += text; });
  for (uint64_t Parallel::*degree : {&Parallel::tp, &Parallel::ep, &Parallel::cp, &Parallel::dp}) {
    changes.push_back([=](Contract& c) { c.parallel.*degree += more; });
  }
  changes.push_back([=](Contract& c) { c.sites["added_" + text].program = "gemm/k_chain@v1"; });
  for (const auto& [name, site] : sites) {
    [[maybe_unused]] const auto& [program, realisation, digest, geometry, constants] = site;
    changes.push_back([n = name](Contract& c) { c.sites.erase(n); });
    changes.push_back([=, n = name](Contract& c) { c.sites[n].program += text; });
    changes.push_back([=, n = name](Contract& c) { c.sites[n].realisation += text; });
    changes.push_back([=, n = name](Contract& c) {
      Digest256 other = c.sites[n].realisation_digest.value_or(Digest256{});
      other[salt % 32] ^= 1;
      c.sites[n].realisation_digest = other;
    });
    changes.push_back([=, n = name](Contract& c) { c.sites[n].geometry["added"] = more; });
    for (const auto& [number, value] : geometry) {
      changes.push_back([=, n = name, g = number](Contract& c) { c.sites[n].geometry[g] += more; });
    }
    for (const auto& [number, value] : constants) {
      changes.push_back(
          [=, n = name, g = number](Contract& c) { c.sites[n].constants[g] += bump; });
    }
  }
  if (local_partial) {
    [[maybe_unused]] const auto& [leaf, fold, contributors, order] = *local_partial;
    changes.push_back([=](Contract& c) { c.local_partial->leaf += text; });
    changes.push_back([=](Contract& c) { c.local_partial->fold += text; });
    changes.push_back([=](Contract& c) { c.local_partial->contributors += more; });
    changes.push_back([=](Contract& c) { c.local_partial->order_digest[salt % 32] ^= 1; });
    changes.push_back([](Contract& c) { c.local_partial.reset(); });
  }
  [[maybe_unused]] const auto& [kind, version, rank, alpha, targets, lanes] = lora;
  if (kind == LoraKind::kNone) {
    changes.push_back([](Contract& c) { c.lora.kind = LoraKind::kMerged; });
  } else {
    changes.push_back([](Contract& c) { c.lora.kind = LoraKind::kNone; });
    changes.push_back([](Contract& c) { c.lora.kind = LoraKind::kMerged; });
    changes.push_back([=](Contract& c) { c.lora.version += more; });
    changes.push_back([=](Contract& c) { c.lora.rank += more; });
    changes.push_back([=](Contract& c) { c.lora.alpha += bump; });
    changes.push_back([=](Contract& c) { c.lora.targets.push_back(text); });
    changes.push_back([=](Contract& c) { c.lora.lanes["dense_mlp"] += text; });
  }
  [[maybe_unused]] const auto& [temperature, logprobs, top_k, top_p] = scoring;
  changes.push_back([=](Contract& c) { c.scoring.temperature += bump; });
  changes.push_back([=](Contract& c) { c.scoring.logprobs += text; });
  changes.push_back([](Contract& c) { c.scoring.top_k_renormalised ^= true; });
  changes.push_back([](Contract& c) { c.scoring.top_p_renormalised ^= true; });
  if (tolerance) {
    [[maybe_unused]] const auto& [max_abs_delta, mean_k3] = *tolerance;
    changes.push_back([=](Contract& c) { c.tolerance->max_abs_delta += bump; });
    changes.push_back([=](Contract& c) { c.tolerance->mean_k3 += bump; });
    changes.push_back([](Contract& c) { c.tolerance.reset(); });
  } else {
    changes.push_back([=](Contract& c) { c.tolerance = Tolerance{bump, bump}; });
  }
  changes.push_back([](Contract& c) {
    c.level = c.level == Level::kWeights ? Level::kKernels : Level::kWeights;
  });
  changes.push_back([](Contract& c) { c.engine.pinned = true; });
  return changes;
}

// The evidence that a side which really holds the contract's tables would send.
inline std::map<std::string, Digest256> SomeProbe() {
  return {{"dense_mlp", Blake2b256("probe of dense_mlp")}, {"norm", Blake2b256("probe of norm")}};
}

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_CONTRACT_TESTING_H_
