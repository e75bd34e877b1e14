#ifndef LOCKSTEP_POLICY_CHECKPOINT_CONFIG_H_
#define LOCKSTEP_POLICY_CHECKPOINT_CONFIG_H_

// What a config.json says about the tensors of its checkpoint. The language part of a
// multimodal config lies under `text_config`; null says nothing.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "policy/refusal_list.h"

namespace lockstep {

// A size that nobody stated; matches any dimension, and so does what is computed from it.
inline constexpr uint64_t kAnySize = 0;
uint64_t SizeProduct(uint64_t a, uint64_t b);  // kAnySize when either is
uint64_t SizeSum(uint64_t a, uint64_t b);      // kAnySize when either is

// Above these a config is not believed, so that no expected set or product grows without end.
inline constexpr uint64_t kMaxConfigSize = uint64_t{1} << 24;
inline constexpr uint64_t kMaxConfigLayers = 10'000;

struct CheckpointConfig {
  std::string model_type;                                    // of the text part, else of the top
  std::string path;                                          // "" or "text_config."
  std::map<std::string, uint64_t> sizes;                     // whole numbers of the text part
  std::map<std::string, bool> flags;                         // booleans of the text part
  std::vector<std::string> layer_types;                      // empty when not stated
  std::vector<std::string> mlp_layer_types;                  // "dense", "sparse"
  std::vector<std::string> indexer_types;                    // "full", "shared"
  std::optional<bool> tied;                                  // tie_word_embeddings, text part first
  std::string tied_path = "tie_word_embeddings";             // where it stands, or would
  bool quantised = false;                                    // has a quantization_config
  std::optional<std::pair<uint64_t, uint64_t>> scale_block;  // of block fp8
  bool generates = true;                                     // architectures name no headless class

  uint64_t Size(absl::string_view key) const;              // kAnySize when not stated
  bool Flag(absl::string_view key, bool otherwise) const;  // `otherwise` when not stated
  uint64_t layers() const { return Size("num_hidden_layers"); }
  // What stands beyond the last layer when the draft head is stored as layers.
  uint64_t draft_layers() const { return Size("num_nextn_predict_layers"); }
  // Whether layer `i` routes, by mlp_layer_types or first_k_dense_replace.
  bool SparseLayer(uint64_t i) const;
};

// Adds kBadConfig for text that is no JSON object and for keys of the wrong type.
CheckpointConfig ReadCheckpointConfig(absl::string_view config_json, RefusalList& found);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_CHECKPOINT_CONFIG_H_
