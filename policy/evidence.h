#ifndef LOCKSTEP_POLICY_EVIDENCE_H_
#define LOCKSTEP_POLICY_EVIDENCE_H_

// What a side shows at registration beside its contract: names do not identify
// programs, bytes do (contracts.md section 1).

#include <map>
#include <string>

#include "policy/ids.h"

namespace lockstep {

struct Evidence {
  // Realisation id ("silu/ieee@v1") -> BLAKE2b-256 of its table as this build holds it.
  std::map<std::string, Digest256> tables;
  // Component name -> digest of the program's output over the fixed registration seed.
  std::map<std::string, Digest256> probe;

  bool operator==(const Evidence&) const = default;
};

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_EVIDENCE_H_
