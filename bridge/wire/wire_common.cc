// Parts that several groups of messages share: refusals, digests, manifests, evidence.

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "bridge/wire/convert.h"

namespace lockstep::wire {
namespace {

static_assert(static_cast<int>(schema::Dtype::BOOL) == static_cast<int>(Dtype::kBool));
static_assert(static_cast<int>(schema::Dtype::F8_E5M2) == static_cast<int>(Dtype::kF8E5M2));
static_assert(static_cast<int>(schema::Dtype::F8_E4M3) == static_cast<int>(Dtype::kF8E4M3));
static_assert(static_cast<int>(schema::Dtype::F8_E8M0) == static_cast<int>(Dtype::kF8E8M0));
static_assert(static_cast<int>(schema::Dtype::BF16) == static_cast<int>(Dtype::kBF16));
static_assert(static_cast<int>(schema::Dtype::F32) == static_cast<int>(Dtype::kF32));
static_assert(static_cast<int>(schema::Dtype::I64) == static_cast<int>(Dtype::kI64));
static_assert(static_cast<int>(schema::Dtype::U64) == static_cast<int>(Dtype::kU64));
static_assert(static_cast<int>(schema::TensorOrigin::DERIVED) ==
              static_cast<int>(TensorOrigin::kDerived));

using DigestMap = std::map<std::string, Digest256>;

void WriteDigests(const DigestMap& from, capnp::List<schema::NamedDigest>::Builder to) {
  unsigned i = 0;
  for (const auto& [name, digest] : from) {
    to[i].setName(AsText(name));
    to[i].setDigest(AsData(digest));
    ++i;
  }
}

absl::Status ReadDigests(capnp::List<schema::NamedDigest>::Reader from, uint64_t max_count,
                         absl::string_view what, DigestMap& to) {
  std::vector<ComponentDigest> entries;
  absl::Status status = FieldReader().List(from, max_count, what, entries).Done();
  if (!status.ok()) return status;
  for (ComponentDigest& entry : entries) {
    if (!to.emplace(entry.name, entry.digest).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("bad message: ", what, " names '", entry.name, "' twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

void Write(const std::optional<uint64_t>& from, schema::OptionalUInt64::Builder to) {
  if (from.has_value()) {
    to.setSome(*from);
  } else {
    to.setNone();
  }
}

absl::Status Read(schema::OptionalUInt64::Reader from, std::optional<uint64_t>& to) {
  switch (from.which()) {
    case schema::OptionalUInt64::NONE:
      to.reset();
      return absl::OkStatus();
    case schema::OptionalUInt64::SOME:
      to = from.getSome();
      return absl::OkStatus();
  }
  return absl::InvalidArgumentError("bad message: an optional that is neither none nor some");
}

void Write(const Refusal& from, schema::Refusal::Builder to) {
  const absl::string_view code = RefusalCodeName(from.code);
  to.setCode(capnp::Text::Reader(code.data(), code.size()));
  to.setKey(AsText(CleanText(from.key, kMaxNameBytes)));
  to.setMessage(AsText(CleanText(from.message, kMaxRefusalMessageBytes)));
}

absl::Status Read(schema::Refusal::Reader from, Refusal& to) {
  std::string name;
  absl::Status status =
      FieldReader()
          .Text(from.getCode(), kMaxNameBytes, "refusal.code", name)
          .Text(from.getKey(), kMaxNameBytes, "refusal.key", to.key)
          .Text(from.getMessage(), kMaxRefusalMessageBytes, "refusal.message", to.message)
          .Done();
  if (!status.ok()) return status;
  const std::optional<RefusalCode> code = RefusalCodeFromName(name);
  if (!code.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("bad message: refusal.code: '", name, "' is no reason of this build"));
  }
  to.code = *code;
  return absl::OkStatus();
}

unsigned RefusalListSize(const std::vector<Refusal>& refusals) {
  return static_cast<unsigned>(std::min<uint64_t>(refusals.size(), kMaxRefusals));
}

void WriteRefusals(const std::vector<Refusal>& from, capnp::List<schema::Refusal>::Builder to) {
  WriteList(from, to);
  if (from.size() <= to.size()) return;
  const uint64_t missing = from.size() - kMaxRefusals + 1;
  Write({from.back().code, "",
         absl::StrCat("and ", missing,
                      " more refusals, not listed; mend those listed and ask "
                      "again")},
        to[to.size() - 1]);
}

void Write(const Evidence& from, schema::Evidence::Builder to) {
  WriteDigests(from.tables, to.initTables(ListSize(from.tables.size())));
  WriteDigests(from.probe, to.initProbe(ListSize(from.probe.size())));
}

absl::Status Read(schema::Evidence::Reader from, Evidence& to) {
  absl::Status status = ReadDigests(from.getTables(), kMaxTables, "evidence.tables", to.tables);
  if (!status.ok()) return status;
  return ReadDigests(from.getProbe(), kMaxComponents, "evidence.probe", to.probe);
}

void Write(const ComponentDigest& from, schema::NamedDigest::Builder to) {
  to.setName(AsText(from.name));
  to.setDigest(AsData(from.digest));
}

absl::Status Read(schema::NamedDigest::Reader from, ComponentDigest& to) {
  return FieldReader()
      .Text(from.getName(), kMaxNameBytes, "digest.name", to.name)
      .Bytes(from.getDigest(), "digest.digest", absl::MakeSpan(to.digest))
      .Done();
}

void Write(const TensorSpec& from, schema::TensorSpec::Builder to) {
  to.setName(AsText(from.name));
  to.setDtype(static_cast<schema::Dtype>(from.dtype));
  WriteList(from.shape, to.initShape(ListSize(from.shape.size())));
  to.setOrigin(static_cast<schema::TensorOrigin>(from.origin));
}

absl::Status Read(schema::TensorSpec::Reader from, TensorSpec& to) {
  return FieldReader()
      .Text(from.getName(), kMaxTensorNameBytes, "tensor.name", to.name)
      .Enum(from.getDtype(), Dtype::kU64, "tensor.dtype", to.dtype)
      .List(from.getShape(), kMaxTensorRank, "tensor.shape", to.shape)
      .Enum(from.getOrigin(), TensorOrigin::kDerived, "tensor.origin", to.origin)
      .Done();
}

void Write(const Manifest& from, schema::Manifest::Builder to) {
  WriteList(from.tensors, to.initTensors(ListSize(from.tensors.size())));
  auto groups = to.initAliasGroups(ListSize(from.alias_groups.size()));
  for (unsigned i = 0; i < groups.size(); ++i) {
    const std::vector<std::string>& names = from.alias_groups[i];
    WriteList(names, groups[i].initNames(ListSize(names.size())));
  }
}

absl::Status Read(schema::Manifest::Reader from, Manifest& to) {
  FieldReader fields;
  fields.List(from.getTensors(), kMaxTensors, "manifest.tensors", to.tensors);
  const auto groups = from.getAliasGroups();
  if (groups.size() > kMaxTensors) {
    return absl::InvalidArgumentError(
        absl::StrCat("bad message: manifest.alias_groups: ", groups.size(),
                     " groups are above the limit ", kMaxTensors));
  }
  to.alias_groups.resize(groups.size());
  for (unsigned i = 0; i < groups.size(); ++i) {
    fields.Texts(groups[i].getNames(), kMaxTensors, kMaxTensorNameBytes, "manifest.alias_groups",
                 to.alias_groups[i]);
  }
  return fields.Done();
}

void Write(const VersionDigest& from, schema::VersionDigest::Builder to) {
  to.setManifestRoot(AsData(from.manifest_root));
  auto roots = to.initTensorRoots(ListSize(from.tensor_roots.size() * sizeof(Digest256)));
  auto* next = roots.begin();
  for (const Digest256& root : from.tensor_roots) next = std::copy(root.begin(), root.end(), next);
}

absl::Status Read(schema::VersionDigest::Reader from, VersionDigest& to) {
  const capnp::Data::Reader roots = from.getTensorRoots();
  if (roots.size() % sizeof(Digest256) != 0 || roots.size() / sizeof(Digest256) > kMaxTensors) {
    return absl::InvalidArgumentError(
        absl::StrCat("bad message: version_digest.tensor_roots: ", roots.size(),
                     " bytes are not up to ", kMaxTensors, " digests of 32"));
  }
  to.tensor_roots.resize(roots.size() / sizeof(Digest256));
  const auto* next = roots.begin();
  for (Digest256& root : to.tensor_roots) {
    std::copy(next, next + sizeof(Digest256), root.begin());
    next += sizeof(Digest256);
  }
  return FieldReader()
      .Bytes(from.getManifestRoot(), "version_digest.manifest_root",
             absl::MakeSpan(to.manifest_root))
      .Done();
}

}  // namespace lockstep::wire
