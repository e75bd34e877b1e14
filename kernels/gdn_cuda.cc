#include "kernels/gdn_cuda.h"

#include <algorithm>
#include <cmath>

#include "kernels/gdn_engine_cuda.h"

namespace lockstep::kernels {
namespace {

static_assert(kChunk == kGdnChunk);

constexpr int64_t kAlignedFloats = 64;  // pieces begin at multiples of 256 bytes

int64_t Aligned(int64_t floats) {
  return (floats + kAlignedFloats - 1) / kAlignedFloats * kAlignedFloats;
}

// Lays the workspace out from `base`; returns its floats.
int64_t LayOut(const GdnParams& p, int64_t tokens, bool with_maps, float* base, GdnWork& work) {
  const int64_t group = std::min(tokens, kGdnGroupTokens);
  const int64_t slots = (group + kChunk - 1) / kChunk * p.value_heads;
  work.slot_floats = Aligned(kChunk * (3 * p.key_dim + p.value_dim + kChunk) + 1);
  work.map_floats = p.key_dim * (p.key_dim + p.value_dim);
  int64_t used = 0;
  const auto take = [&](int64_t floats) {
    float* const piece = base == nullptr ? nullptr : base + used;
    used += Aligned(floats);
    return piece;
  };
  work.q_norms = take(group * p.key_heads);
  work.k_norms = take(group * p.key_heads);
  work.slots = take(slots * work.slot_floats);
  work.maps = take(with_maps ? slots * work.map_floats : 0);
  return used;
}

GdnDims DimsOf(const GdnParams& p) {
  GdnDims dims;
  dims.q = p.q, dims.k = p.k, dims.v = p.v, dims.g = p.g, dims.beta = p.beta, dims.o = p.o;
  dims.key_heads = static_cast<int>(p.key_heads);
  dims.value_heads = static_cast<int>(p.value_heads);
  dims.key_dim = static_cast<int>(p.key_dim);
  dims.value_dim = static_cast<int>(p.value_dim);
  dims.input_type = p.input_type;
  dims.gate_type = p.gate_type;
  dims.out_type = p.out_type;
  dims.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.key_dim)));
  return dims;
}

// Calls fn(group) for the groups of a run, in order.
template <class Fn>
absl::Status ForGroups(int64_t first, int64_t count, Fn fn) {
  for (int64_t done = 0; done < count; done += kGdnGroupTokens) {
    const GdnTokens group = {first + done,
                             static_cast<int>(std::min(kGdnGroupTokens, count - done))};
    if (absl::Status s = fn(group); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace

GdnDeviceEngine::GdnDeviceEngine(const GdnParams& params, int64_t most_tokens, bool with_maps,
                                 void* workspace, CudaStream stream)
    : dims_(DimsOf(params)), stream_(stream) {
  LayOut(params, most_tokens, with_maps, static_cast<float*>(workspace), work_);
}

size_t GdnDeviceEngine::WorkspaceBytes(const GdnParams& params, int64_t most_tokens,
                                       bool with_maps) {
  GdnWork work;
  const int64_t floats = LayOut(params, most_tokens, with_maps, nullptr, work);
  return static_cast<size_t>(floats) * sizeof(float) + 1;
}

absl::Status GdnDeviceEngine::Chunks(int64_t first, int64_t count, float* state) {
  return ForGroups(first, count, [&](const GdnTokens& group) {
    absl::Status status = LaunchGdnNorms(dims_, group, work_, stream_);
    if (status.ok()) status = LaunchGdnPrepare(dims_, group, work_, stream_);
    if (status.ok()) status = LaunchGdnFinish(dims_, group, work_, state, stream_);
    return status;
  });
}

absl::Status GdnDeviceEngine::Recurrence(int64_t first, int64_t count, float* state) {
  return ForGroups(first, count, [&](const GdnTokens& group) {
    absl::Status status = LaunchGdnNorms(dims_, group, work_, stream_);
    if (status.ok()) status = LaunchGdnRecurrence(dims_, group, work_, state, stream_);
    return status;
  });
}

absl::Status GdnDeviceEngine::Affine(int64_t first, int64_t count, float* maps, float* spare) {
  return ForGroups(first, count, [&](const GdnTokens& group) {
    absl::Status status = LaunchGdnNorms(dims_, group, work_, stream_);
    if (status.ok()) status = LaunchGdnPrepare(dims_, group, work_, stream_);
    if (status.ok()) status = LaunchGdnChunkMaps(dims_, group, work_, stream_);
    if (status.ok()) {
      status = LaunchGdnCompose(dims_, group, work_, group.first != first, maps, spare, stream_);
    }
    return status;
  });
}

absl::Status GdnDeviceEngine::Advance(const float* maps, const float* from, float* to) {
  return LaunchGdnAdvance(dims_, maps, from, to, stream_);
}

size_t GdnCudaWorkspaceBytes(const GdnParams& params) {
  return GdnDeviceEngine::WorkspaceBytes(params, params.tokens, false);
}

absl::Status GdnCuda(const GdnParams& p, void* workspace, CudaStream stream) {
  if (absl::Status status = CheckGdnShape(p); !status.ok()) return status;
  if (absl::Status status = CheckGdnTokens(p); !status.ok()) return status;
  if (absl::Status status = CheckGdnOnGrid(p); !status.ok()) return status;
  if (workspace == nullptr) {
    return absl::InvalidArgumentError("gdn: expected a workspace of GdnCudaWorkspaceBytes");
  }
  const size_t state_bytes = GdnDeviceEngine::StateFloats(p) * sizeof(float);
  absl::Status status;
  if (p.s0 == nullptr) {
    status = FillDevice(p.state, 0, state_bytes, stream);
  } else if (p.s0 != p.state) {
    status = CopyOnDevice(p.state, p.s0, state_bytes, stream);
  }
  if (!status.ok()) return status;
  GdnDeviceEngine engine(p, p.tokens, false, workspace, stream);
  return p.program == GdnProgram::kChunk64 ? engine.Chunks(0, p.tokens, p.state)
                                           : engine.Recurrence(0, p.tokens, p.state);
}

}  // namespace lockstep::kernels
