#ifndef LOCKSTEP_KERNELS_CP_SEGMENTS_H_
#define LOCKSTEP_KERNELS_CP_SEGMENTS_H_

// How a document's tokens are dealt to the ranks of context parallelism: segments in causal order,
// ranks in zigzag, so that rank 0 holds the first and the last and work is even. A rank's local
// tensors hold its segments back to back in causal order.
//
// Example: relay over 2 ranks, 512 tokens: segments of 128, owners 0 1 1 0.
//   absl::StatusOr<std::vector<CpSegment>> segments = RelaySegments(512, 2);

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep::kernels {

inline constexpr int kMaxCp = 64;
inline constexpr int64_t kFoldSegmentTokens = 1'024;

struct CpSegment {
  int64_t first = 0;  // token of the document
  int64_t count = 0;  // tokens
  int owner = 0;      // rank
};

// gdn_cp/relay@v1: cp = 1 has one segment; otherwise 2 * cp equal ones. InvalidArgument when
// `tokens` is not a multiple of 128 * cp then, or when tokens or cp is out of range.
absl::StatusOr<std::vector<CpSegment>> RelaySegments(int64_t tokens, int cp);

// gdn_cp/canonical_fold@v1: segments of 1024 tokens whatever cp is, the last may be shorter; dealt
// whole in zigzag order. Ranks may own none.
absl::StatusOr<std::vector<CpSegment>> FoldSegments(int64_t tokens, int cp);

// The tokens `rank` owns.
int64_t LocalTokens(const std::vector<CpSegment>& segments, int rank);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_CP_SEGMENTS_H_
