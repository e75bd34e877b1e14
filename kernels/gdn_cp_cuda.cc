#include "kernels/gdn_cp_cuda.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/gdn_cp_engine.h"
#include "kernels/gdn_engine_cuda.h"

namespace lockstep::kernels {
namespace {

constexpr size_t kAlignment = 256;

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// The parts of a rank's workspace.
struct Workspace {
  size_t receipt_bytes = Aligned(sizeof(GdnStateReceipt));
  size_t engine_bytes = 0;
  size_t spare_bytes = 0;  // for composing maps
  size_t room_bytes = 0;   // what the program takes
  int64_t most_tokens = 0;
  bool with_maps = false;

  size_t bytes() const { return receipt_bytes + engine_bytes + spare_bytes + room_bytes; }
};

absl::StatusOr<Workspace> LayOut(const GdnCpParams& params, int rank, int cp) {
  const auto segments = SegmentsOfSplit(params.program, params.document_tokens, cp);
  if (!segments.ok()) return segments.status();
  const absl::StatusOr<GdnCpRoom> room = GdnCpRoomOf(params, rank, cp);
  if (!room.ok()) return room.status();
  Workspace work;
  work.with_maps = params.program == GdnCpProgram::kCanonicalFold;
  work.most_tokens = LongestSegment(*segments);
  work.engine_bytes =
      Aligned(GdnDeviceEngine::WorkspaceBytes(params.local, work.most_tokens, work.with_maps));
  const size_t map_floats =
      GdnDeviceEngine::MapFloats(params.local) * static_cast<size_t>(params.local.value_heads);
  work.spare_bytes = work.with_maps ? Aligned(map_floats * sizeof(float)) : 0;
  work.room_bytes = room->floats * sizeof(float) + room->pieces * kAlignment;
  return work;
}

class DeviceEngine final : public GdnCpEngine {
 public:
  DeviceEngine(const GdnParams& local, const Workspace& work, uint8_t* base, CudaStream stream)
      : receipt_(base),
        spare_(reinterpret_cast<float*>(base + work.receipt_bytes + work.engine_bytes)),
        next_(base + work.receipt_bytes + work.engine_bytes + work.spare_bytes),
        end_(base + work.bytes()),
        stream_(stream),
        engine_(local, work.most_tokens, work.with_maps, base + work.receipt_bytes, stream) {}

  absl::StatusOr<float*> Take(size_t floats) override {
    auto* piece = reinterpret_cast<float*>(next_);
    next_ += Aligned(floats * sizeof(float));
    if (next_ > end_) return absl::InternalError("gdn_cp: the workspace is too small");
    return piece;
  }
  absl::Status Clear(float* floats, size_t count) override {
    return FillDevice(floats, 0, count * sizeof(float), stream_);
  }
  absl::Status Copy(float* to, const float* from, size_t count) override {
    if (to == from) return absl::OkStatus();
    return CopyOnDevice(to, from, count * sizeof(float), stream_);
  }

  absl::Status Chunks(int64_t first, int64_t count, float* state) override {
    return engine_.Chunks(first, count, state);
  }
  absl::Status Affine(int64_t first, int64_t count, float* maps) override {
    return engine_.Affine(first, count, maps, spare_);
  }
  absl::Status Advance(const float* maps, const float* from, float* to) override {
    return engine_.Advance(maps, from, to);
  }

  absl::StatusOr<absl::Span<const float>> OnHost(const float* floats, size_t count) override {
    host_.resize(count);
    absl::Status copied = CopyToHost(host_.data(), floats, count * sizeof(float), stream_);
    if (copied.ok()) copied = SynchronizeStream(stream_);
    if (!copied.ok()) return copied;
    return absl::Span<const float>(host_);
  }
  absl::Status SendHost(CpExchange& exchange, int to, absl::Span<const uint8_t> bytes) override {
    const absl::Status copied = CopyToDevice(receipt_, bytes.data(), bytes.size(), stream_);
    return copied.ok() ? exchange.Send(to, {receipt_, bytes.size()}) : copied;
  }
  absl::Status ReceiveHost(CpExchange& exchange, int from, absl::Span<uint8_t> bytes) override {
    absl::Status got = exchange.Receive(from, {receipt_, bytes.size()});
    if (got.ok()) got = CopyToHost(bytes.data(), receipt_, bytes.size(), stream_);
    return got.ok() ? SynchronizeStream(stream_) : got;
  }

 private:
  uint8_t* const receipt_;
  float* const spare_;
  uint8_t* next_;
  uint8_t* const end_;
  const CudaStream stream_;
  GdnDeviceEngine engine_;
  std::vector<float> host_;
};

}  // namespace

size_t GdnCpRankCudaWorkspaceBytes(const GdnCpParams& params, int rank, int cp) {
  const absl::StatusOr<Workspace> work = LayOut(params, rank, cp);
  return work.ok() ? work->bytes() : 0;
}

absl::Status GdnCpRankCuda(const GdnCpParams& params, CpExchange& exchange, void* workspace,
                           CudaStream stream) {
  // Before sizes are made of it.
  if (absl::Status status = CheckGdnShape(params.local); !status.ok()) return status;
  const absl::StatusOr<Workspace> work = LayOut(params, exchange.rank(), exchange.size());
  if (!work.ok()) return work.status();
  if (workspace == nullptr) {
    return absl::InvalidArgumentError(
        "gdn_cp: expected a workspace of GdnCpRankCudaWorkspaceBytes");
  }
  DeviceEngine engine(params.local, *work, static_cast<uint8_t*>(workspace), stream);
  return RunGdnCpRank(params, exchange, engine);
}

}  // namespace lockstep::kernels
