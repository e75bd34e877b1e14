#include "kernels/short_conv_cuda.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cp_segments.h"
#include "kernels/short_conv_engine_cuda.h"

namespace lockstep::kernels {
namespace {

using Segments = std::vector<CpSegment>;

constexpr size_t kAlignment = 256;

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

size_t HaloBytes(const ShortConvParams& p) {
  return static_cast<size_t>(kShortConvHalo * p.channels) * SizeOf(p.type);
}

// The most segments one rank owns: the slots of its place in the gathered tails.
size_t MostOwned(const Segments& segments, int cp) {
  std::vector<size_t> owned(static_cast<size_t>(cp), 0);
  for (const CpSegment& segment : segments) ++owned[static_cast<size_t>(segment.owner)];
  return *std::max_element(owned.begin(), owned.end());
}

struct Workspace {
  uint8_t* halo;  // [3, D]
  uint8_t* mine;  // this rank's tails
  uint8_t* all;   // every rank's
  size_t slot_bytes;
  size_t place_bytes;
  size_t bytes;
};

Workspace LayOut(const ShortConvParams& p, const Segments& segments, int cp, void* base) {
  Workspace work = {};
  work.slot_bytes = Aligned(HaloBytes(p));
  work.place_bytes = MostOwned(segments, cp) * work.slot_bytes;
  auto* at = static_cast<uint8_t*>(base);
  const auto take = [&](size_t bytes) {
    uint8_t* const piece = at == nullptr ? nullptr : at + work.bytes;
    work.bytes += bytes;
    return piece;
  };
  work.halo = take(work.slot_bytes);
  work.mine = take(work.place_bytes);
  work.all = take(work.place_bytes * static_cast<size_t>(cp));
  return work;
}

// The last inputs of every segment, from all ranks; a shorter segment's come last in its slot.
absl::Status GatherTails(const ShortConvParams& p, const Segments& segments, CpExchange& exchange,
                         const Workspace& work, CudaStream stream) {
  absl::Status status = FillDevice(work.mine, 0, work.place_bytes, stream);
  const auto* rows = static_cast<const uint8_t*>(p.x);
  size_t slot = 0;
  for (const CpSegment& segment : segments) {
    if (segment.owner != exchange.rank()) continue;
    if (status.ok()) {
      status = LaunchNextHalo(p, nullptr, rows, segment.count, work.mine + slot++ * work.slot_bytes,
                              stream);
    }
    rows += static_cast<size_t>(segment.count * p.channels) * SizeOf(p.type);
  }
  if (!status.ok()) return status;
  return exchange.AllGather({work.mine, work.place_bytes},
                            {work.all, work.place_bytes * static_cast<size_t>(exchange.size())});
}

absl::Status RunSegments(const ShortConvParams& p, const Segments& segments, int rank, int cp,
                         const Workspace& work, CudaStream stream) {
  absl::Status status = p.halo == nullptr ? FillDevice(work.halo, 0, HaloBytes(p), stream)
                                          : CopyOnDevice(work.halo, p.halo, HaloBytes(p), stream);
  std::vector<size_t> used(static_cast<size_t>(cp), 0);
  const size_t row_bytes = static_cast<size_t>(p.channels) * SizeOf(p.type);
  int64_t first = 0;
  for (const CpSegment& segment : segments) {
    if (segment.owner == rank) {
      if (status.ok()) status = LaunchShortConv(p, work.halo, first, segment.count, stream);
      first += segment.count;
    }
    const size_t owner = static_cast<size_t>(segment.owner);
    const uint8_t* tail = work.all + owner * work.place_bytes + used[owner]++ * work.slot_bytes;
    // A gathered tail ends with the segment's last inputs, all of them when it is short.
    const int64_t known = std::min(segment.count, kShortConvHalo);
    const uint8_t* rows = tail + static_cast<size_t>(kShortConvHalo - known) * row_bytes;
    if (status.ok()) status = LaunchNextHalo(p, work.halo, rows, known, work.halo, stream);
  }
  if (!status.ok() || p.tail == nullptr) return status;
  return CopyOnDevice(p.tail, work.halo, HaloBytes(p), stream);
}

}  // namespace

absl::Status ShortConvCuda(const ShortConvParams& p, CudaStream stream) {
  if (absl::Status status = CheckShortConvShape(p); !status.ok()) return status;
  if (absl::Status status = CheckShortConvTokens(p); !status.ok()) return status;
  absl::Status status = LaunchShortConv(p, p.halo, 0, p.tokens, stream);
  if (!status.ok() || p.tail == nullptr) return status;
  return LaunchNextHalo(p, p.halo, p.x, p.tokens, p.tail, stream);
}

size_t ShortConvCpRankCudaWorkspaceBytes(const ShortConvParams& local, GdnCpProgram split,
                                         int64_t document_tokens, int cp) {
  const absl::StatusOr<Segments> segments = SegmentsOfSplit(split, document_tokens, cp);
  return segments.ok() ? LayOut(local, *segments, cp, nullptr).bytes : 0;
}

absl::Status ShortConvCpRankCuda(const ShortConvParams& local, GdnCpProgram split,
                                 int64_t document_tokens, CpExchange& exchange, void* workspace,
                                 CudaStream stream) {
  const absl::StatusOr<Segments> segments =
      CheckShortConvRank(local, split, document_tokens, exchange);
  if (!segments.ok()) return segments.status();
  if (workspace == nullptr) {
    return absl::InvalidArgumentError(
        "short_conv: expected a workspace of ShortConvCpRankCudaWorkspaceBytes");
  }
  const Workspace work = LayOut(local, *segments, exchange.size(), workspace);
  const absl::Status gathered = GatherTails(local, *segments, exchange, work, stream);
  if (!gathered.ok()) return gathered;
  return RunSegments(local, *segments, exchange.rank(), exchange.size(), work, stream);
}

}  // namespace lockstep::kernels
