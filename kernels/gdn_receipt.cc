#include <sodium.h>

#include "absl/strings/str_cat.h"
#include "kernels/gdn_cp.h"

namespace lockstep::kernels {
namespace {

Digest256 DigestOf(absl::Span<const float> state) {
  Digest256 digest;
  crypto_generichash_blake2b(digest.data(), digest.size(),
                             reinterpret_cast<const uint8_t*>(state.data()),
                             state.size() * sizeof(float), nullptr, 0);
  return digest;
}

absl::Status Refused(absl::string_view field, int64_t want, int64_t got) {
  return absl::FailedPreconditionError(absl::StrCat(
      kGdnRelayId, ": receipt out of order: expected ", field, " ", want, ", got ", got));
}

}  // namespace

GdnStateReceipt MakeGdnReceipt(int sender, int receiver, int64_t document_offset,
                               const GdnParams& shape, absl::Span<const float> state) {
  GdnStateReceipt receipt;
  receipt.sender = sender;
  receipt.receiver = receiver;
  receipt.document_offset = document_offset;
  receipt.type = shape.state_type;
  receipt.value_heads = shape.value_heads;
  receipt.key_dim = shape.key_dim;
  receipt.value_dim = shape.value_dim;
  receipt.digest = DigestOf(state);
  return receipt;
}

absl::Status CheckGdnReceipt(const GdnStateReceipt& got, int sender, int receiver,
                             int64_t document_offset, const GdnParams& shape,
                             absl::Span<const float> state) {
  if (got.sender != sender) return Refused("sender", sender, got.sender);
  if (got.receiver != receiver) return Refused("receiver", receiver, got.receiver);
  if (got.document_offset != document_offset) {
    return Refused("document offset", document_offset, got.document_offset);
  }
  if (got.document_offset % static_cast<int64_t>(kGdnChunk) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(kGdnRelayId, ": a boundary at token ",
                                                      got.document_offset, " is off the grid of ",
                                                      kGdnChunk, " tokens"));
  }
  if (got.type != FloatType::kF32) {
    return absl::FailedPreconditionError(
        absl::StrCat(kGdnRelayId, ": expected a state of F32, got ", Name(got.type)));
  }
  if (got.value_heads != shape.value_heads) {
    return Refused("value heads", shape.value_heads, got.value_heads);
  }
  if (got.key_dim != shape.key_dim) return Refused("key dim", shape.key_dim, got.key_dim);
  if (got.value_dim != shape.value_dim) return Refused("value dim", shape.value_dim, got.value_dim);
  if (got.digest != DigestOf(state)) {
    return absl::DataLossError(absl::StrCat(kGdnRelayId, ": the state received for token ",
                                            document_offset, " differs from its receipt's digest"));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
