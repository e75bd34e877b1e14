#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cp_exchange_cuda.h"
#include "kernels/gdn_cp_cuda.h"
#include "kernels/parallel.h"

namespace lockstep::kernels {
namespace {

// One rank's memory: its rows of the whole tensors, gathered and put back.
class RankMemory {
 public:
  RankMemory(const std::vector<CpSegment>& segments, int rank, CudaStream stream)
      : segments_(segments), rank_(rank), stream_(stream) {}

  absl::StatusOr<uint8_t*> Allocate(size_t bytes) {
    absl::StatusOr<DeviceBuffer> buffer = DeviceBuffer::Allocate(bytes + 1);
    if (!buffer.ok()) return buffer.status();
    buffers_.push_back(*std::move(buffer));
    return buffers_.back().As<uint8_t>();
  }

  absl::StatusOr<uint8_t*> Rows(size_t row_bytes) {
    return Allocate(static_cast<size_t>(LocalTokens(segments_, rank_)) * row_bytes);
  }

  absl::StatusOr<uint8_t*> Gather(const void* whole, size_t row_bytes) {
    const absl::StatusOr<uint8_t*> rows = Rows(row_bytes);
    if (!rows.ok()) return rows;
    const auto* from = static_cast<const uint8_t*>(whole);
    const absl::Status copied = ForOwn(row_bytes, [&](size_t local, size_t offset, size_t bytes) {
      return CopyOnDevice(*rows + local, from + offset, bytes, stream_);
    });
    if (!copied.ok()) return copied;
    return *rows;
  }

  absl::Status Scatter(const void* rows, void* whole, size_t row_bytes) {
    return ForOwn(row_bytes, [&](size_t local, size_t offset, size_t bytes) {
      return CopyOnDevice(static_cast<uint8_t*>(whole) + offset,
                          static_cast<const uint8_t*>(rows) + local, bytes, stream_);
    });
  }

 private:
  template <class Fn>
  absl::Status ForOwn(size_t row_bytes, Fn fn) const {
    size_t local = 0;
    for (const CpSegment& segment : segments_) {
      if (segment.owner != rank_) continue;
      const size_t bytes = static_cast<size_t>(segment.count) * row_bytes;
      if (absl::Status s = fn(local, static_cast<size_t>(segment.first) * row_bytes, bytes);
          !s.ok()) {
        return s;
      }
      local += bytes;
    }
    return absl::OkStatus();
  }

  const std::vector<CpSegment>& segments_;
  const int rank_;
  const CudaStream stream_;
  std::vector<DeviceBuffer> buffers_;
};

// Puts `piece` into `place`; the first failure stays in `status`.
template <class Pointer>
void Take(const absl::StatusOr<uint8_t*>& piece, Pointer& place, absl::Status& status) {
  status.Update(piece.status());
  if (piece.ok()) place = static_cast<Pointer>(static_cast<void*>(*piece));
}

// Rank 0's end state goes into the whole's.
absl::Status RunRank(const GdnParams& whole, GdnCpProgram program,
                     const std::vector<CpSegment>& segments, CpExchange& host, int device) {
  if (absl::Status s = UseCudaDevice(device); !s.ok()) return s;
  const absl::StatusOr<OwnedCudaStream> stream = OwnedCudaStream::Create();
  if (!stream.ok()) return stream.status();
  const int rank = host.rank();
  RankMemory memory(segments, rank, stream->get());
  const auto row = [](int64_t elements, FloatType type) {
    return static_cast<size_t>(elements) * SizeOf(type);
  };
  const size_t qk_row = row(whole.key_heads * whole.key_dim, whole.input_type);
  const size_t v_row = row(whole.value_heads * whole.value_dim, whole.input_type);
  const size_t o_row = row(whole.value_heads * whole.value_dim, whole.out_type);
  const size_t gate_row = row(whole.value_heads, whole.gate_type);
  const size_t state_bytes =
      row(whole.value_heads * whole.key_dim * whole.value_dim, FloatType::kF32);
  GdnCpParams params;
  params.program = program;
  params.document_tokens = whole.tokens;
  params.local = whole;
  params.local.tokens = LocalTokens(segments, rank);
  void* workspace = nullptr;
  absl::Status status;
  Take(memory.Gather(whole.q, qk_row), params.local.q, status);
  Take(memory.Gather(whole.k, qk_row), params.local.k, status);
  Take(memory.Gather(whole.v, v_row), params.local.v, status);
  Take(memory.Gather(whole.g, gate_row), params.local.g, status);
  Take(memory.Gather(whole.beta, gate_row), params.local.beta, status);
  Take(memory.Rows(o_row), params.local.o, status);
  Take(memory.Allocate(state_bytes), params.local.state, status);
  Take(memory.Allocate(GdnCpRankCudaWorkspaceBytes(params, rank, host.size())), workspace, status);
  if (!status.ok()) return status;
  StagedCpExchange exchange(host, stream->get());
  status = GdnCpRankCuda(params, exchange, workspace, stream->get());
  if (status.ok()) status = memory.Scatter(params.local.o, whole.o, o_row);
  // Also keeps the buffers until everything enqueued is done.
  status.Update(SynchronizeStream(stream->get()));
  if (!status.ok()) return status;
  std::vector<uint8_t> mine(state_bytes);
  status = CopyToHost(mine.data(), params.local.state, state_bytes, stream->get());
  status.Update(SynchronizeStream(stream->get()));
  if (!status.ok()) return status;
  std::vector<uint8_t> all(state_bytes * static_cast<size_t>(host.size()));
  if (absl::Status s = host.AllGather(mine, absl::MakeSpan(all)); !s.ok()) return s;
  for (size_t at = 0; at < all.size(); at += state_bytes) {
    if (!std::equal(mine.begin(), mine.end(), all.begin() + static_cast<ptrdiff_t>(at))) {
      return absl::InternalError("gdn_cp: the ranks ended with different states");
    }
  }
  if (rank != 0) return absl::OkStatus();
  status = CopyOnDevice(whole.state, params.local.state, state_bytes, stream->get());
  status.Update(SynchronizeStream(stream->get()));
  return status;
}

}  // namespace

absl::Status GdnCpSimulatedCuda(const GdnParams& whole, GdnCpProgram program, int cp, int device,
                                CudaStream stream) {
  if (absl::Status status = CheckGdnShape(whole); !status.ok()) return status;
  if (absl::Status status = CheckGdnTokens(whole); !status.ok()) return status;
  const absl::StatusOr<std::vector<CpSegment>> segments =
      SegmentsOfSplit(program, whole.tokens, cp);
  if (!segments.ok()) return segments.status();
  if (absl::Status status = SynchronizeStream(stream); !status.ok()) return status;
  std::vector<absl::Status> results(static_cast<size_t>(cp));
  LocalCpGroup group(cp);
  ParallelFor(static_cast<size_t>(cp), cp, [&](size_t begin, size_t end) {
    for (size_t rank = begin; rank < end; ++rank) {
      results[rank] =
          RunRank(whole, program, *segments, group.Rank(static_cast<int>(rank)), device);
      if (!results[rank].ok()) group.Abort(results[rank]);
    }
  });
  for (const absl::Status& result : results) {
    if (!result.ok()) return result;
  }
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
