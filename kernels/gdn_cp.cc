#include "kernels/gdn_cp.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cp_segments.h"

namespace lockstep::kernels {
namespace {

using Segments = std::vector<CpSegment>;

// Everything one rank's run needs.
struct RankRun {
  const GdnParams& local;
  const Segments& segments;
  CpExchange& exchange;
  std::vector<size_t> own;           // indices of this rank's segments, ascending
  std::vector<int64_t> local_first;  // parallel: where each begins in the local tensors
  size_t state_floats;               // of one head

  size_t all_state_floats() const { return static_cast<size_t>(local.value_heads) * state_floats; }
};

absl::Span<uint8_t> AsBytes(absl::Span<float> values) {
  return absl::MakeSpan(reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(float));
}

absl::Span<float> StateOf(const RankRun& run) {
  return absl::MakeSpan(run.local.state, run.all_state_floats());
}

void LoadStartState(const RankRun& run, absl::Span<float> state) {
  if (run.local.s0 == nullptr) {
    std::fill(state.begin(), state.end(), 0.0f);
  } else if (run.local.s0 != state.data()) {
    memcpy(state.data(), run.local.s0, state.size() * sizeof(float));
  }
}

// gdn/chunk64@v1 over own segment `index` of the rank, from and to `state` of all heads.
absl::Status RunSegment(const RankRun& run, size_t index, float* state) {
  return ForEachGdnHead(run.local, [&](int64_t head, GdnScratch& scratch) {
    GdnChunkHead(
        GdnHeadOf(run.local, head, run.local_first[index], run.segments[run.own[index]].count),
        state + static_cast<size_t>(head) * run.state_floats, scratch);
  });
}

absl::Status HandOn(const RankRun& run, size_t next_segment, absl::Span<float> state) {
  const CpSegment& next = run.segments[next_segment];
  const GdnStateReceipt receipt =
      MakeGdnReceipt(run.exchange.rank(), next.owner, next.first, run.local, state);
  const auto* bytes = reinterpret_cast<const uint8_t*>(&receipt);
  if (absl::Status s = run.exchange.Send(next.owner, {bytes, sizeof(receipt)}); !s.ok()) return s;
  return run.exchange.Send(next.owner, AsBytes(state));
}

absl::Status TakeOver(const RankRun& run, size_t segment, absl::Span<float> state) {
  const int sender = run.segments[segment - 1].owner;
  GdnStateReceipt receipt;
  auto* bytes = reinterpret_cast<uint8_t*>(&receipt);
  if (absl::Status s = run.exchange.Receive(sender, {bytes, sizeof(receipt)}); !s.ok()) return s;
  if (absl::Status s = run.exchange.Receive(sender, AsBytes(state)); !s.ok()) return s;
  return CheckGdnReceipt(receipt, sender, run.exchange.rank(), run.segments[segment].first,
                         run.local, state);
}

absl::Status RunRelay(const RankRun& run) {
  const absl::Span<float> state = StateOf(run);
  const int rank = run.exchange.rank();
  for (size_t i = 0; i < run.own.size(); ++i) {
    const size_t segment = run.own[i];
    if (segment == 0) {
      LoadStartState(run, state);
    } else if (run.segments[segment - 1].owner != rank) {
      // Otherwise the state is where the rank's own last segment left it.
      if (absl::Status s = TakeOver(run, segment, state); !s.ok()) return s;
    }
    if (absl::Status s = RunSegment(run, i, state.data()); !s.ok()) return s;
    if (segment + 1 < run.segments.size() && run.segments[segment + 1].owner != rank) {
      if (absl::Status s = HandOn(run, segment + 1, state); !s.ok()) return s;
    }
  }
  return run.exchange.Broadcast(run.segments.back().owner, AsBytes(state));
}

// The maps (M, b) of every segment but the last, which no state follows, from all ranks. A rank's
// place holds its own segments in ascending order.
struct GatheredMaps {
  size_t head_floats;  // of one head's M and b
  size_t slot_floats;  // of one segment
  size_t slots;        // of one rank, the most any rank owns
  std::vector<float> floats;
  std::vector<size_t> slot_of;  // of each segment, within its owner's place

  const float* Map(const Segments& segments, size_t segment, int64_t head) const {
    const size_t place = static_cast<size_t>(segments[segment].owner) * slots + slot_of[segment];
    return floats.data() + place * slot_floats + static_cast<size_t>(head) * head_floats;
  }
};

absl::StatusOr<GatheredMaps> GatherMaps(const RankRun& run) {
  const size_t key_dim = static_cast<size_t>(run.local.key_dim);
  GatheredMaps maps;
  maps.head_floats = key_dim * key_dim + run.state_floats;
  maps.slot_floats = static_cast<size_t>(run.local.value_heads) * maps.head_floats;
  std::vector<size_t> owned(static_cast<size_t>(run.exchange.size()), 0);
  for (size_t s = 0; s + 1 < run.segments.size(); ++s) {
    maps.slot_of.push_back(owned[static_cast<size_t>(run.segments[s].owner)]++);
  }
  maps.slots = *std::max_element(owned.begin(), owned.end());
  std::vector<float> mine(maps.slots * maps.slot_floats, 0.0f);
  for (size_t i = 0; i < run.own.size() && run.own[i] < maps.slot_of.size(); ++i) {
    const absl::Status status = ForEachGdnHead(run.local, [&](int64_t head, GdnScratch& scratch) {
      float* m = mine.data() + i * maps.slot_floats + static_cast<size_t>(head) * maps.head_floats;
      GdnAffineHead(GdnHeadOf(run.local, head, run.local_first[i], run.segments[run.own[i]].count),
                    m, m + key_dim * key_dim, scratch);
    });
    if (!status.ok()) return status;
  }
  maps.floats.resize(mine.size() * owned.size());
  const absl::Status status =
      run.exchange.AllGather(AsBytes(absl::MakeSpan(mine)), AsBytes(absl::MakeSpan(maps.floats)));
  if (!status.ok()) return status;
  return maps;
}

absl::Status RunCanonicalFold(const RankRun& run) {
  const absl::StatusOr<GatheredMaps> maps = GatherMaps(run);
  if (!maps.ok()) return maps.status();
  const size_t key_dim = static_cast<size_t>(run.local.key_dim);
  const size_t value_dim = static_cast<size_t>(run.local.value_dim);
  const absl::Span<float> state = StateOf(run);
  LoadStartState(run, state);
  // The states in which the rank's own segments start.
  std::vector<std::vector<float>> starts(run.own.size());
  size_t next_own = 0;
  for (size_t s = 0; s < run.segments.size(); ++s) {
    if (next_own < run.own.size() && run.own[next_own] == s) {
      starts[next_own++].assign(state.begin(), state.end());
    }
    if (s + 1 == run.segments.size()) break;
    const absl::Status status = ForEachGdnHead(run.local, [&](int64_t head, GdnScratch& scratch) {
      const float* m = maps->Map(run.segments, s, head);
      GdnAdvanceState(m, m + key_dim * key_dim, key_dim, value_dim,
                      state.data() + static_cast<size_t>(head) * run.state_floats, scratch);
    });
    if (!status.ok()) return status;
  }
  for (size_t i = 0; i < run.own.size(); ++i) {
    if (absl::Status s = RunSegment(run, i, starts[i].data()); !s.ok()) return s;
    if (run.own[i] + 1 == run.segments.size()) {
      std::copy(starts[i].begin(), starts[i].end(), state.begin());
    }
  }
  return run.exchange.Broadcast(run.segments.back().owner, AsBytes(state));
}

absl::StatusOr<Segments> SegmentsOf(GdnCpProgram program, int64_t tokens, int cp) {
  return program == GdnCpProgram::kRelay ? RelaySegments(tokens, cp) : FoldSegments(tokens, cp);
}

absl::Status CheckLocal(const GdnCpParams& params, int64_t owned, int rank) {
  const GdnParams& local = params.local;
  if (absl::Status status = CheckGdnShape(local); !status.ok()) return status;
  if (local.document_offset != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gdn_cp: expected the whole document (offset 0), got offset ", local.document_offset));
  }
  if (local.tokens != owned) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gdn_cp: rank ", rank, " owns ", owned, " tokens of the document, got T=", local.tokens));
  }
  return owned == 0 ? absl::OkStatus() : CheckGdnTokens(local);
}

}  // namespace

absl::Status GdnCpRank(const GdnCpParams& params, CpExchange& exchange) {
  const absl::StatusOr<Segments> segments =
      SegmentsOf(params.program, params.document_tokens, exchange.size());
  if (!segments.ok()) return segments.status();
  const int rank = exchange.rank();
  const absl::Status status = CheckLocal(params, LocalTokens(*segments, rank), rank);
  if (!status.ok()) return status;
  RankRun run{params.local, *segments,
              exchange,     {},
              {},           static_cast<size_t>(params.local.key_dim * params.local.value_dim)};
  int64_t first = 0;
  for (size_t s = 0; s < segments->size(); ++s) {
    if ((*segments)[s].owner != rank) continue;
    run.own.push_back(s);
    run.local_first.push_back(first);
    first += (*segments)[s].count;
  }
  return params.program == GdnCpProgram::kRelay ? RunRelay(run) : RunCanonicalFold(run);
}

}  // namespace lockstep::kernels
