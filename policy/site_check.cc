#include "policy/site_check.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "policy/refusal_list.h"
#include "policy/registry.h"

namespace lockstep {
namespace {

bool SameBits(float a, float b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

class SiteChecker {
 public:
  SiteChecker(const Contract& contract, absl::string_view name, const Site& site)
      : contract_(contract), name_(name), site_(site) {}

  std::vector<Refusal> Check(const SiteOperands& operands) {
    CheckValues(operands);
    CheckGeometry(operands);
    CheckFold(operands);
    CheckGdn(operands);
    if (operands.transport_now != operands.transport_at_start) {
      Refuse(RefusalCode::kOperandNotAdmitted, "transport",
             absl::StrCat("the run began on '", operands.transport_at_start, "' and is now on '",
                          operands.transport_now,
                          "'; a transport does not change inside a run: start a new one"));
    }
    return std::move(refusals_).Take();
  }

 private:
  void Refuse(RefusalCode code, absl::string_view what, std::string message) {
    refusals_.Add(code, absl::StrCat("sites.", name_, ".", what), std::move(message));
  }

  void CheckValues(const SiteOperands& operands) {
    if (absl::StartsWith(site_.program, "swiglu/") && operands.activation != "silu") {
      Refuse(RefusalCode::kUnfitActivation, "activation",
             absl::StrCat("expected 'silu' for ", site_.program, ", got '", operands.activation,
                          "'; build this module outside the exact contract"));
    }
    if (operands.dtype != "bfloat16") {
      Refuse(RefusalCode::kOperandNotAdmitted, "dtype",
             absl::StrCat("expected bfloat16 operands, got ", operands.dtype,
                          "; convert them before the site, not inside it"));
    }
    if (!operands.contiguous) {
      Refuse(RefusalCode::kOperandNotAdmitted, "contiguous",
             "expected contiguous operands; copy the view into a dense buffer first");
    }
    if (operands.batch_rows == 0) {
      Refuse(RefusalCode::kOperandNotAdmitted, "batch",
             "the batch is empty; skip the call instead of running it on no rows");
    }
    if (operands.base_trainable && contract_.lora.kind == LoraKind::kActive) {
      Refuse(RefusalCode::kOperandNotAdmitted, "base",
             "the base weights take gradients, but the contract's lane trains adapters over a "
             "frozen base; freeze it, or register a full_param contract");
    }
  }

  void CheckNumber(absl::string_view what, const std::optional<uint64_t>& got) {
    const auto expected = site_.geometry.find(std::string(what));
    if (!got || expected == site_.geometry.end() || *got == expected->second) return;
    Refuse(
        RefusalCode::kGeometryNotAdmitted, what,
        absl::StrCat("expected ", what, " ", expected->second, " as in the contract, got ", *got));
  }

  void CheckGeometry(const SiteOperands& operands) {
    CheckNumber("hidden", operands.hidden);
    CheckNumber("intermediate", operands.intermediate);
    CheckNumber("tp", operands.tp);
  }

  void CheckFold(const SiteOperands& operands) {
    if (!operands.contributor_order || !contract_.local_partial) return;
    const LocalPartial& policy = *contract_.local_partial;
    if (ContributorOrderDigest(*operands.contributor_order) == policy.order_digest) return;
    Refuse(RefusalCode::kOperandNotAdmitted, "contributor_order",
           absl::StrCat("expected the ", policy.contributors, " contributors in ordinal order 0..",
                        policy.contributors - 1, ", got ", operands.contributor_order->size(),
                        " in another; sort by logical ordinal, not by arrival"));
  }

  void CheckGdn(const SiteOperands& operands) {
    const auto grid = site_.geometry.find("grid");
    if (grid != site_.geometry.end() && grid->second > 0) {
      for (uint64_t cut : operands.gdn_cuts) {
        if (cut % grid->second == 0) continue;
        Refuse(RefusalCode::kOperandNotAdmitted, "gdn_cuts",
               absl::StrCat("a cut at token ", cut, " of its document is off the ", grid->second,
                            "-token grid; cut at a multiple of ", grid->second));
      }
    }
    if (absl::StartsWith(site_.program, "gdn") && operands.gdn_state_dtype != "float32") {
      Refuse(RefusalCode::kOperandNotAdmitted, "gdn_state",
             absl::StrCat("expected a float32 state, got ", operands.gdn_state_dtype));
    }
  }

  const Contract& contract_;
  absl::string_view name_;
  const Site& site_;
  RefusalList refusals_;
};

}  // namespace

std::vector<Refusal> CheckSiteOperands(const Contract& contract, absl::string_view site,
                                       const SiteOperands& operands) {
  if (contract.family == kFamilyNone) return {};
  const Site* found = FindSite(contract, site);
  if (found == nullptr) {
    std::vector<std::string> names;
    for (const auto& [name, unused] : contract.sites) names.push_back(name);
    return {{RefusalCode::kUnknownIdentifier, absl::StrCat("sites.", site),
             UnknownNameText("site of this contract", site, names)}};
  }
  if (found->program.empty()) return {};
  return SiteChecker(contract, site, *found).Check(operands);
}

std::vector<Refusal> CheckAdapterOperands(const Contract& contract,
                                          const AdapterOperands& operands) {
  RefusalList refusals;
  const Lora& lora = contract.lora;
  const auto refuse = [&](absl::string_view part, std::string message) {
    refusals.Add(RefusalCode::kOperandNotAdmitted, absl::StrCat("lora.", part), std::move(message));
  };
  if (lora.kind == LoraKind::kNone) {
    refuse("kind", "the contract has no adapters; register one of the lane active_lora");
    return std::move(refusals).Take();
  }
  if (operands.base_trainable) {
    refuse("base", "the base of an adapter lane is frozen and hashed, got a trainable one");
  }
  if (operands.rank != lora.rank) {
    refuse("rank", absl::StrCat("expected rank ", lora.rank, ", got ", operands.rank));
  }
  if (!SameBits(operands.alpha, lora.alpha)) {
    refuse("alpha", absl::StrCat("expected alpha ", lora.alpha, ", got ", operands.alpha,
                                 "; the scale alpha/rank decides every byte"));
  }
  std::vector<std::string> targets = operands.targets;
  std::sort(targets.begin(), targets.end());
  if (targets != lora.targets) {
    refusals.Add(RefusalCode::kPartialFamily, "lora.targets",
                 absl::StrCat("expected adapters on exactly ", absl::StrJoin(lora.targets, ", "),
                              ", got ", absl::StrJoin(targets, ", ")));
  }
  return std::move(refusals).Take();
}

}  // namespace lockstep
