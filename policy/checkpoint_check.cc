#include "policy/checkpoint_check.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/checkpoint_config.h"
#include "policy/checkpoint_families.h"
#include "policy/checkpoint_generic.h"
#include "policy/checkpoint_names.h"
#include "policy/refusal_list.h"

namespace lockstep {
namespace {

void CheckFamily(const CheckpointNames& names, const CheckpointConfig& config, RefusalList& found) {
  std::set<absl::string_view> expected_names;
  const std::vector<ExpectedTensor> expected = ExpectedTensors(config, names, found);
  for (const ExpectedTensor& want : expected) {
    expected_names.insert(want.name);
    const TensorSpec* got = names.Find(want.name);
    if (got == nullptr) {
      if (!want.required) continue;
      found.Add(RefusalCode::kManifestMismatch, want.name,
                absl::StrCat("tensor '", want.name, "' ", ShapeText(want.shape),
                             " is missing from the checkpoint; the config (", config.model_type,
                             ") needs it: publish the checkpoint of this config"));
    } else if (!ShapeFits(want.shape, got->shape)) {
      found.Add(RefusalCode::kManifestMismatch, want.name,
                absl::StrCat("tensor '", want.name, "': expected ", ShapeText(want.shape),
                             " from the config, got ", ShapeText(got->shape),
                             "; publish the checkpoint of this config"));
    }
  }
  if (expected.empty()) return;
  for (const auto& [name, tensor] : names.all()) {
    if (expected_names.count(name) != 0 || name == names.head() || names.IsBeside(name, config)) {
      continue;
    }
    const std::string scaled = ScaledWeight(name);
    if (!scaled.empty() && names.Find(scaled) != nullptr) continue;
    found.Add(RefusalCode::kManifestMismatch, std::string(name),
              absl::StrCat("tensor '", name, "' ", ShapeText(tensor->shape),
                           " is no part of the model of this config (", config.model_type,
                           "); publish the checkpoint of this config"));
  }
}

void CheckHead(const CheckpointNames& names, const CheckpointConfig& config, bool known,
               RefusalList& found) {
  const TensorSpec* head = names.Find(names.head());
  if (head == nullptr) {
    const bool tied = config.tied.value_or(!known);
    if (tied || !config.generates || names.Find(names.embedding()) == nullptr) return;
    found.Add(
        RefusalCode::kManifestMismatch, config.tied_path,
        absl::StrCat(config.tied_path, " is false, so the head is a tensor of its own, but '",
                     names.head(), "' is missing; save the head too, or tie it in the config"));
    return;
  }
  const bool plain = !config.quantised || config.scale_block.has_value();
  const std::vector<uint64_t> expected = {config.Size("vocab_size"), config.Size("hidden_size")};
  if (!plain || ShapeFits(expected, head->shape)) return;
  found.Add(RefusalCode::kManifestMismatch, head->name,
            absl::StrCat("tensor '", head->name, "': expected ", ShapeText(expected),
                         " ([vocab_size, hidden_size]), got ", ShapeText(head->shape),
                         "; publish the checkpoint of this config"));
}

void Check(const CheckpointNames& names, const CheckpointConfig& config, RefusalList& found) {
  // A packed quantisation has names and shapes of its own, which only the generic rules bear.
  const bool known = IsKnownCheckpointFamily(config) && config.layers() != kAnySize &&
                     (!config.quantised || config.scale_block.has_value());
  if (known) {
    CheckFamily(names, config, found);
  } else {
    CheckGeneric(names, config, found);
  }
  CheckHead(names, config, known, found);
  CheckScales(names, config, found);
}

}  // namespace

std::vector<Refusal> CheckCheckpoint(const Manifest& manifest, absl::string_view config_json) {
  RefusalList found;
  const CheckpointConfig config = ReadCheckpointConfig(config_json, found);
  if (found.empty()) Check(CheckpointNames(manifest), config, found);
  return std::move(found).Take();
}

CheckpointManifest ManifestForCheckpoint(std::vector<TensorSpec> tensors,
                                         absl::string_view config_json) {
  CheckpointManifest out;
  out.manifest.tensors = std::move(tensors);
  std::sort(out.manifest.tensors.begin(), out.manifest.tensors.end(),
            [](const TensorSpec& a, const TensorSpec& b) { return a.name < b.name; });
  RefusalList found;
  const CheckpointConfig config = ReadCheckpointConfig(config_json, found);
  const CheckpointNames names(out.manifest);
  if (found.empty()) Check(names, config, found);
  out.refusals = std::move(found).Take();
  if (config.tied.value_or(false) && names.Find(names.head()) != nullptr &&
      names.Find(names.embedding()) != nullptr) {
    out.manifest.alias_groups = {{names.embedding(), names.head()}};
    std::sort(out.manifest.alias_groups[0].begin(), out.manifest.alias_groups[0].end());
  }
  if (out.refusals.empty()) out.refusals = CheckManifest(out.manifest);
  return out;
}

}  // namespace lockstep
