#include "tools/capi/common.h"

#include <cstdlib>
#include <new>
#include <utility>

#include "bridge/auth/keys.h"
#include "policy/status_macros.h"

namespace lockstep::capi {
namespace {

std::string& LastError() {
  thread_local std::string text;
  return text;
}

absl::StatusOr<TensorSpec> SpecOf(const lockstep_tensor_spec& given, size_t index) {
  if (given.name == nullptr) return Missing(absl::StrCat("tensors[", index, "].name"));
  TensorSpec spec;
  spec.name = given.name;
  const std::optional<Dtype> dtype = DtypeFromName(TextOr(given.dtype, ""));
  if (!dtype.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor '", spec.name, "': dtype '", TextOr(given.dtype, ""),
        "' is none of the safetensors format; write it as there, for example BF16 or F32"));
  }
  spec.dtype = *dtype;
  if (given.rank > kMaxTensorRank) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", spec.name, "': rank ", given.rank,
                                                   "; the limit is ", kMaxTensorRank));
  }
  if (given.rank > 0 && given.shape == nullptr) {
    return Missing(absl::StrCat("tensors[", index, "].shape"));
  }
  spec.shape.assign(given.shape, given.shape + given.rank);
  if (given.origin < LOCKSTEP_SYNCED || given.origin > LOCKSTEP_DERIVED) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", spec.name, "': origin ", given.origin, " is no lockstep_origin"));
  }
  spec.origin = static_cast<TensorOrigin>(given.origin);
  return spec;
}

}  // namespace

static_assert(static_cast<int>(TensorOrigin::kSynced) == LOCKSTEP_SYNCED);
static_assert(static_cast<int>(TensorOrigin::kFrozen) == LOCKSTEP_FROZEN);
static_assert(static_cast<int>(TensorOrigin::kDerived) == LOCKSTEP_DERIVED);

int32_t Fail(const absl::Status& status) {
  LastError() = std::string(status.message());
  return static_cast<int32_t>(status.code());
}

absl::Status Missing(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(what, " is NULL; it must be given"));
}

char* NewString(absl::string_view text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  if (!text.empty()) std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

absl::StatusOr<transport::BridgeAddress> BridgeOf(const char* bridge, const char* run,
                                                  const char* key_file,
                                                  const char* bridge_key_file) {
  transport::BridgeAddress address;
  address.address = TextOr(bridge, "");
  address.run = TextOr(run, "");
  if ((key_file == nullptr) != (bridge_key_file == nullptr)) {
    return absl::InvalidArgumentError(
        "key_file and bridge_key_file go together: who we are, and whom we trust to be the bridge");
  }
  if (key_file == nullptr) return address;
  transport::ClientKeys keys;
  LOCKSTEP_ASSIGN_OR_RETURN(auth::KeyPair pair, auth::LoadKeyPair(key_file));
  LOCKSTEP_ASSIGN_OR_RETURN(keys.server_public, auth::LoadPublicKey(bridge_key_file));
  keys.client_public = std::move(pair.public_key);
  keys.client_secret = std::move(pair.secret_key);
  address.keys = std::move(keys);
  return address;
}

absl::StatusOr<Manifest> ManifestOf(const lockstep_tensor_spec* tensors, size_t tensor_count,
                                    const lockstep_alias_group* groups, size_t group_count) {
  if (tensors == nullptr && tensor_count > 0) return Missing("tensors");
  if (groups == nullptr && group_count > 0) return Missing("alias_groups");
  Manifest manifest;
  for (size_t i = 0; i < tensor_count; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(TensorSpec spec, SpecOf(tensors[i], i));
    manifest.tensors.push_back(std::move(spec));
  }
  std::sort(manifest.tensors.begin(), manifest.tensors.end(),
            [](const TensorSpec& a, const TensorSpec& b) { return a.name < b.name; });
  for (size_t i = 0; i < group_count; ++i) {
    std::vector<std::string> group;
    if (groups[i].names == nullptr) return Missing(absl::StrCat("alias_groups[", i, "].names"));
    for (size_t k = 0; k < groups[i].name_count; ++k) {
      if (groups[i].names[k] == nullptr) return Missing(absl::StrCat("alias_groups[", i, "]"));
      group.push_back(groups[i].names[k]);
    }
    std::sort(group.begin(), group.end());
    manifest.alias_groups.push_back(std::move(group));
  }
  std::sort(manifest.alias_groups.begin(), manifest.alias_groups.end());
  const std::vector<Refusal> refusals = CheckManifest(manifest);
  if (!refusals.empty()) return absl::InvalidArgumentError(FormatRefusals(refusals));
  return manifest;
}

absl::StatusOr<TransportKind> TransportOf(absl::string_view name) {
  if (name == "shm") return TransportKind::kShm;
  if (name == "tcp") return TransportKind::kTcp;
  return absl::InvalidArgumentError(
      absl::StrCat("transport '", name, "' is neither 'shm' nor 'tcp'"));
}

}  // namespace lockstep::capi

using lockstep::capi::LastError;

extern "C" {

uint32_t lockstep_abi_version(void) { return LOCKSTEP_ABI_VERSION; }

const char* lockstep_last_error(void) { return LastError().c_str(); }

void lockstep_string_free(char* text) { std::free(text); }

}  // extern "C"
