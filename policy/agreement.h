#ifndef LOCKSTEP_POLICY_AGREEMENT_H_
#define LOCKSTEP_POLICY_AGREEMENT_H_

// Whether a trainer and a sampler run the same programs: their contracts part by part, then
// the bytes behind the names (contracts.md section 3). The answer is symmetric: swapping the
// sides swaps the two values of each difference and nothing else.
//
// Example:
//   std::vector<Refusal> refusals =
//       CompareSides({trainer.contract, trainer.evidence}, {sampler.contract, sampler.evidence});
//   if (refusals.empty()) Agree(ContractId(trainer.contract));

#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "policy/contract.h"
#include "policy/evidence.h"
#include "policy/refusal.h"

namespace lockstep {

// Borrows both for the length of a call.
struct Side {
  const Contract& contract;
  const Evidence& evidence;
};

struct Difference {
  RefusalCode code;     // kContractMismatch, kKernelMismatch or kManifestMismatch
  std::string part;     // "sites.dense_mlp.program", "local_partial", "evidence.probe.gemm"
  std::string trainer;  // the value as a person reads it; "absent" when it states none
  std::string sampler;
  std::string changes;  // which bytes that changes, with figures; same for both directions
  std::string remedy;   // what to do

  bool operator==(const Difference&) const = default;
};

// Every part in which the two differ; empty exactly when their ids are equal and, where both
// state one, their layouts.
std::vector<Difference> CompareContracts(const Contract& trainer, const Contract& sampler);

// Equal names with other bytes, evidence that one side lacks, and for an exact family
// evidence that both lack: names alone prove nothing.
std::vector<Difference> CompareEvidence(const Side& trainer, const Side& sampler);

// Programs that both state and nothing runs any more.
std::vector<Difference> RetiredPrograms(const Contract& contract);

// All of the above as the reasons of one refusal; empty when the two agree.
std::vector<Refusal> CompareSides(const Side& trainer, const Side& sampler);

// "the trainer runs A (...); the sampler runs B (...): about 27.5 % ...; start ..."
Refusal RefusalOf(const Difference& difference);

// The realisations a contract names with their tables' digests: what evidence must show.
std::map<std::string, Digest256> TablesOfContract(const Contract& contract);

// {"equal", "trainer": {"contract_id", "short"}, "sampler": {...}, "differences": [{"part",
// "trainer", "sampler", "changes", "remedy"}]}: the answer of `lockstep contract diff A B`.
nlohmann::json ContractDiffJson(const Contract& trainer, const Contract& sampler);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_AGREEMENT_H_
