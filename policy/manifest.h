#ifndef LOCKSTEP_POLICY_MANIFEST_H_
#define LOCKSTEP_POLICY_MANIFEST_H_

// A manifest says which tensors a version has: names, dtypes, shapes, who is tied to
// whom, and how each gets its bytes. Both sides state one and the bridge compares them
// both ways, so that no tensor is left behind in silence.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "policy/ids.h"
#include "policy/refusal.h"

namespace lockstep {

// Every dtype of the safetensors format; the spelling is the format's own. The order is
// not part of any format: hashes and messages carry names.
enum class Dtype {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kF64,
  kI64,
  kU64,
  kC64,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
};

absl::string_view DtypeName(Dtype dtype);  // "BF16", "F8_E4M3", ...
std::optional<Dtype> DtypeFromName(absl::string_view name);
uint64_t DtypeBits(Dtype dtype);   // of one element
uint64_t DtypeBytes(Dtype dtype);  // of one element, rounded up: 1 for the packed F4 and F6

// How a serving tensor gets its bytes.
enum class TensorOrigin {
  kSynced,   // moved by every publish
  kFrozen,   // not moved; its content digest is part of the layout
  kDerived,  // computed by the sampler from synced tensors
};

struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::kBF16;
  std::vector<uint64_t> shape;  // row-major, unsharded; empty for a scalar
  TensorOrigin origin = TensorOrigin::kSynced;

  bool operator==(const TensorSpec&) const = default;
};

// Product of the shape times the element size; ResourceExhausted when it overflows uint64,
// InvalidArgument when packed elements (F4, F6) do not fill whole bytes. A zero dimension
// gives 0 bytes.
absl::StatusOr<uint64_t> TensorBytes(const TensorSpec& tensor);

struct Manifest {
  // Sorted bytewise by name, names unique (CheckManifest).
  std::vector<TensorSpec> tensors;
  // Each group lists, sorted, two or more names whose bytes must be equal (tied weights).
  std::vector<std::vector<std::string>> alias_groups;

  bool operator==(const Manifest&) const = default;
};

// Empty when the manifest is well formed and within the limits below: names unique, sorted,
// UTF-8 and free of control characters; alias groups sorted, disjoint, of existing tensors
// of one dtype and shape. kLimitExceeded or kBadMessage.
std::vector<Refusal> CheckManifest(const Manifest& manifest);

inline constexpr uint64_t kMaxTensors = 1'000'000;
inline constexpr uint64_t kMaxTensorNameBytes = 1'024;
inline constexpr uint64_t kMaxTensorRank = 16;
inline constexpr uint64_t kMaxVersionBytes = uint64_t{1} << 46;  // 64 TiB

// BLAKE2b-256 over every field in order (the contract's `layout` part).
Digest256 LayoutDigest(const Manifest& manifest);

// Each tensor missing on either side, or of another dtype, shape, origin or alias group,
// as one kManifestMismatch with the tensor's name as key; at most kMaxListedRefusals, then
// one that counts the rest. A tensor that only the sampler has is fine when it is derived.
// Empty when they agree.
std::vector<Refusal> CompareManifests(const Manifest& trainer, const Manifest& sampler);

// Where each synced tensor lies in a contiguous buffer that holds one version: manifest
// order, each start rounded up to kTensorAlignment. Both sides derive it from the manifest,
// so it never travels.
inline constexpr uint64_t kTensorAlignment = 256;

struct ArenaLayout {
  std::vector<uint64_t> offsets;  // bytes, parallel to Manifest::tensors
  std::vector<uint64_t> sizes;    // bytes, parallel to Manifest::tensors
  uint64_t total_bytes = 0;       // of tensors, padding included
  uint64_t payload_bytes = 0;     // of tensors, padding not included
};

// `manifest` must have passed CheckManifest.
ArenaLayout ComputeArenaLayout(const Manifest& manifest);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_MANIFEST_H_
