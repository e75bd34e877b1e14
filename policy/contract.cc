#include "policy/contract.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "policy/contract_json.h"
#include "policy/registry.h"

namespace lockstep {
namespace {

constexpr size_t kShortIdDigits = 8;

// "swiglu/one_round_fp32@v1" -> "one_round_fp32@v1".
absl::string_view ProgramBaseName(absl::string_view id) {
  const size_t slash = id.find('/');
  return slash == absl::string_view::npos ? id : id.substr(slash + 1);
}

// What most tells two contracts of a family apart, for people.
std::string ShortFormMiddle(const Contract& contract) {
  const FamilyInfo* family = FindFamily(contract.family);
  if (contract.local_partial && family != nullptr && family->contributors > 0) {
    const LocalPartialInfo* policy =
        FindLocalPartial(contract.local_partial->leaf, contract.local_partial->fold);
    return policy != nullptr ? std::string(policy->short_name) : "local-partial@custom";
  }
  const Site* mlp = FindSite(contract, "dense_mlp");
  if (mlp == nullptr || mlp->program.empty()) return "no-mlp-claim";
  return std::string(ProgramBaseName(mlp->program));
}

}  // namespace

absl::string_view LevelName(Level level) {
  switch (level) {
    case Level::kWeights:
      return "weights";
    case Level::kKernels:
      return "kernels";
    case Level::kTokens:
      return "tokens";
  }
  return "unknown";
}

std::optional<Level> LevelFromName(absl::string_view name) {
  for (Level level : {Level::kWeights, Level::kKernels, Level::kTokens}) {
    if (LevelName(level) == name) return level;
  }
  return std::nullopt;
}

Digest256 ContributorOrderDigest(const std::vector<uint64_t>& order) {
  Blake2b256Hasher hasher;
  hasher.Update("lockstep contributor order@v1\n");
  hasher.UpdateU64(order.size());
  for (uint64_t ordinal : order) hasher.UpdateU64(ordinal);
  return hasher.Finish();
}

Digest256 AscendingOrderDigest(uint64_t contributors) {
  std::vector<uint64_t> order(contributors);
  for (uint64_t i = 0; i < contributors; ++i) order[i] = i;
  return ContributorOrderDigest(order);
}

std::string CanonicalContract(const Contract& contract) {
  // nlohmann::json keeps keys sorted bytewise; the two arguments of dump leave out white space
  // and keep UTF-8 as it is.
  return ContractJson(contract, ContractForm::kCanonical)
      .dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

Digest256 ContractId(const Contract& contract) { return Blake2b256(CanonicalContract(contract)); }

std::string ContractShortForm(const Contract& contract) {
  return absl::StrCat(contract.family, "/", ShortFormMiddle(contract), "#",
                      ToHex(ContractId(contract)).substr(0, kShortIdDigits));
}

std::string ContractToJson(const Contract& contract) {
  return ContractJson(contract, ContractForm::kReadable)
      .dump(2, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

const Site* FindSite(const Contract& contract, absl::string_view site) {
  const auto it = contract.sites.find(std::string(site));
  return it == contract.sites.end() ? nullptr : &it->second;
}

std::string LocalPartialName(const LocalPartial& policy) {
  const LocalPartialInfo* known = FindLocalPartial(policy.leaf, policy.fold);
  return known != nullptr ? std::string(known->name)
                          : absl::StrCat(policy.leaf, " + ", policy.fold);
}

std::string LoraName(const Lora& lora) {
  switch (lora.kind) {
    case LoraKind::kNone:
      return "none";
    case LoraKind::kActive:
      return absl::StrCat("active@v", lora.version);
    case LoraKind::kMerged:
      return absl::StrCat("merged@v", lora.version);
  }
  return "unknown";
}

}  // namespace lockstep
