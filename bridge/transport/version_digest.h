#ifndef LOCKSTEP_BRIDGE_TRANSPORT_VERSION_DIGEST_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_VERSION_DIGEST_H_

// A version's `digest/paged@v1` as trainer, sampler and bridge compute it, each over its own
// bytes: a root for every synced tensor, bound to run, version, name, dtype and full shape, and
// the manifest root over those. A frozen or derived tensor has no bytes in a version: its entry
// in VersionDigest::tensor_roots is all zeros and the manifest root leaves it out (what it is
// stands in the layout digest).
//
// Example, over an arena:
//   LOCKSTEP_ASSIGN_OR_RETURN(VersionDigest digest,
//                             DigestArena("default", 3, key, manifest, arena.bytes(), 2));
// A trainer that copies while it digests, one task per synced tensor in manifest order:
//   auto results = kernels::CopyAndDigest(kernels::PageKeys(key), tasks, threads);
//   LOCKSTEP_ASSIGN_OR_RETURN(VersionDigest digest,
//                             VersionDigestOf("default", 3, keys, manifest, results));

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/digest.h"
#include "policy/ids.h"
#include "policy/manifest.h"
#include "policy/protocol.h"

namespace lockstep::transport {

// `results` are those of the manifest's synced tensors, in manifest order. InvalidArgument when
// their number is another; FailedPrecondition when one covers another number of bytes than its
// tensor has.
absl::StatusOr<VersionDigest> VersionDigestOf(const std::string& run, uint64_t version,
                                              const kernels::PageKeys& keys,
                                              const Manifest& manifest,
                                              absl::Span<const kernels::DigestResult> results);

// `arena` holds the version at the offsets of ComputeArenaLayout(manifest); InvalidArgument when
// it is shorter than that.
absl::StatusOr<VersionDigest> DigestArena(const std::string& run, uint64_t version,
                                          const Digest256& key, const Manifest& manifest,
                                          absl::Span<const uint8_t> arena, int threads);

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_VERSION_DIGEST_H_
