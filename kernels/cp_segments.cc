#include "kernels/cp_segments.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lockstep::kernels {
namespace {

constexpr int64_t kGridTokens = 64;

absl::Status CheckRange(int64_t tokens, int cp) {
  if (tokens >= 1 && cp >= 1 && cp <= kMaxCp) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("context parallel: expected at least 1 token and 1 to ", kMaxCp,
                   " ranks, got T=", tokens, " cp=", cp));
}

int ZigzagOwner(int64_t segment, int cp) {
  const int64_t j = segment % (2 * cp);
  return static_cast<int>(std::min(j, 2 * cp - 1 - j));
}

}  // namespace

absl::StatusOr<std::vector<CpSegment>> RelaySegments(int64_t tokens, int cp) {
  if (absl::Status status = CheckRange(tokens, cp); !status.ok()) return status;
  if (cp == 1) return std::vector<CpSegment>{{0, tokens, 0}};
  // Equal segments that begin on the document's grid.
  if (tokens % (2 * kGridTokens * cp) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gdn_cp/relay@v1: expected a length divisible by ", 2 * kGridTokens * cp, " for cp=", cp,
        ", got T=", tokens, "; pad the document or use gdn_cp/canonical_fold@v1"));
  }
  std::vector<CpSegment> segments;
  const int64_t count = tokens / (2 * cp);
  for (int64_t i = 0; i < 2 * cp; ++i) segments.push_back({i * count, count, ZigzagOwner(i, cp)});
  return segments;
}

absl::StatusOr<std::vector<CpSegment>> FoldSegments(int64_t tokens, int cp) {
  if (absl::Status status = CheckRange(tokens, cp); !status.ok()) return status;
  std::vector<CpSegment> segments;
  for (int64_t first = 0, i = 0; first < tokens; first += kFoldSegmentTokens, ++i) {
    segments.push_back({first, std::min(kFoldSegmentTokens, tokens - first), ZigzagOwner(i, cp)});
  }
  return segments;
}

int64_t LocalTokens(const std::vector<CpSegment>& segments, int rank) {
  int64_t tokens = 0;
  for (const CpSegment& segment : segments) tokens += segment.owner == rank ? segment.count : 0;
  return tokens;
}

}  // namespace lockstep::kernels
