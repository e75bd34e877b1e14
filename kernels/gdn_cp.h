#ifndef LOCKSTEP_KERNELS_GDN_CP_H_
#define LOCKSTEP_KERNELS_GDN_CP_H_

// The gated delta net over ranks that each hold a part of one document
// (kernels/SPECIFICATION.md, "Gated delta net over ranks"). Within a program the bytes are the same
// for every number of ranks; the two programs differ from each other.
//
// Example, one rank of a group:
//   GdnCpParams p;
//   p.program = GdnCpProgram::kRelay;
//   p.document_tokens = 4096;
//   p.local = ...;      // its own tokens, segments in causal order
//   absl::Status status = GdnCpRank(p, exchange);
// Simulated ranks in this process, on whole tensors:
//   absl::Status status = GdnCpSimulated(whole, GdnCpProgram::kRelay, cp);

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cp_exchange.h"
#include "kernels/cp_segments.h"
#include "kernels/gdn.h"
#include "kernels/types.h"

namespace lockstep::kernels {

inline constexpr char kGdnRelayId[] = "gdn_cp/relay@v1";
inline constexpr char kGdnCanonicalFoldId[] = "gdn_cp/canonical_fold@v1";

enum class GdnCpProgram { kRelay, kCanonicalFold };

struct GdnCpParams {
  GdnCpProgram program = GdnCpProgram::kRelay;
  int64_t document_tokens = 0;
  // q, k, v, g, beta, o: this rank's tokens only (none is allowed); tokens is their number. s0 is
  // the document's start state, the same on every rank. state receives the document's end state
  // on every rank, so that each can decode on without the others. program is not read: the
  // segments run gdn/chunk64@v1. document_offset must be 0.
  GdnParams local;
};

// The split of the program. InvalidArgument as RelaySegments or FoldSegments.
absl::StatusOr<std::vector<CpSegment>> SegmentsOfSplit(GdnCpProgram program, int64_t tokens,
                                                       int cp);

// One rank's part; every rank of the group calls it. InvalidArgument when the split is refused;
// FailedPrecondition or DataLoss when a receipt is wrong.
absl::Status GdnCpRank(const GdnCpParams& params, CpExchange& exchange);

// All ranks as threads of this process; `whole` holds the whole document. Its program is not read.
absl::Status GdnCpSimulated(const GdnParams& whole, GdnCpProgram program, int cp);

// What travels with a boundary state of the relay, checked before anything is computed from it.
struct GdnStateReceipt {
  int32_t sender = 0;
  int32_t receiver = 0;         // the rank of the next segment in causal order
  int64_t document_offset = 0;  // tokens before the segment that starts from this state
  FloatType type = FloatType::kF32;
  int64_t value_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  Digest256 digest{};  // BLAKE2b-256 of the state's bytes

  bool operator==(const GdnStateReceipt&) const = default;
};

GdnStateReceipt MakeGdnReceipt(int sender, int receiver, int64_t document_offset,
                               const GdnParams& shape, absl::Span<const float> state);

// OK when `got` is the receipt the receiver must get for `state`. FailedPrecondition names the
// field that is out of order, off the 64-token grid or of another type or shape; DataLoss when
// the state's bytes have another digest.
absl::Status CheckGdnReceipt(const GdnStateReceipt& got, int sender, int receiver,
                             int64_t document_offset, const GdnParams& shape,
                             absl::Span<const float> state);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_GDN_CP_H_
