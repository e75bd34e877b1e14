#ifndef LOCKSTEP_BRIDGE_CORE_VERIFICATION_H_
#define LOCKSTEP_BRIDGE_CORE_VERIFICATION_H_

// What is installed against what the trainer published: digests under the round's key, then
// the kernel probe component by component.

#include "bridge/core/state.h"

namespace lockstep::core {

// Sends RoundKey for a round whose sampler has sealed and whose version is sealed.
void GiveKey(Machine& m, Sampler& sampler);

void HandleVerified(Machine& m, Sampler& sampler, const ReplyTo& reply, const Verified& message);

// Compares as soon as both the report and the expected digest are there.
void CheckVerified(Machine& m, Sampler& sampler);

// DigestDone of a kRound or kProof work.
void RoundDigestDone(Machine& m, const Work& work, const VersionDigest& digest);
void ProofDigestDone(Machine& m, const Work& work, const VersionDigest& digest);

// Asks once whether the kept copy is the trainer's bytes.
void StartProof(Machine& m, Version& version);

// The first tensors whose roots differ, with a sentence each.
std::vector<Refusal> CompareDigests(const Manifest& manifest, const VersionDigest& expected,
                                    const VersionDigest& reported);

inline constexpr size_t kMaxNamedTensors = 3;  // in a refusal

}  // namespace lockstep::core

#endif  // LOCKSTEP_BRIDGE_CORE_VERIFICATION_H_
