#ifndef LOCKSTEP_BRIDGE_LOOP_SPOOL_H_
#define LOCKSTEP_BRIDGE_LOOP_SPOOL_H_

// A version's bytes on disk, so that a late sampler gets them after the bridge was restarted
// and the trainer has left. One file a version, STATE_DIR/versions/V.spool:
//
//   offset  bytes  what
//        0      8  "LKSPOOL1"
//        8      8  version, little-endian
//       16      8  arena bytes n, little-endian
//       24      8  xxh3-64 of the arena bytes, little-endian
//       32      n  the arena: tensors at the offsets of ComputeArenaLayout (policy/manifest.h)
//
// The checksum finds a damaged disk early; what proves the bytes is the version's digest.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace lockstep::loop {

class Spool {
 public:
  // Files lie in STATE_DIR/versions, made on first use.
  explicit Spool(const std::string& state_dir);

  // Writes, syncs file and folder, and renames into place: a crash leaves the whole file or
  // none. ResourceExhausted on a full disk.
  absl::Status Write(uint64_t version, absl::Span<const uint8_t> arena) const;

  // Fills `arena`, whose size must be the file's. NotFound, or DataLoss for a damaged file.
  absl::Status Read(uint64_t version, absl::Span<uint8_t> arena) const;

  // No error when it is not there.
  absl::Status Drop(uint64_t version) const;

 private:
  std::string FilePath(uint64_t version) const;

  std::string folder_;
};

}  // namespace lockstep::loop

#endif  // LOCKSTEP_BRIDGE_LOOP_SPOOL_H_
