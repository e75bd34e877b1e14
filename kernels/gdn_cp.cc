#include "kernels/gdn_cp.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/gdn_cp_engine.h"

namespace lockstep::kernels {
namespace {

class HostEngine final : public GdnCpEngine {
 public:
  explicit HostEngine(const GdnParams& local)
      : local_(local), state_floats_(static_cast<size_t>(local.key_dim * local.value_dim)) {}

  absl::StatusOr<float*> Take(size_t floats) override {
    pieces_.push_back(std::make_unique<float[]>(floats));
    return pieces_.back().get();
  }
  absl::Status Clear(float* floats, size_t count) override {
    std::fill_n(floats, count, 0.0f);
    return absl::OkStatus();
  }
  absl::Status Copy(float* to, const float* from, size_t count) override {
    if (to != from) memcpy(to, from, count * sizeof(float));
    return absl::OkStatus();
  }

  absl::Status Chunks(int64_t first, int64_t count, float* state) override {
    return ForEachGdnHead(local_, [&](int64_t head, GdnScratch& scratch) {
      GdnChunkHead(GdnHeadOf(local_, head, first, count),
                   state + static_cast<size_t>(head) * state_floats_, scratch);
    });
  }
  absl::Status Affine(int64_t first, int64_t count, float* maps) override {
    return ForEachGdnHead(local_, [&](int64_t head, GdnScratch& scratch) {
      float* m = maps + static_cast<size_t>(head) * MapFloats();
      GdnAffineHead(GdnHeadOf(local_, head, first, count), m, m + OfM(), scratch);
    });
  }
  absl::Status Advance(const float* maps, const float* from, float* to) override {
    return ForEachGdnHead(local_, [&](int64_t head, GdnScratch& scratch) {
      const float* m = maps + static_cast<size_t>(head) * MapFloats();
      const size_t at = static_cast<size_t>(head) * state_floats_;
      memcpy(to + at, from + at, state_floats_ * sizeof(float));
      GdnAdvanceState(m, m + OfM(), static_cast<size_t>(local_.key_dim),
                      static_cast<size_t>(local_.value_dim), to + at, scratch);
    });
  }

  absl::StatusOr<absl::Span<const float>> OnHost(const float* floats, size_t count) override {
    return absl::Span<const float>(floats, count);
  }
  absl::Status SendHost(CpExchange& exchange, int to, absl::Span<const uint8_t> bytes) override {
    return exchange.Send(to, bytes);
  }
  absl::Status ReceiveHost(CpExchange& exchange, int from, absl::Span<uint8_t> bytes) override {
    return exchange.Receive(from, bytes);
  }

 private:
  size_t OfM() const { return static_cast<size_t>(local_.key_dim * local_.key_dim); }
  size_t MapFloats() const { return OfM() + state_floats_; }

  const GdnParams& local_;
  const size_t state_floats_;  // of one head
  std::vector<std::unique_ptr<float[]>> pieces_;
};

}  // namespace

absl::Status GdnCpRank(const GdnCpParams& params, CpExchange& exchange) {
  HostEngine engine(params.local);
  return RunGdnCpRank(params, exchange, engine);
}

}  // namespace lockstep::kernels
