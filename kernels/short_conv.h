#ifndef LOCKSTEP_KERNELS_SHORT_CONV_H_
#define LOCKSTEP_KERNELS_SHORT_CONV_H_

// The depthwise causal convolution of width 4 before a gated delta net
// (kernels/SPECIFICATION.md, "Short convolution"). A run of tokens needs the 3 inputs before it.
//
// Example:
//   ShortConvParams p;
//   p.tokens = t, p.channels = d;
//   p.x = x, p.weight = w, p.out = out, p.tail = cache;
//   if (absl::Status s = ShortConv(p); !s.ok()) return s;

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cp_exchange.h"
#include "kernels/cp_segments.h"
#include "kernels/gdn_cp.h"
#include "kernels/types.h"

namespace lockstep::kernels {

inline constexpr char kShortConvId[] = "short_conv/causal4@v1";
inline constexpr int64_t kShortConvWidth = 4;
inline constexpr int64_t kShortConvHalo = kShortConvWidth - 1;

struct ShortConvParams {
  int64_t tokens = 0;                        // T, at least 1
  int64_t channels = 0;                      // D
  FloatType type = FloatType::kBf16;         // of x, halo, tail and out: BF16 or F32
  FloatType weight_type = FloatType::kBf16;  // BF16 or F32
  const void* x = nullptr;                   // [T, D]
  const void* weight = nullptr;              // [D, 4], the last tap is the token itself
  const void* halo = nullptr;                // [3, D], the inputs before; nullptr is zeros
  void* out = nullptr;                       // [T, D]
  // [3, D], the last 3 inputs, for decoding on; nullptr when not wanted; may be `halo`.
  void* tail = nullptr;
  int threads = 1;
};

// InvalidArgument names what was expected and what came.
absl::Status ShortConv(const ShortConvParams& params);

// The same over ranks, split as the gated delta net that follows: `local` holds this rank's tokens
// (none is allowed), halo is the document's, the same on every rank, and every rank's tail
// receives the document's. The bytes are those of ShortConv on the whole document.
absl::Status ShortConvCpRank(const ShortConvParams& local, GdnCpProgram split,
                             int64_t document_tokens, CpExchange& exchange);

// What ShortConv checks: all that does not depend on tokens, and the rest; and what a rank checks
// besides, with the document's segments.
absl::Status CheckShortConvShape(const ShortConvParams& params);
absl::Status CheckShortConvTokens(const ShortConvParams& params);
absl::StatusOr<std::vector<CpSegment>> CheckShortConvRank(const ShortConvParams& local,
                                                          GdnCpProgram split,
                                                          int64_t document_tokens,
                                                          const CpExchange& exchange);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_SHORT_CONV_H_
