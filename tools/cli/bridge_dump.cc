#include "tools/cli/bridge_dump.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tools/cli/checkpoint_file.h"

namespace lockstep::tools {
namespace {

// The order of the safetensors library's own dtype list, least aligned first.
constexpr Dtype kByAlignment[] = {
    Dtype::kBool,       Dtype::kF4,     Dtype::kF6E2M3, Dtype::kF6E3M2, Dtype::kU8,
    Dtype::kI8,         Dtype::kF8E5M2, Dtype::kF8E4M3, Dtype::kF8E8M0, Dtype::kF8E4M3Fnuz,
    Dtype::kF8E5M2Fnuz, Dtype::kI16,    Dtype::kU16,    Dtype::kF16,    Dtype::kBF16,
    Dtype::kI32,        Dtype::kU32,    Dtype::kF32,    Dtype::kC64,    Dtype::kF64,
    Dtype::kI64,        Dtype::kU64};

size_t Rank(Dtype dtype) {
  return static_cast<size_t>(std::find(std::begin(kByAlignment), std::end(kByAlignment), dtype) -
                             kByAlignment);
}

}  // namespace

std::string DumpPath(const std::string& folder, uint64_t version) {
  return absl::StrCat(folder, "/step", version, ".safetensors");
}

std::vector<size_t> DumpOrder(const Manifest& manifest) {
  std::vector<size_t> order;
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    if (manifest.tensors[i].origin == TensorOrigin::kSynced) order.push_back(i);
  }
  // Manifests are sorted by name.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return Rank(manifest.tensors[a].dtype) > Rank(manifest.tensors[b].dtype);
  });
  return order;
}

absl::Status DumpVersion(const VersionDump& dump) {
  std::vector<TensorToWrite> tensors;
  for (const size_t index : DumpOrder(dump.manifest)) {
    tensors.push_back({dump.manifest.tensors[index], dump.tensor(index)});
  }
  return WriteCheckpoint(DumpPath(dump.folder, dump.version), tensors,
                         {{"format", "pt"}, {"policy_version", absl::StrCat(dump.version)}});
}

}  // namespace lockstep::tools
