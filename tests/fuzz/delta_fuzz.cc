// Whatever bytes come as a delta patch, they are refused, or applying them writes inside the
// buffers only and packing them again gives a patch that does the same.

#include <sodium.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "absl/types/span.h"
#include "kernels/delta.h"

namespace {

using lockstep::kernels::DeltaLayout;
using lockstep::kernels::DeltaPatch;
using lockstep::kernels::DeltaTensor;
using lockstep::kernels::Digest256;

void Require(bool condition) {
  if (!condition) std::abort();
}

// The corpus is made for these tensors and for a base root of zeros.
const std::vector<DeltaTensor>& Tensors() {
  static const auto& tensors = *new std::vector<DeltaTensor>{
      {"a", "BF16", 2, 66'000}, {"b", "F32", 4, 400}, {"c", "U8", 1, 7}, {"d", "BF16", 2, 0}};
  return tensors;
}

std::vector<std::vector<uint8_t>> Apply(const DeltaPatch& patch) {
  std::vector<std::vector<uint8_t>> buffers;
  std::vector<absl::Span<uint8_t>> spans;
  for (const DeltaTensor& tensor : Tensors()) buffers.emplace_back(tensor.bytes, 0);
  for (auto& buffer : buffers) spans.push_back(absl::MakeSpan(buffer));
  Require(patch.Apply(spans, 1).ok());
  return buffers;
}

// The checksum would hide everything behind it from a mutator, so it is made right here.
std::vector<uint8_t> WithChecksum(absl::Span<const uint8_t> input) {
  std::vector<uint8_t> patch(input.begin(), input.end());
  Digest256 digest;
  crypto_generichash_blake2b(digest.data(), digest.size(), patch.data(), patch.size(), nullptr, 0);
  patch.insert(patch.end(), digest.begin(), digest.end());
  return patch;
}

void Judge(absl::Span<const uint8_t> input) {
  (void)DeltaPatch::Open(input, Tensors(), Digest256{});
  const std::vector<uint8_t> patch = WithChecksum(input);
  const auto layout = lockstep::kernels::UnpackDelta(patch, Tensors());
  if (!layout.ok()) return;
  const auto opened = DeltaPatch::FromLayout(*layout, Tensors(), Digest256{});
  if (!opened.ok()) return;
  const auto packed = lockstep::kernels::PackDelta(*layout, 1, 1);
  Require(packed.ok());
  const auto again = DeltaPatch::Open(*packed, Tensors(), Digest256{});
  Require(again.ok());
  Require(Apply(*opened) == Apply(*again));
}

// The same for a layout without zstd, cut into its sections by two-byte sizes.
void JudgeLayout(absl::Span<const uint8_t> input) {
  DeltaLayout layout;
  for (auto& section : layout.sections) {
    if (input.size() < 2) break;
    const size_t size = input[0] | size_t{input[1]} << 8;
    input.remove_prefix(2);
    const absl::Span<const uint8_t> bytes = input.first(std::min(size, input.size()));
    section.assign(bytes.begin(), bytes.end());
    input.remove_prefix(bytes.size());
  }
  const auto opened = DeltaPatch::FromLayout(layout, Tensors(), Digest256{});
  if (opened.ok()) Apply(*opened);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::Span<const uint8_t> rest(data + 1, size - 1);
  if (data[0] % 2 == 0) {
    Judge(rest);
  } else {
    JudgeLayout(rest);
  }
  return 0;
}
