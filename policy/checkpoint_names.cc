#include "policy/checkpoint_names.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace lockstep {
namespace {

constexpr absl::string_view kTextPrefixes[] = {"model.language_model.", "language_model.model.",
                                               "model.", "transformer.", ""};
constexpr absl::string_view kHeads[] = {"lm_head.weight", "language_model.lm_head.weight",
                                        "model.lm_head.weight"};
constexpr absl::string_view kBesidePrefixes[] = {
    "model.visual.",
    "visual.",
    "model.vision_tower.",
    "vision_tower.",
    "vision_model.",
    "model.multi_modal_projector.",
    "multi_modal_projector.",
    "audio_tower.",
    "model.audio_tower.",
    "mtp.",
    "model.mtp.",
};
// Longest first, so that "weight_scale" does not cut "weight_scale_inv" short.
constexpr absl::string_view kScaleSuffixes[] = {"_scale_inv", "_scale_2", "_scale"};

bool IsFp8(Dtype dtype) {
  return dtype == Dtype::kF8E4M3 || dtype == Dtype::kF8E5M2 || dtype == Dtype::kF8E4M3Fnuz ||
         dtype == Dtype::kF8E5M2Fnuz;
}

uint64_t CeilDivide(uint64_t a, uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace

CheckpointNames::CheckpointNames(const Manifest& manifest) {
  for (const TensorSpec& tensor : manifest.tensors) by_name_[tensor.name] = &tensor;
  for (const absl::string_view prefix : kTextPrefixes) {
    if (Find(absl::StrCat(prefix, "embed_tokens.weight")) == nullptr) continue;
    text_prefix_ = std::string(prefix);
    break;
  }
  for (const absl::string_view head : kHeads) {
    if (Find(head) == nullptr) continue;
    head_ = std::string(head);
    break;
  }
}

const TensorSpec* CheckpointNames::Find(absl::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : at->second;
}

bool CheckpointNames::IsBeside(absl::string_view name, const CheckpointConfig& config) const {
  for (const absl::string_view prefix : kBesidePrefixes) {
    if (absl::StartsWith(name, prefix)) return true;
  }
  if (absl::EndsWith(name, "rotary_emb.inv_freq")) return true;
  const auto layer = SplitLayer(name);
  return layer.has_value() && config.layers() != kAnySize && layer->layer >= config.layers() &&
         layer->layer < config.layers() + config.draft_layers();
}

std::optional<CheckpointNames::LayerName> CheckpointNames::SplitLayer(
    absl::string_view name) const {
  if (!absl::ConsumePrefix(&name, text_prefix_) || !absl::ConsumePrefix(&name, "layers.")) {
    return std::nullopt;
  }
  const size_t dot = name.find('.');
  LayerName out;
  if (dot == name.npos || dot == 0 || (name[0] == '0' && dot > 1) ||
      name.substr(0, dot).find_first_not_of("0123456789") != name.npos ||
      !absl::SimpleAtoi(name.substr(0, dot), &out.layer)) {
    return std::nullopt;
  }
  out.rest = name.substr(dot + 1);
  return out;
}

std::string ScaledWeight(absl::string_view name) {
  for (const absl::string_view suffix : kScaleSuffixes) {
    if (!absl::ConsumeSuffix(&name, suffix)) continue;
    // An activation's scale stands beside the weight it goes with.
    return absl::ConsumeSuffix(&name, ".input") ? absl::StrCat(name, ".weight") : std::string(name);
  }
  return "";
}

void CheckScales(const CheckpointNames& names, const CheckpointConfig& config, RefusalList& found) {
  if (!config.quantised) return;
  for (const auto& [name, tensor] : names.all()) {
    if (absl::EndsWith(name, "_scale_inv")) {
      const std::string weight_name = ScaledWeight(name);
      const TensorSpec* weight = names.Find(weight_name);
      if (weight == nullptr) {
        found.Add(RefusalCode::kManifestMismatch, std::string(name),
                  absl::StrCat("scale '", name, "' has no weight '", weight_name,
                               "'; save the two together"));
      } else if (config.scale_block.has_value() && weight->shape.size() >= 2) {
        std::vector<uint64_t> expected = weight->shape;
        const auto [rows, columns] = *config.scale_block;
        expected[expected.size() - 2] = CeilDivide(expected[expected.size() - 2], rows);
        expected.back() = CeilDivide(expected.back(), columns);
        if (expected != tensor->shape) {
          found.Add(RefusalCode::kManifestMismatch, std::string(name),
                    absl::StrCat("scale '", name, "': expected ", ShapeText(expected), " for ",
                                 rows, "x", columns, " blocks of ", ShapeText(weight->shape),
                                 ", got ", ShapeText(tensor->shape)));
        }
      }
    } else if (IsFp8(tensor->dtype) && names.Find(absl::StrCat(name, "_scale_inv")) == nullptr &&
               names.Find(absl::StrCat(name, "_scale")) == nullptr) {
      found.Add(RefusalCode::kManifestMismatch, std::string(name),
                absl::StrCat("fp8 weight '", name, "' has no scale '", name,
                             "_scale_inv'; its bytes mean nothing without it: save both"));
    }
  }
}

std::string ShapeText(const std::vector<uint64_t>& shape) {
  std::string out = "[";
  for (const uint64_t size : shape) {
    absl::StrAppend(&out, out.size() > 1 ? "," : "", size == kAnySize ? "?" : absl::StrCat(size));
  }
  return out + "]";
}

bool ShapeFits(const std::vector<uint64_t>& expected, const std::vector<uint64_t>& got) {
  if (expected.size() != got.size()) return false;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] != kAnySize && expected[i] != got[i]) return false;
  }
  return true;
}

}  // namespace lockstep
