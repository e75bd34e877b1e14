#ifndef LOCKSTEP_POLICY_CHECKPOINT_CHECK_H_
#define LOCKSTEP_POLICY_CHECKPOINT_CHECK_H_

// Does a checkpoint's tensor set fit its config.json? Names and shapes are judged, never
// data; dtypes are the checkpoint's own.
//
// - qwen3_5 (dense and moe) and glm_moe_dsa: the whole expected set is derived from the
//   config; a tensor missing, extra or of another shape is refused by name.
// - Other families with `layers.N` and an `embed_tokens`: embedding and head, layers 0..n-1
//   all there and none beyond, layers of one kind with the same tensors and shapes, MLP
//   shapes against hidden_size and intermediate_size.
// - Anything else is accepted: a manifest is still compared with the sampler's.
//
// Everywhere: the text part may lie under `model.language_model.` (multimodal); towers,
// projectors and MTP heads are allowed beside it and are synced like the rest; a
// quantisation scale belongs to the weight it scales, and neither comes alone. A size that the
// config does not state is not checked.
//
// Example:
//   CheckpointManifest result = ManifestForCheckpoint(tensors, config_text);
//   if (!result.refusals.empty()) return Fail(FormatRefusals(result.refusals));

#include <vector>

#include "absl/strings/string_view.h"
#include "policy/manifest.h"
#include "policy/refusal.h"

namespace lockstep {

// kBadConfig (key: the JSON path) or kManifestMismatch (key: the tensor's name, or the JSON
// path of tie_word_embeddings when an untied head is missing).
std::vector<Refusal> CheckCheckpoint(const Manifest& manifest, absl::string_view config_json);

struct CheckpointManifest {
  Manifest manifest;  // sorted, with its alias groups; meaningful when there are no refusals
  std::vector<Refusal> refusals;
};

// The manifest to publish: `tensors` in any order, all synced. When the config ties the word
// embeddings and the checkpoint has a head as well, the two form an alias group, and the
// publisher compares their bytes.
CheckpointManifest ManifestForCheckpoint(std::vector<TensorSpec> tensors,
                                         absl::string_view config_json);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_CHECKPOINT_CHECK_H_
