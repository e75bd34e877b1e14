#include "policy/refusal.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

constexpr std::pair<RefusalCode, absl::string_view> kNames[] = {
    {RefusalCode::kUnknownPeer, "unknown_peer"},
    {RefusalCode::kStaleIncarnation, "stale_incarnation"},
    {RefusalCode::kQuarantined, "quarantined"},
    {RefusalCode::kContractMismatch, "contract_mismatch"},
    {RefusalCode::kVersionNotLive, "version_not_live"},
    {RefusalCode::kUnknownVersion, "unknown_version"},
    {RefusalCode::kBadSpans, "bad_spans"},
    {RefusalCode::kStaleCache, "stale_cache"},
    {RefusalCode::kLagExceeded, "lag_exceeded"},
    {RefusalCode::kMixedVersions, "mixed_versions"},
    {RefusalCode::kDigestMismatch, "digest_mismatch"},
    {RefusalCode::kKernelMismatch, "kernel_mismatch"},
    {RefusalCode::kLogprobMismatch, "logprob_mismatch"},
    {RefusalCode::kToleranceExceeded, "tolerance_exceeded"},
    {RefusalCode::kRescoreTimeout, "rescore_timeout"},
    {RefusalCode::kDuplicate, "duplicate"},
    {RefusalCode::kBadTicket, "bad_ticket"},
    {RefusalCode::kBadConfig, "bad_config"},
    {RefusalCode::kUnfitActivation, "unfit_activation"},
    {RefusalCode::kNoExactFamily, "no_exact_family"},
    {RefusalCode::kStampConflict, "stamp_conflict"},
    {RefusalCode::kPartialFamily, "partial_family"},
    {RefusalCode::kGeometryNotAdmitted, "geometry_not_admitted"},
    {RefusalCode::kOperandNotAdmitted, "operand_not_admitted"},
    {RefusalCode::kUnknownIdentifier, "unknown_identifier"},
    {RefusalCode::kBadCheckpoint, "bad_checkpoint"},
    {RefusalCode::kManifestMismatch, "manifest_mismatch"},
    {RefusalCode::kTiedTensorDiffers, "tied_tensor_differs"},
    {RefusalCode::kStaleEpoch, "stale_epoch"},
    {RefusalCode::kVersionBackwards, "version_backwards"},
    {RefusalCode::kVersionConflict, "version_conflict"},
    {RefusalCode::kWrongSourceRole, "wrong_source_role"},
    {RefusalCode::kTransferFailed, "transfer_failed"},
    {RefusalCode::kRoundTimeout, "round_timeout"},
    {RefusalCode::kFlushReceiptMissing, "flush_receipt_missing"},
    {RefusalCode::kPeerLost, "peer_lost"},
    {RefusalCode::kLimitExceeded, "limit_exceeded"},
    {RefusalCode::kBadMessage, "bad_message"},
    {RefusalCode::kUnauthorised, "unauthorised"},
    {RefusalCode::kProtocolVersion, "protocol_version"},
    {RefusalCode::kShuttingDown, "shutting_down"},
};

}  // namespace

absl::string_view RefusalCodeName(RefusalCode code) {
  for (const auto& [known, name] : kNames) {
    if (known == code) return name;
  }
  return "unknown";
}

std::optional<RefusalCode> RefusalCodeFromName(absl::string_view name) {
  for (const auto& [code, known] : kNames) {
    if (known == name) return code;
  }
  return std::nullopt;
}

std::string FormatRefusals(const std::vector<Refusal>& refusals) {
  std::string out;
  for (const Refusal& refusal : refusals) {
    absl::StrAppend(&out, out.empty() ? "" : "\n", RefusalCodeName(refusal.code));
    if (!refusal.key.empty()) absl::StrAppend(&out, " (", refusal.key, ")");
    absl::StrAppend(&out, ": ", refusal.message);
  }
  return out;
}

}  // namespace lockstep
