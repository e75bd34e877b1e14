#ifndef LOCKSTEP_TRAINER_CLIENT_PUBLISH_INPUT_H_
#define LOCKSTEP_TRAINER_CLIENT_PUBLISH_INPUT_H_

// Whether the tensors of a Publish are those of the manifest. Internal to trainer_client.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "policy/manifest.h"
#include "trainer_client/trainer.h"

namespace lockstep {

// Bytes by index in Manifest::tensors; frozen and derived tensors, which no publish moves, are
// empty.
using TensorSources = std::vector<absl::Span<const uint8_t>>;

// InvalidArgument names the first tensor that is missing, unknown, given twice, not to be moved
// or of another size.
absl::StatusOr<TensorSources> MatchTensors(const Manifest& manifest,
                                           absl::Span<const TensorBytesView> tensors);

// InvalidArgument when tied tensors (Manifest::alias_groups) have different bytes. Reads them
// all, unless they are the same memory.
absl::Status CheckTiedTensors(const Manifest& manifest, const TensorSources& sources);

}  // namespace lockstep

#endif  // LOCKSTEP_TRAINER_CLIENT_PUBLISH_INPUT_H_
