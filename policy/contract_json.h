#ifndef LOCKSTEP_POLICY_CONTRACT_JSON_H_
#define LOCKSTEP_POLICY_CONTRACT_JSON_H_

// A contract as a JSON object, for programs that print it inside a larger one. Most callers
// want ContractToJson or CanonicalContract (contract.h).

#include "nlohmann/json.hpp"
#include "policy/contract.h"

namespace lockstep {

enum class ContractForm {
  kReadable,   // floats as numbers, every part
  kCanonical,  // floats as 8 hex digits, without layout and unpinned engine
};

nlohmann::json ContractJson(const Contract& contract, ContractForm form);

// The parts that command lines print on their own.
nlohmann::json SiteJson(const Site& site, ContractForm form);
nlohmann::json LocalPartialJson(const LocalPartial& policy);
nlohmann::json LoraJson(const Lora& lora, ContractForm form);  // the string "none" without one

nlohmann::json RefusalsJson(const std::vector<Refusal>& refusals);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_CONTRACT_JSON_H_
