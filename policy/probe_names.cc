#include "policy/probe_names.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace lockstep {
namespace {

// Where a layer keeps its feed-forward part, and how it names the three matrices.
constexpr absl::string_view kMlpFolders[] = {"mlp.", "feed_forward.", "block_sparse_moe."};
constexpr absl::string_view kSharedFolders[] = {"shared_expert.", "shared_experts."};
struct MatrixNames {
  absl::string_view gate, up, down;
};
constexpr MatrixNames kMatrixNames[] = {{"gate_proj", "up_proj", "down_proj"},
                                        {"gate_up_proj", "gate_up_proj", "down_proj"},
                                        {"w1", "w3", "w2"}};
// In the order of preference: a model that has the first feeds its MLP from it.
constexpr absl::string_view kNormNames[] = {"pre_feedforward_layernorm", "pre_mlp_layernorm",
                                            "ffn_norm", "post_attention_layernorm",
                                            "input_layernorm"};
constexpr absl::string_view kFinalNormNames[] = {"norm.weight", "final_layernorm.weight",
                                                 "final_norm.weight"};
constexpr absl::string_view kHeadNames[] = {"lm_head.weight", "embed_tokens.weight"};

// Name within a layer -> index.
using Parts = std::map<std::string, size_t, std::less<>>;
// Layer number -> its parts.
using Layers = std::map<uint64_t, Parts>;

class Finder {
 public:
  Finder(const Manifest& manifest, const Parts& parts) : manifest_(manifest), parts_(parts) {}

  std::optional<MlpNames> Mlp(absl::string_view folder) const {
    for (const MatrixNames& names : kMatrixNames) {
      const auto gate = Find(folder, names.gate);
      const auto up = Find(folder, names.up);
      const auto down = Find(folder, names.down);
      if (!gate || !up || !down) continue;
      if (auto mlp = Fit(*gate, *up, *down, 0)) return mlp;
    }
    return std::nullopt;
  }

  std::optional<StackedExperts> Stacked(absl::string_view folder) const {
    const auto gate_up = Find(folder, "gate_up_proj");
    const auto down = Find(folder, "down_proj");
    if (!gate_up || !down) return std::nullopt;
    const auto mlp = Fit(*gate_up, *gate_up, *down, 1);
    if (!mlp) return std::nullopt;
    return StackedExperts{*mlp, manifest_.tensors[*gate_up].shape[0]};
  }

  std::optional<size_t> Norm(uint64_t hidden) const {
    for (absl::string_view name : kNormNames) {
      const auto found = Find("", name);
      if (!found) continue;
      const TensorSpec& tensor = manifest_.tensors[*found];
      const bool fits = tensor.shape == std::vector<uint64_t>{hidden} &&
                        (tensor.dtype == Dtype::kBF16 || tensor.dtype == Dtype::kF32);
      if (fits) return found;
    }
    return std::nullopt;
  }

 private:
  // With or without ".weight", as stacked parameters have none.
  std::optional<size_t> Find(absl::string_view folder, absl::string_view name) const {
    for (absl::string_view suffix : {".weight", ""}) {
      const auto it = parts_.find(absl::StrCat(folder, name, suffix));
      if (it != parts_.end()) return it->second;
    }
    return std::nullopt;
  }

  // `lead` dimensions (of experts) come before those of a matrix, and must be equal.
  std::optional<MlpNames> Fit(size_t gate, size_t up, size_t down, size_t lead) const {
    const TensorSpec& g = manifest_.tensors[gate];
    const TensorSpec& u = manifest_.tensors[up];
    const TensorSpec& d = manifest_.tensors[down];
    const bool dtypes = g.dtype == u.dtype && g.dtype == d.dtype &&
                        (g.dtype == Dtype::kBF16 || g.dtype == Dtype::kF16);
    const bool ranks = g.shape.size() == lead + 2 && d.shape.size() == lead + 2;
    if (!dtypes || !ranks || g.shape != u.shape) return std::nullopt;
    if (lead > 0 && (g.shape[0] != d.shape[0] || g.shape[0] == 0)) return std::nullopt;
    const bool packed = gate == up;
    MlpNames mlp{gate, up, down, g.shape[lead + 1], g.shape[lead] / (packed ? 2 : 1), g.dtype};
    const bool fits = mlp.hidden > 0 && mlp.intermediate > 0 &&
                      (!packed || g.shape[lead] % 2 == 0) && d.shape[lead] == mlp.hidden &&
                      d.shape[lead + 1] == mlp.intermediate;
    return fits ? std::optional<MlpNames>(mlp) : std::nullopt;
  }

  const Manifest& manifest_;
  const Parts& parts_;
};

LayerNames FindLayer(const Manifest& manifest, const Parts& parts) {
  const Finder finder(manifest, parts);
  LayerNames layer;
  std::optional<uint64_t> hidden;
  const auto note = [&hidden](const std::optional<MlpNames>& mlp) {
    if (mlp && !hidden) hidden = mlp->hidden;
  };
  for (absl::string_view folder : kMlpFolders) {
    if (!layer.dense) note(layer.dense = finder.Mlp(folder));
    for (absl::string_view shared : kSharedFolders) {
      if (!layer.shared) note(layer.shared = finder.Mlp(absl::StrCat(folder, shared)));
    }
    const std::string experts = absl::StrCat(folder, "experts.");
    if (!layer.stacked && (layer.stacked = finder.Stacked(experts))) note(layer.stacked->one);
    // Each expert's first part in name order leads to the expert.
    for (auto it = parts.lower_bound(experts);
         it != parts.end() && absl::StartsWith(it->first, experts); ++it) {
      absl::string_view rest = absl::string_view(it->first).substr(experts.size());
      const absl::string_view number = rest.substr(0, rest.find('.'));
      uint64_t expert = 0;
      if (!absl::SimpleAtoi(number, &expert) || layer.experts.count(expert) > 0) continue;
      const auto mlp = finder.Mlp(absl::StrCat(experts, number, "."));
      if (!mlp) continue;
      note(mlp);
      layer.experts.emplace(expert, *mlp);
    }
  }
  if (hidden) layer.norm = finder.Norm(*hidden);
  return layer;
}

// Every prefix that ends before "layers.N.", with what lies in its layers.
std::map<std::string, Layers> GroupByPrefix(const Manifest& manifest) {
  constexpr absl::string_view kLayers = "layers.";
  std::map<std::string, Layers> prefixes;
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    if (manifest.tensors[i].origin != TensorOrigin::kSynced) continue;
    const absl::string_view name = manifest.tensors[i].name;
    const size_t at = name.find(kLayers);
    if (at == name.npos || (at > 0 && name[at - 1] != '.')) continue;
    const absl::string_view rest = name.substr(at + kLayers.size());
    const size_t dot = rest.find('.');
    uint64_t layer = 0;
    if (dot == rest.npos || !absl::SimpleAtoi(rest.substr(0, dot), &layer)) continue;
    prefixes[std::string(name.substr(0, at))][layer].emplace(rest.substr(dot + 1), i);
  }
  return prefixes;
}

std::optional<size_t> FindTensor(const Manifest& manifest, const std::string& name) {
  const auto it = std::lower_bound(
      manifest.tensors.begin(), manifest.tensors.end(), name,
      [](const TensorSpec& tensor, const std::string& want) { return tensor.name < want; });
  if (it == manifest.tensors.end() || it->name != name) return std::nullopt;
  if (it->origin != TensorOrigin::kSynced) return std::nullopt;
  return static_cast<size_t>(it - manifest.tensors.begin());
}

// "model.language_model." -> itself, "model.", "".
std::vector<std::string> PrefixAndParents(std::string prefix) {
  std::vector<std::string> all = {prefix};
  while (!prefix.empty()) {
    prefix.pop_back();
    prefix.resize(prefix.rfind('.') == std::string::npos ? 0 : prefix.rfind('.') + 1);
    all.push_back(prefix);
  }
  return all;
}

template <size_t kCount>
std::optional<size_t> FindAround(const Manifest& manifest, const std::string& prefix,
                                 const absl::string_view (&names)[kCount], size_t rank) {
  for (absl::string_view name : names) {
    for (const std::string& place : PrefixAndParents(prefix)) {
      const auto found = FindTensor(manifest, absl::StrCat(place, name));
      if (found && manifest.tensors[*found].shape.size() == rank) return found;
    }
  }
  return std::nullopt;
}

}  // namespace

DecoderNames FindDecoder(const Manifest& manifest) {
  DecoderNames best;
  std::string best_prefix;
  for (const auto& [prefix, layers] : GroupByPrefix(manifest)) {
    DecoderNames names;
    for (const auto& [number, parts] : layers) {
      LayerNames layer = FindLayer(manifest, parts);
      if (layer.dense || layer.shared || layer.stacked || !layer.experts.empty()) {
        names.layers.emplace(number, std::move(layer));
      }
    }
    if (names.layers.size() <= best.layers.size()) continue;
    best = std::move(names);
    best_prefix = prefix;
  }
  if (best.layers.empty()) return best;
  best.final_norm = FindAround(manifest, best_prefix, kFinalNormNames, 1);
  best.head = FindAround(manifest, best_prefix, kHeadNames, 2);
  return best;
}

}  // namespace lockstep
