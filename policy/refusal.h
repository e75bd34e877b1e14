#ifndef LOCKSTEP_POLICY_REFUSAL_H_
#define LOCKSTEP_POLICY_REFUSAL_H_

// The closed list of reasons for which Lockstep refuses something (invariant I6: every
// refusal has one, is counted and is visible). The wire carries the enumerator's name,
// so a name never changes its meaning.

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep {

enum class RefusalCode {
  // Rollouts, in the order of the checks (contracts.md section 4).
  kUnknownPeer,
  kStaleIncarnation,
  kQuarantined,
  kContractMismatch,  // also of a peer at registration
  kVersionNotLive,
  kUnknownVersion,
  kBadSpans,
  kStaleCache,
  kLagExceeded,
  kMixedVersions,
  kDigestMismatch,  // also of a version in a round
  kKernelMismatch,  // also of a peer at registration (tables, probe)
  kLogprobMismatch,
  kToleranceExceeded,  // family `none` with a tolerance instead of bit equality
  kRescoreTimeout,     // level `tokens`: the trainer's re-scoring did not come in time
  kDuplicate,
  kBadTicket,
  // Contracts and configs.
  kBadConfig,        // not JSON, not an object, a key of the wrong type
  kUnfitActivation,  // an activation no exact program has
  kNoExactFamily,
  kStampConflict,
  kPartialFamily,  // some but not all flags of a lane
  kGeometryNotAdmitted,
  kOperandNotAdmitted,  // dtype, contiguity, batch, order, transport, grid: at config or at site
  kUnknownIdentifier,   // a string that names no program, policy or alias we know
  // Manifests and checkpoints.
  kBadCheckpoint,     // an unreadable or lying file
  kManifestMismatch,  // a tensor missing, extra, or of another dtype or shape
  kTiedTensorDiffers,
  // Versions and epochs.
  kStaleEpoch,
  kVersionBackwards,
  kVersionConflict,  // one id, two digests (I4)
  kWrongSourceRole,
  // Transfers and peers.
  kTransferFailed,
  kRoundTimeout,
  kFlushReceiptMissing,
  kPeerLost,
  kLimitExceeded,
  kBadMessage,
  kUnauthorised,
  kProtocolVersion,
  kShuttingDown,
};

// "contract_mismatch" and so on: the enumerator in snake case without the k.
absl::string_view RefusalCodeName(RefusalCode code);
std::optional<RefusalCode> RefusalCodeFromName(absl::string_view name);

struct Refusal {
  RefusalCode code;
  // What it is about: a JSON path, a contract part, a tensor name, a version; may be empty.
  std::string key;
  // One sentence or more: what, why, what to do.
  std::string message;

  bool operator==(const Refusal&) const = default;
};

// "contract_mismatch (sites.dense_mlp.program): ..." one line a refusal.
std::string FormatRefusals(const std::vector<Refusal>& refusals);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_REFUSAL_H_
