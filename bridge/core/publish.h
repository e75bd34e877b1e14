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

#include <cstdint>

#include "bridge/core/state.h"

namespace lockstep::core {

void HandleOffer(Machine& m, const Session& session, const ReplyTo& reply, const Offer& offer);
void HandleTransferProgress(Machine& m, const Session& session, const TransferProgress& message);
void HandleSealVersion(Machine& m, const Session& session, const ReplyTo& reply,
                       const SealVersion& message);
void HandleArenaArrived(Machine& m, const ArenaArrived& arrived);
void HandleArenaFailed(Machine& m, const ArenaFailed& failed);
void HandleUploadMark(Machine& m, const UploadMark& mark);

// The trainer that offered is gone or replaced: unsealed work is void.
void DiscardUnsealed(Machine& m, const Refusal& why);

// Marks `version` sealed with the digest in its record: durable, kept, compared, spooled,
// rounds go on. `version.publish` must be set.
void SealNow(Machine& m, Version& version);

// Leaves room for rollbacks, which take the next number.
inline constexpr uint64_t kMaxVersionNumber = uint64_t{1} << 62;
inline constexpr uint64_t kMaxComponents = 262'144;

}  // namespace lockstep::core

#endif  // LOCKSTEP_BRIDGE_CORE_PUBLISH_H_
