#ifndef LOCKSTEP_POLICY_CHECKPOINT_GENERIC_H_
#define LOCKSTEP_POLICY_CHECKPOINT_GENERIC_H_

// What can be said of a checkpoint of any decoder family from its own regularity and the few
// sizes that all configs share.

#include "policy/checkpoint_config.h"
#include "policy/checkpoint_names.h"
#include "policy/refusal_list.h"

namespace lockstep {

// Embedding [vocab_size, hidden_size]; layers 0..n-1 all there, none beyond; layers of one
// kind with equal tensors and shapes; MLP and expert shapes. Says nothing about a checkpoint
// without an `embed_tokens` or without layers. kManifestMismatch.
void CheckGeneric(const CheckpointNames& names, const CheckpointConfig& config, RefusalList& found);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_CHECKPOINT_GENERIC_H_
