#ifndef LOCKSTEP_BRIDGE_CORE_PUBLISH_H_
#define LOCKSTEP_BRIDGE_CORE_PUBLISH_H_

// A publish: Offer, bytes, SealVersion, PublishOutcome.
//
// Answers. OfferAccepted answers the Offer. PublishOutcome answers the SealVersion when it
// was numbered, else the Offer; it leaves once the version is durable, compared, spooled, and
// every sampler that was to take it is live, failed or superseded. A refused seal is answered
// like a granted one.
//
// A trainer has one unsealed version at a time: offering another discards the first.

#include <optional>
#include <string>
#include <vector>

#include "bridge/core/state.h"

namespace lockstep::core {

void HandleOffer(Machine& m, const Session& session, const ReplyTo& reply, const Offer& offer);
void HandleTransferProgress(Machine& m, const Session& session, const TransferProgress& message);
void HandleSealVersion(Machine& m, const Session& session, const ReplyTo& reply,
                       const SealVersion& message);
void HandleArenaArrived(Machine& m, const ArenaArrived& arrived);
void HandleUploadMark(Machine& m, const UploadMark& mark);

// The trainer that offered is gone or replaced: unsealed work is void.
void DiscardUnsealed(Machine& m, const Refusal& why);

// Marks `version` sealed with the digest in its record: durable, kept, compared, spooled,
// rounds go on. `version.publish` must be set.
void SealNow(Machine& m, Version& version);

// A sampler's end of the publish of `version`; of no effect when nothing waits for it.
void ReportOutcome(Machine& m, uint64_t version, const Sampler& sampler, std::string state,
                   std::vector<Refusal> refusals);

// The same for every publish that waits for this sampler, and for that of version `also`.
void ReportToWaiting(Machine& m, const Sampler& sampler, const std::string& state,
                     const std::vector<Refusal>& refusals,
                     std::optional<uint64_t> also = std::nullopt);

// Answers the publish when nothing is missing any more.
void MaybeAnswerPublish(Machine& m, Version& version);

inline constexpr uint64_t kMaxComponents = 262'144;

}  // namespace lockstep::core

#endif  // LOCKSTEP_BRIDGE_CORE_PUBLISH_H_
