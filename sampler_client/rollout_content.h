#ifndef LOCKSTEP_SAMPLER_CLIENT_ROLLOUT_CONTENT_H_
#define LOCKSTEP_SAMPLER_CLIENT_ROLLOUT_CONTENT_H_

#include "policy/ids.h"
#include "policy/protocol.h"

namespace lockstep {

// What a sampler's rollout says, for telling a repeat from another rollout of the same id:
// BLAKE2b-256 over "lockstep rollout content@v1\n", the sampler's name (uint32 length, bytes),
// the number of spans and of each version, start, end, the number of tokens and the tokens
// (int64), the number of log-probabilities and their float32 bits; counts are uint64, all
// integers little-endian.
Digest256 RolloutContent(const Rollout& rollout);

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_CLIENT_ROLLOUT_CONTENT_H_
