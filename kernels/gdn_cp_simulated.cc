#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cp_segments.h"
#include "kernels/gdn_cp.h"
#include "kernels/parallel.h"

namespace lockstep::kernels {
namespace {

// The rows of a rank's tokens, gathered from the whole tensor and put back.
class LocalRows {
 public:
  LocalRows(const std::vector<CpSegment>& segments, int rank, size_t row_bytes)
      : segments_(segments),
        rank_(rank),
        row_bytes_(row_bytes),
        bytes_(static_cast<size_t>(LocalTokens(segments, rank)) * row_bytes) {}

  void Gather(const void* whole) {
    uint8_t* to = bytes_.data();
    ForOwn([&](size_t offset, size_t size) {
      memcpy(to, static_cast<const uint8_t*>(whole) + offset, size);
      to += size;
    });
  }

  void Scatter(void* whole) const {
    const uint8_t* from = bytes_.data();
    ForOwn([&](size_t offset, size_t size) {
      memcpy(static_cast<uint8_t*>(whole) + offset, from, size);
      from += size;
    });
  }

  uint8_t* data() { return bytes_.data(); }

 private:
  template <class Fn>
  void ForOwn(Fn fn) const {
    for (const CpSegment& segment : segments_) {
      if (segment.owner != rank_) continue;
      fn(static_cast<size_t>(segment.first) * row_bytes_,
         static_cast<size_t>(segment.count) * row_bytes_);
    }
  }

  const std::vector<CpSegment>& segments_;
  const int rank_;
  const size_t row_bytes_;
  std::vector<uint8_t> bytes_;
};

absl::Status RunRank(const GdnParams& whole, GdnCpProgram program,
                     const std::vector<CpSegment>& segments, CpExchange& exchange,
                     std::vector<float>& state) {
  const int rank = exchange.rank();
  const auto rows = [&](int64_t elements, FloatType type) {
    return LocalRows(segments, rank, static_cast<size_t>(elements) * SizeOf(type));
  };
  LocalRows q = rows(whole.key_heads * whole.key_dim, whole.input_type);
  LocalRows k = q;
  LocalRows v = rows(whole.value_heads * whole.value_dim, whole.input_type);
  LocalRows g = rows(whole.value_heads, whole.gate_type);
  LocalRows beta = g;
  LocalRows o = rows(whole.value_heads * whole.value_dim, whole.out_type);
  q.Gather(whole.q), k.Gather(whole.k), v.Gather(whole.v);
  g.Gather(whole.g), beta.Gather(whole.beta);
  GdnCpParams params;
  params.program = program;
  params.document_tokens = whole.tokens;
  params.local = whole;
  params.local.tokens = LocalTokens(segments, rank);
  params.local.q = q.data(), params.local.k = k.data(), params.local.v = v.data();
  params.local.g = g.data(), params.local.beta = beta.data();
  params.local.o = o.data();
  params.local.state = state.data();
  params.local.threads = std::max(1, whole.threads / exchange.size());
  const absl::Status status = GdnCpRank(params, exchange);
  if (status.ok()) o.Scatter(whole.o);
  return status;
}

}  // namespace

absl::Status GdnCpSimulated(const GdnParams& whole, GdnCpProgram program, int cp) {
  if (absl::Status status = CheckGdnShape(whole); !status.ok()) return status;
  if (absl::Status status = CheckGdnTokens(whole); !status.ok()) return status;
  const absl::StatusOr<std::vector<CpSegment>> segments =
      SegmentsOfSplit(program, whole.tokens, cp);
  if (!segments.ok()) return segments.status();
  const size_t state_floats =
      static_cast<size_t>(whole.value_heads * whole.key_dim * whole.value_dim);
  std::vector<std::vector<float>> states(static_cast<size_t>(cp), std::vector<float>(state_floats));
  std::vector<absl::Status> results(static_cast<size_t>(cp));
  LocalCpGroup group(cp);
  ParallelFor(static_cast<size_t>(cp), cp, [&](size_t begin, size_t end) {
    for (size_t rank = begin; rank < end; ++rank) {
      results[rank] =
          RunRank(whole, program, *segments, group.Rank(static_cast<int>(rank)), states[rank]);
      if (!results[rank].ok()) group.Abort(results[rank]);
    }
  });
  for (const absl::Status& result : results) {
    if (!result.ok()) return result;
  }
  for (const std::vector<float>& state : states) {
    if (memcmp(state.data(), states[0].data(), state_floats * sizeof(float)) != 0) {
      return absl::InternalError("gdn_cp: the ranks ended with different states");
    }
  }
  memcpy(whole.state, states[0].data(), state_floats * sizeof(float));
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
