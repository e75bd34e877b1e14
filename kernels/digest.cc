#include "kernels/digest.h"

#include <sodium.h>

#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "kernels/parallel.h"

namespace lockstep::kernels {
namespace {

// Copies of at least this many bytes leave the cache alone: the reader is another process or far
// behind.
constexpr uint64_t kBypassCacheBytes = 8ull << 20;

class Hasher {
 public:
  Hasher() { crypto_generichash_blake2b_init(&state_, nullptr, 0, sizeof(Digest256)); }

  void Bytes(const void* data, size_t size) {
    crypto_generichash_blake2b_update(&state_, static_cast<const uint8_t*>(data), size);
  }
  void Text(absl::string_view text) { Bytes(text.data(), text.size()); }
  // Native words are little-endian (digest_keys.cc asserts it).
  void U32(uint32_t value) { Bytes(&value, sizeof(value)); }
  void U64(uint64_t value) { Bytes(&value, sizeof(value)); }
  void String(absl::string_view text) {
    U32(static_cast<uint32_t>(text.size()));
    Text(text);
  }

  Digest256 Finish() {
    Digest256 digest;
    crypto_generichash_blake2b_final(&state_, digest.data(), digest.size());
    return digest;
  }

 private:
  crypto_generichash_blake2b_state state_;
};

// One page of one task: copies, sums, and returns the NaN count.
uint64_t RunPage(const PageKeys& keys, const DigestTask& task, uint64_t page, bool bypass_cache,
                 PageSum& sum) {
  const uint64_t offset = page * kPageBytes;
  const uint64_t length = std::min(kPageBytes, task.bytes - offset);
  const uint64_t units = length / kUnitBytes;
  const uint8_t* from = task.source + offset;
  uint8_t* to = task.destination == nullptr || task.destination == task.source
                    ? nullptr
                    : task.destination + offset;
  // Whole 8-byte elements in the vector part, so that none is cut in two.
  const uint64_t vector_units = units / 2 * 2;
  LaneSums sums =
      SumUnitsFused(keys.words(), from, to, vector_units, task.nan_format, bypass_cache);
  const uint64_t done = vector_units * kUnitBytes;
  for (uint64_t at = done; at < length; ++at) {
    const uint64_t m = uint64_t{from[at]} << (8 * (at % kUnitBytes));
    sums.lane0 += keys.words()[at / kUnitBytes] * m;
    sums.lane1 += keys.words()[at / kUnitBytes + 1] * m;
    if (to != nullptr) to[at] = from[at];
  }
  sum = {sums.lane0, sums.lane1, length};
  return sums.nans + CountNans(from + done, length - done, task.nan_format);
}

}  // namespace

absl::StatusOr<Digest256> TensorRoot(const TensorIdentity& identity, const PageKeys& keys,
                                     const PageTable& table) {
  if (absl::Status status = table.CheckCovered(); !status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat("tensor '", identity.name, "': ", status.message()));
  }
  Hasher hasher;
  hasher.Text("lockstep digest/paged@v1\n");
  hasher.String(identity.run);
  hasher.U64(identity.version);
  hasher.String(identity.name);
  hasher.String(identity.dtype);
  hasher.U32(static_cast<uint32_t>(identity.shape.size()));
  for (uint64_t dim : identity.shape) hasher.U64(dim);
  hasher.U64(table.stream_bytes());
  hasher.Bytes(keys.id().data(), keys.id().size());
  for (const PageSum& page : table.pages()) {
    hasher.U64(page.lane0);
    hasher.U64(page.lane1);
  }
  return hasher.Finish();
}

absl::StatusOr<Digest256> ManifestRoot(
    std::vector<std::pair<std::string, Digest256>> tensor_roots) {
  std::sort(tensor_roots.begin(), tensor_roots.end());
  Hasher hasher;
  hasher.Text("lockstep manifest@v1\n");
  for (size_t i = 0; i < tensor_roots.size(); ++i) {
    const auto& [name, root] = tensor_roots[i];
    if (i > 0 && name == tensor_roots[i - 1].first) {
      return absl::InvalidArgumentError(
          absl::StrCat("manifest root: tensor '", name, "' comes twice"));
    }
    hasher.String(name);
    hasher.Bytes(root.data(), root.size());
  }
  return hasher.Finish();
}

Digest256 ContentDigest(absl::Span<const uint8_t> stream) {
  Hasher hasher;
  hasher.Bytes(stream.data(), stream.size());
  return hasher.Finish();
}

std::vector<DigestResult> CopyAndDigest(const PageKeys& keys, absl::Span<const DigestTask> tasks,
                                        int threads) {
  std::vector<DigestResult> results;
  results.reserve(tasks.size());
  std::vector<uint64_t> first_page = {0};  // of each task in the common numbering, and the end
  uint64_t copied_bytes = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    results.push_back({PageTable(tasks[i].bytes), 0});
    first_page.push_back(first_page.back() + results[i].table.pages().size());
    copied_bytes += tasks[i].bytes;
  }
  const bool bypass_cache = copied_bytes >= kBypassCacheBytes;
  std::vector<std::atomic<uint64_t>> nans(tasks.size());
  ParallelFor(first_page.back(), threads, [&](size_t begin, size_t end) {
    size_t task =
        std::upper_bound(first_page.begin(), first_page.end(), begin) - first_page.begin() - 1;
    for (; begin < end; ++task) {
      const absl::Span<PageSum> pages = results[task].table.mutable_pages();
      uint64_t found = 0;
      const size_t stop = std::min<size_t>(end, first_page[task + 1]);
      for (; begin < stop; ++begin) {
        const uint64_t page = begin - first_page[task];
        found += RunPage(keys, tasks[task], page, bypass_cache, pages[page]);
      }
      nans[task].fetch_add(found, std::memory_order_relaxed);
    }
  });
  for (size_t i = 0; i < tasks.size(); ++i) {
    results[i].nan_count = nans[i].load(std::memory_order_relaxed);
  }
  return results;
}

}  // namespace lockstep::kernels
