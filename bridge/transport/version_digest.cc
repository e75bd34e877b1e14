#include "bridge/transport/version_digest.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"

namespace lockstep::transport {

absl::StatusOr<VersionDigest> VersionDigestOf(const std::string& run, uint64_t version,
                                              const kernels::PageKeys& keys,
                                              const Manifest& manifest,
                                              absl::Span<const kernels::DigestResult> results) {
  VersionDigest digest;
  digest.tensor_roots.resize(manifest.tensors.size());
  std::vector<std::pair<std::string, Digest256>> named;
  size_t next = 0;
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const TensorSpec& tensor = manifest.tensors[i];
    if (tensor.origin != TensorOrigin::kSynced) continue;
    if (next == results.size()) break;
    const kernels::PageTable& table = results[next++].table;
    LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t bytes, TensorBytes(tensor));
    if (table.stream_bytes() != bytes) {
      return absl::FailedPreconditionError(
          absl::StrCat("tensor '", tensor.name, "': ", table.stream_bytes(),
                       " bytes were digested, the manifest has ", bytes));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(digest.tensor_roots[i],
                              kernels::TensorRoot({.run = run,
                                                   .version = version,
                                                   .name = tensor.name,
                                                   .dtype = std::string(DtypeName(tensor.dtype)),
                                                   .shape = tensor.shape},
                                                  keys, table));
    named.emplace_back(tensor.name, digest.tensor_roots[i]);
  }
  uint64_t synced = 0;
  for (const TensorSpec& tensor : manifest.tensors) {
    synced += tensor.origin == TensorOrigin::kSynced ? 1 : 0;
  }
  if (results.size() != synced) {
    return absl::InvalidArgumentError(absl::StrCat(
        "digests of ", results.size(), " tensors were given, the manifest syncs ", synced));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(digest.manifest_root, kernels::ManifestRoot(std::move(named)));
  return digest;
}

absl::StatusOr<VersionDigest> DigestArena(const std::string& run, uint64_t version,
                                          const Digest256& key, const Manifest& manifest,
                                          absl::Span<const uint8_t> arena, int threads) {
  const ArenaLayout layout = ComputeArenaLayout(manifest);
  if (arena.size() < layout.total_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an arena of ", arena.size(), " bytes cannot hold a version of ", layout.total_bytes));
  }
  std::vector<kernels::DigestTask> tasks;
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    if (manifest.tensors[i].origin != TensorOrigin::kSynced) continue;
    tasks.push_back({.source = arena.data() + layout.offsets[i],
                     .destination = nullptr,
                     .bytes = layout.sizes[i],
                     .nan_format = kernels::NanFormat::kNone});
  }
  const kernels::PageKeys keys(key);
  return VersionDigestOf(run, version, keys, manifest,
                         kernels::CopyAndDigest(keys, tasks, threads));
}

}  // namespace lockstep::transport
