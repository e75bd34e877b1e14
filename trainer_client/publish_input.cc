#include "trainer_client/publish_input.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "policy/status_macros.h"

namespace lockstep {
namespace {

// Manifests are sorted by name.
const TensorSpec* FindTensor(const Manifest& manifest, absl::string_view name) {
  const auto found = std::lower_bound(
      manifest.tensors.begin(), manifest.tensors.end(), name,
      [](const TensorSpec& tensor, absl::string_view wanted) { return tensor.name < wanted; });
  if (found == manifest.tensors.end() || found->name != name) return nullptr;
  return &*found;
}

std::string Described(const TensorSpec& tensor) {
  return absl::StrCat(DtypeName(tensor.dtype), " [", absl::StrJoin(tensor.shape, ","), "]");
}

absl::Status Wrong(absl::string_view name, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tensor '", name, "': ", what));
}

}  // namespace

absl::StatusOr<TensorSources> MatchTensors(const Manifest& manifest,
                                           absl::Span<const TensorBytesView> tensors) {
  TensorSources sources(manifest.tensors.size());
  std::vector<bool> given(manifest.tensors.size());
  for (const TensorBytesView& view : tensors) {
    const TensorSpec* spec = FindTensor(manifest, view.name);
    if (spec == nullptr) {
      return Wrong(view.name, "is not in the manifest; register with the manifest of this model");
    }
    if (spec->origin != TensorOrigin::kSynced) {
      return Wrong(view.name, spec->origin == TensorOrigin::kFrozen
                                  ? "is frozen in the manifest and never moved; leave it out"
                                  : "is derived by the sampler and never moved; leave it out");
    }
    const size_t index = static_cast<size_t>(spec - manifest.tensors.data());
    if (given[index]) return Wrong(view.name, "is given twice");
    given[index] = true;
    LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t bytes, TensorBytes(*spec));
    if (view.bytes.size() != bytes) {
      return Wrong(view.name, absl::StrCat("expected ", bytes, " bytes for ", Described(*spec),
                                           " as in the manifest, got ", view.bytes.size(),
                                           "; publish the checkpoint of this config"));
    }
    sources[index] = view.bytes;
  }
  for (size_t i = 0; i < given.size(); ++i) {
    const TensorSpec& spec = manifest.tensors[i];
    if (spec.origin == TensorOrigin::kSynced && !given[i]) {
      return Wrong(spec.name, absl::StrCat("is missing; the manifest has it as ", Described(spec),
                                           " and every synced tensor belongs to every version"));
    }
  }
  return sources;
}

absl::Status CheckTiedTensors(const Manifest& manifest, const TensorSources& sources) {
  for (const std::vector<std::string>& group : manifest.alias_groups) {
    const TensorSpec* first = nullptr;
    absl::Span<const uint8_t> expected;
    for (const std::string& name : group) {
      const TensorSpec* spec = FindTensor(manifest, name);
      if (spec == nullptr || spec->origin != TensorOrigin::kSynced) continue;
      const absl::Span<const uint8_t> bytes =
          sources[static_cast<size_t>(spec - manifest.tensors.data())];
      if (first == nullptr) {
        first = spec;
        expected = bytes;
        continue;
      }
      if (bytes.data() == expected.data() || bytes.empty()) continue;
      if (std::memcmp(bytes.data(), expected.data(), bytes.size()) != 0) {
        return Wrong(name, absl::StrCat("is tied to '", first->name,
                                        "' in the manifest and its bytes differ; tie the weights "
                                        "again, or register a manifest that does not tie them"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace lockstep
