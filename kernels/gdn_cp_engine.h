#ifndef LOCKSTEP_KERNELS_GDN_CP_ENGINE_H_
#define LOCKSTEP_KERNELS_GDN_CP_ENGINE_H_

// The rank programs of gdn_cp.h over whatever memory and arithmetic an engine has, so that host and
// device run one text.
//
// Example:
//   HostEngine engine(params.local);
//   return RunGdnCpRank(params, exchange, engine);

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cp_exchange.h"
#include "kernels/cp_segments.h"
#include "kernels/gdn_cp.h"

namespace lockstep::kernels {

// Floats are in the engine's own memory unless a name says host. States are of all heads; a map is
// M [K, K] then b [K, V] of each head.
class GdnCpEngine {
 public:
  virtual ~GdnCpEngine() = default;

  // Room that lives as long as the engine.
  virtual absl::StatusOr<float*> Take(size_t floats) = 0;
  virtual absl::Status Clear(float* floats, size_t count) = 0;
  // `to` may be `from`.
  virtual absl::Status Copy(float* to, const float* from, size_t count) = 0;

  // gdn/chunk64@v1 over local tokens [first, first + count), from and to `state`.
  virtual absl::Status Chunks(int64_t first, int64_t count, float* state) = 0;
  // The run's map.
  virtual absl::Status Affine(int64_t first, int64_t count, float* maps) = 0;
  // to = M * from + b.
  virtual absl::Status Advance(const float* maps, const float* from, float* to) = 0;

  // A copy of `floats`, good until the next call.
  virtual absl::StatusOr<absl::Span<const float>> OnHost(const float* floats, size_t count) = 0;
  // Host bytes over an exchange of the engine's memory.
  virtual absl::Status SendHost(CpExchange& exchange, int to, absl::Span<const uint8_t> bytes) = 0;
  virtual absl::Status ReceiveHost(CpExchange& exchange, int from, absl::Span<uint8_t> bytes) = 0;
};

// GdnCpRank on an engine.
absl::Status RunGdnCpRank(const GdnCpParams& params, CpExchange& exchange, GdnCpEngine& engine);

// What a rank takes of its engine at most, in floats of so many pieces.
struct GdnCpRoom {
  size_t floats = 0;
  size_t pieces = 0;
};
absl::StatusOr<GdnCpRoom> GdnCpRoomOf(const GdnCpParams& params, int rank, int cp);

// The longest segment of the split, in tokens.
int64_t LongestSegment(const std::vector<CpSegment>& segments);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_GDN_CP_ENGINE_H_
