#ifndef LOCKSTEP_POLICY_CHECKPOINT_NAMES_H_
#define LOCKSTEP_POLICY_CHECKPOINT_NAMES_H_

// A checkpoint's tensors by name, and where its language part lies.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "policy/checkpoint_config.h"
#include "policy/manifest.h"
#include "policy/refusal_list.h"

namespace lockstep {

class CheckpointNames {
 public:
  // Borrows `manifest`.
  explicit CheckpointNames(const Manifest& manifest);

  const TensorSpec* Find(absl::string_view name) const;
  const std::map<absl::string_view, const TensorSpec*>& all() const { return by_name_; }

  // Before "embed_tokens.weight" and "layers.0": "model.", "model.language_model.", ...;
  // "model." when no embedding is found.
  const std::string& text_prefix() const { return text_prefix_; }
  std::string embedding() const { return text_prefix_ + "embed_tokens.weight"; }
  // The head that is there, or the name it would have.
  const std::string& head() const { return head_; }

  // Towers, projectors, draft heads, buffers: synced, not derived from the text config.
  bool IsBeside(absl::string_view name, const CheckpointConfig& config) const;

  // "layers.N.rest" under the text prefix: N and rest; nullopt for other names.
  struct LayerName {
    uint64_t layer = 0;
    absl::string_view rest;
  };
  std::optional<LayerName> SplitLayer(absl::string_view name) const;

 private:
  std::map<absl::string_view, const TensorSpec*> by_name_;
  std::string text_prefix_ = "model.";
  std::string head_ = "lm_head.weight";
};

// The weight that a quantisation scale belongs to ("x.weight" for "x.weight_scale_inv"), or
// empty when `name` is no scale.
std::string ScaledWeight(absl::string_view name);

// Every scale has its weight, block scales have the shape their weight needs, and every fp8
// weight of a quantised model has its scale. kManifestMismatch.
void CheckScales(const CheckpointNames& names, const CheckpointConfig& config, RefusalList& found);

// "[64,128]"; a size that any value fits is "?".
std::string ShapeText(const std::vector<uint64_t>& shape);
bool ShapeFits(const std::vector<uint64_t>& expected, const std::vector<uint64_t>& got);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_CHECKPOINT_NAMES_H_
