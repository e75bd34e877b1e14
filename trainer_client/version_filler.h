#ifndef LOCKSTEP_TRAINER_CLIENT_VERSION_FILLER_H_
#define LOCKSTEP_TRAINER_CLIENT_VERSION_FILLER_H_

// The one pass over a version's tensors: each piece is copied to where the bridge can read it
// while it is digested and its NaNs are counted. Internal to trainer_client.
//
// Example:
//   FillRequest request{run, version, key, manifest, layout, sources, threads};
//   LOCKSTEP_ASSIGN_OR_RETURN(FilledVersion filled, FillVersion(request, writer, feed, progress));

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "bridge/transport/round_feed.h"
#include "bridge/transport/transport.h"
#include "policy/manifest.h"
#include "policy/protocol.h"
#include "trainer_client/publish_input.h"

namespace lockstep {

// Borrows everything for the length of a call.
struct FillRequest {
  const std::string& run;
  uint64_t version = 0;
  const Digest256& key;
  const Manifest& manifest;
  const ArenaLayout& layout;
  const TensorSources& sources;
  int threads = 1;
};

struct FilledVersion {
  VersionDigest digest;
  uint64_t nan_elements = 0;
};

// `writer` has begun; null: digests only, moves nothing. `progress` is called with the writer's
// mark now and then. Errors are the writer's, or the feed's when it was cancelled.
absl::StatusOr<FilledVersion> FillVersion(const FillRequest& request,
                                          transport::ArenaWriter* writer,
                                          transport::RoundFeed& feed,
                                          absl::FunctionRef<void(uint64_t bytes_ready)> progress);

}  // namespace lockstep

#endif  // LOCKSTEP_TRAINER_CLIENT_VERSION_FILLER_H_
