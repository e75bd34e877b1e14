#ifndef LOCKSTEP_POLICY_PROBE_NAMES_H_
#define LOCKSTEP_POLICY_PROBE_NAMES_H_

// Finds the parts of a decoder in a manifest by the names that Hugging Face classes write,
// under any prefix ("model.", "model.language_model."): the norm before each MLP, dense MLPs,
// shared and routed experts, the final norm, the head. Shapes are checked; what does not fit is
// not found. Indices are into Manifest::tensors.
//
// Example:
//   DecoderNames names = FindDecoder(manifest);
//   names.layers[3].dense->down;

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "policy/manifest.h"

namespace lockstep {

// gate [I, H], up [I, H], down [H, I], of one dtype: BF16 or F16.
struct MlpNames {
  size_t gate = 0;
  size_t up = 0;  // equal to `gate` when the two are packed, gate first: [2I, H]
  size_t down = 0;
  uint64_t hidden = 0;        // H
  uint64_t intermediate = 0;  // I
  Dtype dtype = Dtype::kBF16;
};

// All experts of a layer in two tensors: [E, 2I, H] and [E, H, I].
struct StackedExperts {
  MlpNames one;  // tensors are the stacks; sizes are those of one expert
  uint64_t experts = 0;
};

struct LayerNames {
  std::optional<size_t> norm;  // the one whose output enters the MLP; [H]
  std::optional<MlpNames> dense;
  std::optional<MlpNames> shared;
  std::optional<StackedExperts> stacked;
  std::map<uint64_t, MlpNames> experts;  // by number, where each has tensors of its own
};

struct DecoderNames {
  std::map<uint64_t, LayerNames> layers;  // those with at least one MLP
  std::optional<size_t> final_norm;       // [H]
  std::optional<size_t> head;             // [V, H]; the embedding where it is tied
};

// The decoder with the most layers where several prefixes hold one; no layers when none does.
DecoderNames FindDecoder(const Manifest& manifest);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_PROBE_NAMES_H_
