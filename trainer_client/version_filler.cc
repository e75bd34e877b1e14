#include "trainer_client/version_filler.h"

#include <algorithm>
#include <vector>

#include "bridge/transport/version_digest.h"
#include "kernels/digest.h"
#include "policy/status_macros.h"

namespace lockstep {
namespace {

// Between two looks at the feed and two marks. Where bytes are copied straight into the arena,
// groups are large, for each starts its threads anew; where they go through a socket they are
// small enough to be in the cache still when they are sent.
constexpr uint64_t kMappedGroupBytes = uint64_t{256} << 20;
constexpr uint64_t kSentGroupBytes = uint64_t{4} << 20;
static_assert(kMappedGroupBytes % kernels::kPageBytes == 0);
static_assert(kSentGroupBytes % kernels::kPageBytes == 0);

// Whole pages of one tensor, the last one perhaps cut off by its end.
struct Piece {
  size_t tensor = 0;  // index in the manifest
  size_t synced = 0;  // index among the synced tensors
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
using Group = std::vector<Piece>;

kernels::NanFormat NanFormatOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBF16:
      return kernels::NanFormat::kBf16;
    case Dtype::kF16:
      return kernels::NanFormat::kF16;
    case Dtype::kF32:
      return kernels::NanFormat::kF32;
    case Dtype::kF64:
      return kernels::NanFormat::kF64;
    default:
      return kernels::NanFormat::kNone;
  }
}

std::vector<Group> PlanGroups(const FillRequest& request, uint64_t group_bytes,
                              std::vector<kernels::DigestResult>& results) {
  std::vector<Group> groups(1);
  uint64_t room = group_bytes;
  for (size_t i = 0; i < request.manifest.tensors.size(); ++i) {
    if (request.manifest.tensors[i].origin != TensorOrigin::kSynced) continue;
    const uint64_t total = request.layout.sizes[i];
    const size_t synced = results.size();
    results.push_back({kernels::PageTable(total), 0});
    for (uint64_t offset = 0; offset < total;) {
      // Pieces begin at page boundaries, so that their page sums are the tensor's.
      uint64_t bytes = std::min(total - offset, room);
      if (bytes < total - offset) bytes -= bytes % kernels::kPageBytes;
      if (bytes == 0) {
        groups.emplace_back();
        room = group_bytes;
        continue;
      }
      groups.back().push_back({i, synced, offset, bytes});
      offset += bytes;
      room -= bytes;
    }
  }
  return groups;
}

absl::Status DigestGroup(const FillRequest& request, const kernels::PageKeys& keys,
                         const Group& group, absl::Span<uint8_t> arena,
                         std::vector<kernels::DigestResult>& results) {
  std::vector<kernels::DigestTask> tasks;
  tasks.reserve(group.size());
  for (const Piece& piece : group) {
    uint8_t* const destination =
        arena.empty() ? nullptr : arena.data() + request.layout.offsets[piece.tensor];
    tasks.push_back({.source = request.sources[piece.tensor].data() + piece.offset,
                     .destination = destination == nullptr ? nullptr : destination + piece.offset,
                     .bytes = piece.bytes,
                     .nan_format = NanFormatOf(request.manifest.tensors[piece.tensor].dtype)});
  }
  const std::vector<kernels::DigestResult> done =
      kernels::CopyAndDigest(keys, tasks, request.threads);
  for (size_t i = 0; i < group.size(); ++i) {
    kernels::DigestResult& whole = results[group[i].synced];
    whole.nan_count += done[i].nan_count;
    const uint64_t first_page = group[i].offset / kernels::kPageBytes;
    const absl::Span<const kernels::PageSum> pages = done[i].table.pages();
    for (size_t page = 0; page < pages.size(); ++page) {
      LOCKSTEP_RETURN_IF_ERROR(whole.table.MergePage(first_page + page, pages[page]));
    }
  }
  return absl::OkStatus();
}

absl::Status SendGroup(const FillRequest& request, const Group& group,
                       transport::ArenaWriter& writer, transport::RoundFeed& feed) {
  for (const Piece& piece : group) {
    LOCKSTEP_RETURN_IF_ERROR(
        writer.Write(request.layout.offsets[piece.tensor] + piece.offset,
                     request.sources[piece.tensor].subspan(piece.offset, piece.bytes), feed));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FilledVersion> FillVersion(const FillRequest& request,
                                          transport::ArenaWriter* writer,
                                          transport::RoundFeed& feed,
                                          absl::FunctionRef<void(uint64_t bytes_ready)> progress) {
  const kernels::PageKeys keys(request.key);
  const absl::Span<uint8_t> arena = writer == nullptr ? absl::Span<uint8_t>() : writer->Mapped();
  const bool sends = writer != nullptr && arena.empty();
  std::vector<kernels::DigestResult> results;
  const std::vector<Group> groups =
      PlanGroups(request, sends ? kSentGroupBytes : kMappedGroupBytes, results);
  for (const Group& group : groups) {
    if (feed.cancelled()) return feed.status();
    LOCKSTEP_RETURN_IF_ERROR(DigestGroup(request, keys, group, arena, results));
    if (writer == nullptr || group.empty()) continue;
    if (sends) {
      LOCKSTEP_RETURN_IF_ERROR(SendGroup(request, group, *writer, feed));
    } else {
      const Piece& last = group.back();
      writer->Advance(request.layout.offsets[last.tensor] + last.offset + last.bytes);
    }
    progress(writer->mark());
  }
  if (writer != nullptr) {
    LOCKSTEP_RETURN_IF_ERROR(writer->Finish(feed));
    progress(writer->mark());
  }
  FilledVersion filled;
  for (const kernels::DigestResult& result : results) filled.nan_elements += result.nan_count;
  LOCKSTEP_ASSIGN_OR_RETURN(
      filled.digest,
      transport::VersionDigestOf(request.run, request.version, keys, request.manifest, results));
  return filled;
}

}  // namespace lockstep
