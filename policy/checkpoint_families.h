#ifndef LOCKSTEP_POLICY_CHECKPOINT_FAMILIES_H_
#define LOCKSTEP_POLICY_CHECKPOINT_FAMILIES_H_

// The full tensor sets of the families with exact programs, as the Hugging Face classes name
// and shape them.

#include <string>
#include <vector>

#include "policy/checkpoint_config.h"
#include "policy/checkpoint_names.h"
#include "policy/refusal_list.h"

namespace lockstep {

struct ExpectedTensor {
  std::string name;
  std::vector<uint64_t> shape;  // kAnySize fits any
  bool required = true;
};

// True for the model types whose whole set is known here.
bool IsKnownCheckpointFamily(const CheckpointConfig& config);

// `config` is of a known family and states num_hidden_layers. `names` decides between the two
// ways in which experts are stored (fused, or one tensor an expert), layer by layer.
// kLimitExceeded through `found` when the config asks for more than kMaxTensors.
std::vector<ExpectedTensor> ExpectedTensors(const CheckpointConfig& config,
                                            const CheckpointNames& names, RefusalList& found);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_CHECKPOINT_FAMILIES_H_
