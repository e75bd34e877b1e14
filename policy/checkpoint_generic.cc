#include "policy/checkpoint_generic.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

// A layer's tensors by what follows "layers.N.".
using LayerTensors = std::map<absl::string_view, const TensorSpec*>;
using Layers = std::map<uint64_t, LayerTensors>;

std::string LayerPrefix(const CheckpointNames& names, uint64_t layer) {
  return absl::StrCat(names.text_prefix(), "layers.", layer, ".");
}

Layers CollectLayers(const CheckpointNames& names, const CheckpointConfig& config) {
  Layers out;
  for (const auto& [name, tensor] : names.all()) {
    const auto split = names.SplitLayer(name);
    if (split.has_value() && !names.IsBeside(name, config)) out[split->layer][split->rest] = tensor;
  }
  return out;
}

void CheckLayerNumbers(const CheckpointNames& names, const CheckpointConfig& config,
                       const Layers& layers, RefusalList& found) {
  const uint64_t stated = config.layers();
  const uint64_t count = stated != kAnySize ? stated : layers.rbegin()->first + 1;
  uint64_t next = 0;
  const auto missing_until = [&](uint64_t end) {
    if (next >= end) return;
    found.Add(RefusalCode::kManifestMismatch, LayerPrefix(names, next),
              absl::StrCat("no tensor of layer ", next,
                           end - next > 1 ? absl::StrCat(" to ", end - 1) : "",
                           " is there, and the config has ", count,
                           " layers; publish every shard of the checkpoint"));
  };
  for (const auto& [layer, tensors] : layers) {
    if (layer >= count) break;
    missing_until(layer);
    next = layer + 1;
  }
  missing_until(count);
  for (auto at = layers.lower_bound(count); at != layers.end(); ++at) {
    const std::string key = absl::StrCat(LayerPrefix(names, at->first), at->second.begin()->first);
    found.Add(RefusalCode::kManifestMismatch, key,
              absl::StrCat("tensor '", key, "' belongs to layer ", at->first,
                           ", but the config has only ", count,
                           " layers; it is a checkpoint of another config"));
  }
}

// Layers of one kind must look alike. What the config says of a layer and the modules it
// consists of make its kind; a module that is one tensor (a norm) does not, so that losing it
// does not make a new kind.
std::string Kind(const CheckpointConfig& config, uint64_t layer, const LayerTensors& tensors) {
  std::set<std::string> modules;
  for (const auto& [rest, tensor] : tensors) {
    const size_t dot = rest.find('.');
    if (dot == rest.npos || rest.find('.', dot + 1) == rest.npos) continue;
    modules.insert(std::string(rest.substr(0, dot)));
    if (absl::StrContains(rest, ".experts.")) modules.insert("(experts)");
  }
  std::string out;
  if (layer < config.layer_types.size()) absl::StrAppend(&out, config.layer_types[layer], "|");
  if (layer < config.mlp_layer_types.size()) {
    absl::StrAppend(&out, config.mlp_layer_types[layer], "|");
  }
  for (const std::string& module : modules) absl::StrAppend(&out, module, "|");
  return out;
}

// Per name, what most layers of the kind have.
struct Usual {
  uint64_t layers = 0;
  std::map<std::vector<uint64_t>, uint64_t> shapes;

  const std::vector<uint64_t>& shape() const {
    return std::max_element(shapes.begin(), shapes.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  }
};

void CheckKind(const CheckpointNames& names, const std::vector<uint64_t>& members,
               const Layers& layers, RefusalList& found) {
  std::map<absl::string_view, Usual> usual;
  for (const uint64_t layer : members) {
    for (const auto& [rest, tensor] : layers.at(layer)) {
      ++usual[rest].layers;
      ++usual[rest].shapes[tensor->shape];
    }
  }
  for (const auto& [rest, seen] : usual) {
    const bool most_have = 2 * seen.layers >= members.size();
    const std::vector<uint64_t>& shape = seen.shape();
    for (const uint64_t layer : members) {
      const auto at = layers.at(layer).find(rest);
      const bool has = at != layers.at(layer).end();
      const std::string key = absl::StrCat(LayerPrefix(names, layer), rest);
      if (!has && most_have) {
        found.Add(RefusalCode::kManifestMismatch, key,
                  absl::StrCat("tensor '", key, "' is missing; ", seen.layers, " of ",
                               members.size(), " layers of this kind have one"));
      } else if (has && !most_have) {
        found.Add(RefusalCode::kManifestMismatch, key,
                  absl::StrCat("tensor '", key, "' is extra; only ", seen.layers, " of ",
                               members.size(), " layers of this kind have one"));
      } else if (has && at->second->shape != shape && 2 * seen.shapes.at(shape) > seen.layers) {
        found.Add(RefusalCode::kManifestMismatch, key,
                  absl::StrCat("tensor '", key, "': expected ", ShapeText(shape),
                               " as in the other layers, got ", ShapeText(at->second->shape)));
      }
    }
  }
}

struct MlpRule {
  absl::string_view module;  // after "layers.N."
  uint64_t intermediate;
  bool by_expert = false;  // an expert's number comes before the projection
};

// gate and up are [intermediate, hidden], down is [hidden, intermediate]; one tensor an expert.
void CheckMlps(const CheckpointConfig& config, const Layers& layers, RefusalList& found) {
  const uint64_t hidden = config.Size("hidden_size");
  const uint64_t moe = config.Size("moe_intermediate_size");
  const uint64_t shared = SizeProduct(moe, config.Size("n_shared_experts"));
  const MlpRule rules[] = {
      {"mlp.shared_experts.", shared},
      {"mlp.shared_expert.", config.Size("shared_expert_intermediate_size")},
      {"mlp.experts.", moe, true},
      {"mlp.", config.Size("intermediate_size")},
  };
  for (const auto& [layer, tensors] : layers) {
    for (const auto& [rest, tensor] : tensors) {
      const auto* rule = std::find_if(std::begin(rules), std::end(rules), [&](const MlpRule& rule) {
        return absl::StartsWith(rest, rule.module);
      });
      if (rule == std::end(rules)) continue;
      absl::string_view projection = rest.substr(rule->module.size());
      if (rule->by_expert) projection.remove_prefix(projection.find('.') + 1);  // none: 0
      const bool down = projection == "down_proj.weight";
      if (!down && projection != "gate_proj.weight" && projection != "up_proj.weight") continue;
      const std::vector<uint64_t> expected =
          down ? std::vector<uint64_t>{hidden, rule->intermediate}
               : std::vector<uint64_t>{rule->intermediate, hidden};
      if (ShapeFits(expected, tensor->shape)) continue;
      found.Add(RefusalCode::kManifestMismatch, tensor->name,
                absl::StrCat("tensor '", tensor->name, "': expected ", ShapeText(expected),
                             " from the config, got ", ShapeText(tensor->shape),
                             "; publish the checkpoint of this config"));
    }
  }
}

}  // namespace

void CheckGeneric(const CheckpointNames& names, const CheckpointConfig& config,
                  RefusalList& found) {
  const TensorSpec* embedding = names.Find(names.embedding());
  const Layers layers = CollectLayers(names, config);
  if (embedding == nullptr || layers.empty()) return;
  // A quantised tensor may be packed: its shape is then the packing's.
  const bool plain = !config.quantised || config.scale_block.has_value();
  const std::vector<uint64_t> expected = {config.Size("vocab_size"), config.Size("hidden_size")};
  if (plain && !ShapeFits(expected, embedding->shape)) {
    found.Add(RefusalCode::kManifestMismatch, embedding->name,
              absl::StrCat("tensor '", embedding->name, "': expected ", ShapeText(expected),
                           " ([vocab_size, hidden_size]), got ", ShapeText(embedding->shape),
                           "; publish the checkpoint of this config"));
  }
  CheckLayerNumbers(names, config, layers, found);
  std::map<std::string, std::vector<uint64_t>> kinds;
  for (const auto& [layer, tensors] : layers) {
    if (config.layers() != kAnySize && layer >= config.layers()) continue;
    kinds[Kind(config, layer, tensors)].push_back(layer);
  }
  for (const auto& [kind, members] : kinds) CheckKind(names, members, layers, found);
  if (plain) CheckMlps(config, layers, found);
}

}  // namespace lockstep
