#ifndef LOCKSTEP_POLICY_SITE_CHECK_H_
#define LOCKSTEP_POLICY_SITE_CHECK_H_

// The second of the two gates (contracts.md section 2, "fail closed, twice"): the first is
// the resolver, this one runs where a site is built or called, on what is really there.
//
// Example:
//   SiteOperands operands;
//   operands.hidden = 6144;
//   operands.intermediate = 12288;
//   operands.batch_rows = rows;
//   std::vector<Refusal> refusals = CheckSiteOperands(contract, "dense_mlp", operands);
//   if (!refusals.empty()) return FormatRefusals(refusals);  // never another path instead

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "policy/contract.h"
#include "policy/refusal.h"

namespace lockstep {

// What a module brings to its site. Unset members do not apply to the site.
struct SiteOperands {
  std::string activation = "silu";  // compared at SwiGLU sites
  std::string dtype = "bfloat16";   // of the site's inputs and weights
  bool contiguous = true;           // rows dense, elements adjacent
  uint64_t batch_rows = 1;
  std::optional<uint64_t> hidden;
  std::optional<uint64_t> intermediate;  // of the whole module, unsharded
  std::optional<uint64_t> tp;
  bool base_trainable = false;                             // the base weights take gradients
  std::optional<std::vector<uint64_t>> contributor_order;  // at moe_fold, as folded
  // Label of the transport that carries contributors or boundary states, when the run began
  // and now.
  std::string transport_at_start;
  std::string transport_now;
  // At gdn_prefill: token offsets from the document's start where the sequence is cut.
  std::vector<uint64_t> gdn_cuts;
  std::string gdn_state_dtype = "float32";
};

// Every reason why the site must not run; empty when it may. A site without a program makes
// no claim, and family `none` claims nothing: both are admitted as they are.
std::vector<Refusal> CheckSiteOperands(const Contract& contract, absl::string_view site,
                                       const SiteOperands& operands);

// What a trainer or sampler holds for its adapters.
struct AdapterOperands {
  uint64_t rank = 0;
  float alpha = 0;
  std::vector<std::string> targets;  // any order
  bool base_trainable = false;
};

// The adapters must be the contract's, member for member; an adapter where the contract has
// none is refused too.
std::vector<Refusal> CheckAdapterOperands(const Contract& contract,
                                          const AdapterOperands& operands);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_SITE_CHECK_H_
