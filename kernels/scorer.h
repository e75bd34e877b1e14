#ifndef LOCKSTEP_KERNELS_SCORER_H_
#define LOCKSTEP_KERNELS_SCORER_H_

// Exact scorer of a qwen3_5_dense checkpoint, `scorer/qwen3_5_dense@v1`
// (kernels/SPECIFICATION.md, "Scorer"): the log-probability of every completion token given all
// tokens before it, at temperature 1. A sequence's bytes depend on the weights, its own tokens and
// the SiLU realisation alone: never on the batch, the threads or the context-parallel split.
//
// Example:
//   absl::StatusOr<Scorer> scorer = Scorer::Create(config, lookup);
//   ScoredSequence sequence;
//   sequence.prompt = {8, 7, 5}, sequence.completion = {2, 9};
//   absl::StatusOr<std::vector<std::vector<float>>> logprobs = scorer->Score({sequence}, {});
//   (*logprobs)[0][1];   // of token 9

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/layer_qwen3_5.h"

namespace lockstep::kernels {

inline constexpr char kQwen35DenseScorerId[] = "scorer/qwen3_5_dense@v1";

enum class Qwen35LayerKind : uint8_t { kLinearAttention, kFullAttention };

// The numbers of a config.json.
struct Qwen35DenseConfig {
  Qwen35Sizes sizes;
  int64_t vocab = 0;
  std::vector<Qwen35LayerKind> layers;
  bool tied_embeddings = true;    // the head is the embedding
  std::string prefix = "model.";  // of every name but lm_head.weight
};

// A tensor by its Hugging Face name; NotFound when there is none. What it points to outlives the
// scorer.
using WeightLookup = std::function<absl::StatusOr<LayerWeight>(absl::string_view name)>;

struct ScoredSequence {
  std::vector<int64_t> prompt;      // at least one token
  std::vector<int64_t> completion;  // at least one token
};

struct ScoreOptions {
  int threads = 1;
  const GateTable* silu = nullptr;  // BF16; null: silu/ieee@v1
  // Simulated context parallelism of the gated delta nets. Absent: none.
  std::optional<GdnSplit> split;
  // Told of every stored intermediate, as "layers.3.q_proj", "final_norm".
  LayerObserver observe;
};

class Scorer {
 public:
  // Looks all weights up. InvalidArgument, naming the tensor, when one does not fit the config.
  static absl::StatusOr<Scorer> Create(const Qwen35DenseConfig& config, const WeightLookup& lookup);

  // For each sequence one float32 for each completion token. InvalidArgument for an empty batch,
  // prompt or completion, a token outside the vocabulary or a split that the length does not allow.
  absl::StatusOr<std::vector<std::vector<float>>> Score(absl::Span<const ScoredSequence> batch,
                                                        const ScoreOptions& options) const;

 private:
  struct Layer {
    LayerWeight input_norm;
    LayerWeight post_attention_norm;
    std::optional<GdnMixerWeights> gdn;
    std::optional<AttentionMixerWeights> attention;
    MlpWeights mlp;
  };

  explicit Scorer(const Qwen35DenseConfig& config) : config_(config) {}

  absl::Status LookUpLayer(size_t index, const WeightLookup& lookup);
  absl::Status LookUpMixer(size_t index, const WeightLookup& lookup, Layer& layer) const;
  // The residual stream after all layers, BF16 [rows, hidden].
  absl::StatusOr<std::vector<uint16_t>> RunLayers(absl::Span<const int64_t> tokens,
                                                  const LayerRun& run,
                                                  const ScoreOptions& options) const;

  Qwen35DenseConfig config_;
  LayerWeight embedding_;   // [V, H]
  LayerWeight head_;        // [V, H]
  LayerWeight final_norm_;  // [H]
  std::vector<Layer> layers_;
};

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_SCORER_H_
