#ifndef LOCKSTEP_KERNELS_DIGEST_H_
#define LOCKSTEP_KERNELS_DIGEST_H_

// The weight digest `digest/paged@v1` and the plain `digest/content@v1`
// (kernels/SPECIFICATION.md, "Weight digest"): a keyed sum per 64 KiB page of a tensor's logical
// stream, linear in the bytes, so that shards digested apart add up to the digest of the whole.
//
// Example: two ranks digest their shards, one adds the tables and takes the root.
//   PageTable table(stream_bytes);
//   RETURN_IF_ERROR(table.AddView(keys, my_shard_view, my_buffer, threads));
//   RETURN_IF_ERROR(table.Merge(table_of_the_other_rank));
//   absl::StatusOr<Digest256> root =
//       TensorRoot({.run = "r", .version = 3, .name = "w", .dtype = "BF16", .shape = {8, 16}},
//                  keys, table);

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/box_view.h"
#include "kernels/digest_keys.h"
#include "kernels/digest_lanes.h"
#include "kernels/types.h"

namespace lockstep::kernels {

// One page's sums. Zero bytes add nothing to the lanes, so the bytes read are counted too.
struct PageSum {
  uint64_t lane0 = 0;
  uint64_t lane1 = 0;
  uint64_t covered_bytes = 0;

  bool operator==(const PageSum&) const = default;
};

// The page sums of one tensor's logical stream of `stream_bytes` bytes.
class PageTable {
 public:
  explicit PageTable(uint64_t stream_bytes);

  uint64_t stream_bytes() const { return stream_bytes_; }
  absl::Span<const PageSum> pages() const { return pages_; }
  // For a loop that sums whole pages itself; it counts the bytes it reads.
  absl::Span<PageSum> mutable_pages() { return absl::MakeSpan(pages_); }
  // The length of page `index`; all but the last have kPageBytes.
  uint64_t PageLength(uint64_t index) const;

  // Adds bytes that lie at any `stream_offset`, also inside a unit. OutOfRange when they leave
  // the stream.
  absl::Status Add(const PageKeys& keys, uint64_t stream_offset, absl::Span<const uint8_t> bytes,
                   int threads);

  // Adds the box that `view` describes, read from `buffer`. InvalidArgument as PlanRuns, or when
  // the view's tensor has another length than this stream.
  absl::Status AddView(const PageKeys& keys, const BoxView& view, absl::Span<const uint8_t> buffer,
                       int threads);

  // Adds a part digested elsewhere under the same key. InvalidArgument when lengths differ.
  absl::Status Merge(const PageTable& part);

  // Adds one page's sums as they come from a device or a message.
  absl::Status MergePage(uint64_t index, const PageSum& sum);

  // FailedPrecondition when some page was not covered to exactly its length: bytes are missing or
  // were added twice. (That the parts' boxes tile the tensor is the plan's to prove:
  // CheckBoxesPartition.)
  absl::Status CheckCovered() const;

  bool operator==(const PageTable&) const = default;

 private:
  uint64_t stream_bytes_;
  std::vector<PageSum> pages_;
};

// What a tensor's root is bound to.
struct TensorIdentity {
  std::string run;              // "" for files and deltas
  uint64_t version = 0;         // 0 for files and deltas
  std::string name;             // the manifest's
  std::string dtype;            // safetensors spelling, "BF16"
  std::vector<uint64_t> shape;  // full and unsharded
};

// The root over identity and page table. FailedPrecondition as CheckCovered.
absl::StatusOr<Digest256> TensorRoot(const TensorIdentity& identity, const PageKeys& keys,
                                     const PageTable& table);

// The root over all tensors of a version; any order. InvalidArgument when a name comes twice.
absl::StatusOr<Digest256> ManifestRoot(std::vector<std::pair<std::string, Digest256>> tensor_roots);

// `digest/content@v1`: unkeyed BLAKE2b-256 of the whole logical stream.
Digest256 ContentDigest(absl::Span<const uint8_t> stream);

// One tensor of a batched call: a whole stream, dense in memory.
struct DigestTask {
  const uint8_t* source = nullptr;
  // Where the bytes go too: nullptr or `source` digests only; else not overlapping.
  uint8_t* destination = nullptr;
  uint64_t bytes = 0;
  NanFormat nan_format = NanFormat::kNone;
};

struct DigestResult {
  PageTable table{0};
  uint64_t nan_count = 0;  // NaN elements, when nan_format asks
};

// Digests (and copies, and counts NaNs) every task's stream in one pass over memory, the pages of
// all tasks dealt to `threads` threads: large tensors are split, small ones share a thread.
// Results are parallel to `tasks` and the same for any thread count.
std::vector<DigestResult> CopyAndDigest(const PageKeys& keys, absl::Span<const DigestTask> tasks,
                                        int threads);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_DIGEST_H_
