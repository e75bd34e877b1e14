#include "policy/manifest.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "policy/refusal_list.h"
#include "policy/utf8.h"

namespace lockstep {
namespace {

struct DtypeRow {
  Dtype dtype;
  absl::string_view name;
  uint64_t bits;
};

constexpr DtypeRow kDtypes[] = {
    {Dtype::kBool, "BOOL", 8},
    {Dtype::kU8, "U8", 8},
    {Dtype::kI8, "I8", 8},
    {Dtype::kF8E5M2, "F8_E5M2", 8},
    {Dtype::kF8E4M3, "F8_E4M3", 8},
    {Dtype::kF8E8M0, "F8_E8M0", 8},
    {Dtype::kI16, "I16", 16},
    {Dtype::kU16, "U16", 16},
    {Dtype::kF16, "F16", 16},
    {Dtype::kBF16, "BF16", 16},
    {Dtype::kI32, "I32", 32},
    {Dtype::kU32, "U32", 32},
    {Dtype::kF32, "F32", 32},
    {Dtype::kF64, "F64", 64},
    {Dtype::kI64, "I64", 64},
    {Dtype::kU64, "U64", 64},
    {Dtype::kC64, "C64", 64},
    {Dtype::kF4, "F4", 4},
    {Dtype::kF6E2M3, "F6_E2M3", 6},
    {Dtype::kF6E3M2, "F6_E3M2", 6},
    {Dtype::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    {Dtype::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
};

absl::string_view OriginName(TensorOrigin origin) {
  switch (origin) {
    case TensorOrigin::kSynced:
      return "synced";
    case TensorOrigin::kFrozen:
      return "frozen";
    case TensorOrigin::kDerived:
      return "derived";
  }
  return "unknown";
}

std::string Describe(const TensorSpec& tensor) {
  std::string out =
      absl::StrCat(DtypeName(tensor.dtype), " [", absl::StrJoin(tensor.shape, ","), "]");
  if (tensor.origin != TensorOrigin::kSynced) {
    absl::StrAppend(&out, " ", OriginName(tensor.origin));
  }
  return out;
}

bool HasControlCharacter(absl::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return static_cast<uint8_t>(c) < 0x20 || static_cast<uint8_t>(c) == 0x7F;
  });
}

void CheckTensor(const TensorSpec& tensor, RefusalList& found) {
  const std::string shown = absl::CHexEscape(tensor.name.substr(0, 80));
  if (tensor.name.empty()) {
    found.Add(RefusalCode::kBadMessage, "", "a tensor has an empty name; name every tensor");
  } else if (tensor.name.size() > kMaxTensorNameBytes) {
    found.Add(RefusalCode::kLimitExceeded, shown,
              absl::StrCat("tensor name '", shown, "...' has ", tensor.name.size(),
                           " bytes; the limit is ", kMaxTensorNameBytes));
  } else if (!IsValidUtf8(tensor.name) || HasControlCharacter(tensor.name)) {
    found.Add(RefusalCode::kBadMessage, shown,
              absl::StrCat("tensor name '", shown,
                           "' is not UTF-8 text without control "
                           "characters; rename it"));
  }
  if (DtypeBits(tensor.dtype) == 0) {
    found.Add(RefusalCode::kBadMessage, shown,
              absl::StrCat("tensor '", shown, "': dtype number ", static_cast<int>(tensor.dtype),
                           " is none of the safetensors format"));
  } else if (tensor.shape.size() > kMaxTensorRank) {
    found.Add(RefusalCode::kLimitExceeded, shown,
              absl::StrCat("tensor '", shown, "' has ", tensor.shape.size(),
                           " dimensions; the limit is ", kMaxTensorRank));
  } else if (const auto bytes = TensorBytes(tensor); !bytes.ok()) {
    found.Add(absl::IsResourceExhausted(bytes.status()) ? RefusalCode::kLimitExceeded
                                                        : RefusalCode::kBadMessage,
              shown, std::string(bytes.status().message()));
  }
}

void CheckOrder(const Manifest& manifest, RefusalList& found) {
  for (size_t i = 1; i < manifest.tensors.size(); ++i) {
    const std::string& before = manifest.tensors[i - 1].name;
    const std::string& name = manifest.tensors[i].name;
    if (before < name) continue;
    const std::string shown = absl::CHexEscape(name.substr(0, 80));
    found.Add(RefusalCode::kBadMessage, shown,
              before == name
                  ? absl::StrCat("tensor '", shown, "' is listed twice; names must be unique")
                  : absl::StrCat("tensor '", shown, "' is out of order; sort tensors by name"));
  }
}

void CheckAliasGroup(const std::vector<std::string>& group,
                     const std::map<absl::string_view, const TensorSpec*>& by_name,
                     std::set<absl::string_view>& grouped, RefusalList& found) {
  if (group.size() < 2) {
    found.Add(RefusalCode::kBadMessage, group.empty() ? "" : group[0],
              "an alias group has fewer than two tensors; list all that share bytes, or none");
    return;
  }
  const TensorSpec* first = nullptr;
  for (size_t i = 0; i < group.size(); ++i) {
    const std::string shown = absl::CHexEscape(group[i].substr(0, 80));
    if (i > 0 && group[i] <= group[i - 1]) {
      found.Add(
          RefusalCode::kBadMessage, shown,
          absl::StrCat("alias group: '", shown, "' is repeated or out of order; sort by name"));
    }
    const auto at = by_name.find(group[i]);
    if (at == by_name.end()) {
      found.Add(
          RefusalCode::kBadMessage, shown,
          absl::StrCat("alias group names '", shown, "', which is no tensor of the manifest"));
      continue;
    }
    if (!grouped.insert(at->first).second) {
      found.Add(RefusalCode::kBadMessage, shown,
                absl::StrCat("tensor '", shown, "' is in two alias groups; join the groups"));
    }
    if (first == nullptr) first = at->second;
    if (at->second->dtype != first->dtype || at->second->shape != first->shape) {
      found.Add(RefusalCode::kBadMessage, shown,
                absl::StrCat("tied tensors '", first->name, "' ", Describe(*first), " and '", shown,
                             "' ", Describe(*at->second), " cannot hold equal bytes"));
    }
  }
}

// Sum over tensors of their bytes rounded up; ok only while it stays within the limit.
bool FitsVersionLimit(const Manifest& manifest) {
  uint64_t total = 0;
  for (const TensorSpec& tensor : manifest.tensors) {
    const auto bytes = TensorBytes(tensor);
    if (!bytes.ok()) return true;  // CheckTensor has said so
    if (*bytes > kMaxVersionBytes) return false;
    total += (*bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
    if (total > kMaxVersionBytes) return false;
  }
  return true;
}

// The other members of `name`'s alias group, for comparison and messages.
std::map<absl::string_view, const std::vector<std::string>*> GroupsByName(
    const Manifest& manifest) {
  std::map<absl::string_view, const std::vector<std::string>*> out;
  for (const auto& group : manifest.alias_groups) {
    for (const std::string& name : group) out[name] = &group;
  }
  return out;
}

std::string DescribeGroup(const std::vector<std::string>* group) {
  return group == nullptr ? "not tied"
                          : absl::StrCat("tied as {", absl::StrJoin(*group, ", "), "}");
}

}  // namespace

absl::string_view DtypeName(Dtype dtype) {
  for (const DtypeRow& row : kDtypes) {
    if (row.dtype == dtype) return row.name;
  }
  return "unknown";
}

std::optional<Dtype> DtypeFromName(absl::string_view name) {
  for (const DtypeRow& row : kDtypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

uint64_t DtypeBits(Dtype dtype) {
  for (const DtypeRow& row : kDtypes) {
    if (row.dtype == dtype) return row.bits;
  }
  return 0;
}

uint64_t DtypeBytes(Dtype dtype) { return (DtypeBits(dtype) + 7) / 8; }

absl::StatusOr<uint64_t> TensorBytes(const TensorSpec& tensor) {
  // A zero anywhere makes the product zero, however large the other dimensions are.
  uint64_t bits = DtypeBits(tensor.dtype);
  for (uint64_t dimension : tensor.shape) {
    if (dimension == 0) return uint64_t{0};
  }
  for (uint64_t dimension : tensor.shape) {
    if (__builtin_mul_overflow(bits, dimension, &bits)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("tensor '", absl::CHexEscape(tensor.name.substr(0, 80)), "': the size of ",
                       Describe(tensor), " overflows 64 bits; the shape is wrong"));
    }
  }
  if (bits % 8 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", absl::CHexEscape(tensor.name.substr(0, 80)),
                     "': ", Describe(tensor), " has ", bits, " bits, which are not whole bytes"));
  }
  return bits / 8;
}

std::vector<Refusal> CheckManifest(const Manifest& manifest) {
  RefusalList found;
  if (manifest.tensors.empty()) {
    found.Add(RefusalCode::kBadMessage, "",
              "the manifest has no tensors; there is nothing to sync");
  }
  if (manifest.tensors.size() > kMaxTensors) {
    found.Add(RefusalCode::kLimitExceeded, "",
              absl::StrCat("the manifest has ", manifest.tensors.size(), " tensors; the limit is ",
                           kMaxTensors));
    return std::move(found).Take();
  }
  for (const TensorSpec& tensor : manifest.tensors) CheckTensor(tensor, found);
  CheckOrder(manifest, found);
  if (!FitsVersionLimit(manifest)) {
    found.Add(RefusalCode::kLimitExceeded, "",
              absl::StrCat("the tensors are larger than ", kMaxVersionBytes, " bytes together"));
  }
  std::map<absl::string_view, const TensorSpec*> by_name;
  for (const TensorSpec& tensor : manifest.tensors) by_name[tensor.name] = &tensor;
  std::set<absl::string_view> grouped;
  for (size_t i = 0; i < manifest.alias_groups.size(); ++i) {
    CheckAliasGroup(manifest.alias_groups[i], by_name, grouped, found);
    if (i > 0 && !(manifest.alias_groups[i - 1] < manifest.alias_groups[i])) {
      found.Add(RefusalCode::kBadMessage, "", "alias groups are out of order; sort them");
    }
  }
  return std::move(found).Take();
}

Digest256 LayoutDigest(const Manifest& manifest) {
  Blake2b256Hasher hasher;
  hasher.Update("lockstep layout@v1\n");
  hasher.UpdateU64(manifest.tensors.size());
  for (const TensorSpec& tensor : manifest.tensors) {
    hasher.UpdateString(tensor.name);
    hasher.UpdateString(DtypeName(tensor.dtype));
    hasher.UpdateU32(static_cast<uint32_t>(tensor.shape.size()));
    for (uint64_t dimension : tensor.shape) hasher.UpdateU64(dimension);
    hasher.UpdateString(OriginName(tensor.origin));
  }
  hasher.UpdateU64(manifest.alias_groups.size());
  for (const auto& group : manifest.alias_groups) {
    hasher.UpdateU64(group.size());
    for (const std::string& name : group) hasher.UpdateString(name);
  }
  return hasher.Finish();
}

std::vector<Refusal> CompareManifests(const Manifest& trainer, const Manifest& sampler) {
  RefusalList found;
  const auto trainer_groups = GroupsByName(trainer);
  const auto sampler_groups = GroupsByName(sampler);
  const auto group_of = [](const auto& groups, const std::string& name) {
    const auto at = groups.find(name);
    return at == groups.end() ? nullptr : at->second;
  };
  const auto compare = [&](const TensorSpec& ours, const TensorSpec& theirs) {
    const auto* our_group = group_of(trainer_groups, ours.name);
    const auto* their_group = group_of(sampler_groups, ours.name);
    if (!(ours == theirs)) {
      found.Add(
          RefusalCode::kManifestMismatch, ours.name,
          absl::StrCat("tensor '", ours.name, "': the trainer publishes ", Describe(ours),
                       ", the sampler serves ", Describe(theirs), "; load both from one config"));
    } else if ((our_group == nullptr) != (their_group == nullptr) ||
               (our_group != nullptr && *our_group != *their_group)) {
      found.Add(RefusalCode::kManifestMismatch, ours.name,
                absl::StrCat("tensor '", ours.name, "': ", DescribeGroup(our_group),
                             " at the trainer, ", DescribeGroup(their_group),
                             " at the sampler; make tie_word_embeddings equal on both"));
    }
  };
  auto t = trainer.tensors.begin();
  auto s = sampler.tensors.begin();
  while (t != trainer.tensors.end() || s != sampler.tensors.end()) {
    if (s == sampler.tensors.end() || (t != trainer.tensors.end() && t->name < s->name)) {
      found.Add(RefusalCode::kManifestMismatch, t->name,
                absl::StrCat("tensor '", t->name, "' ", Describe(*t),
                             " is published by the trainer and unknown to the sampler; it would be "
                             "left behind: serve it, or train without it"));
      ++t;
    } else if (t == trainer.tensors.end() || s->name < t->name) {
      if (s->origin == TensorOrigin::kDerived) {  // the sampler's own; nothing to publish
        ++s;
        continue;
      }
      found.Add(RefusalCode::kManifestMismatch, s->name,
                absl::StrCat("tensor '", s->name, "' ", Describe(*s),
                             " is served by the sampler and never published by the trainer; it "
                             "would keep its old bytes: publish it, or declare it frozen on both"));
      ++s;
    } else {
      compare(*t++, *s++);
    }
  }
  return std::move(found).Take();
}

ArenaLayout ComputeArenaLayout(const Manifest& manifest) {
  ArenaLayout layout;
  layout.offsets.reserve(manifest.tensors.size());
  layout.sizes.reserve(manifest.tensors.size());
  for (const TensorSpec& tensor : manifest.tensors) {
    const bool moved = tensor.origin == TensorOrigin::kSynced;
    const uint64_t bytes = moved ? TensorBytes(tensor).value_or(0) : 0;
    layout.offsets.push_back(layout.total_bytes);
    layout.sizes.push_back(bytes);
    layout.payload_bytes += bytes;
    layout.total_bytes += (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
  }
  return layout;
}

}  // namespace lockstep
