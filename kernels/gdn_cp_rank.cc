#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/gdn_cp_engine.h"

namespace lockstep::kernels {
namespace {

using Segments = std::vector<CpSegment>;

// Everything one rank's run needs.
struct RankRun {
  const GdnParams& local;
  const Segments& segments;
  CpExchange& exchange;
  GdnCpEngine& engine;
  std::vector<size_t> own;           // indices of this rank's segments, ascending
  std::vector<int64_t> local_first;  // parallel: where each begins in the local tensors
  size_t state_floats;               // of all heads
};

absl::Span<uint8_t> AsBytes(float* values, size_t count) {
  return {reinterpret_cast<uint8_t*>(values), count * sizeof(float)};
}

size_t StateFloats(const GdnParams& p) {
  return static_cast<size_t>(p.value_heads * p.key_dim * p.value_dim);
}

size_t MapFloats(const GdnParams& p) {
  return static_cast<size_t>(p.value_heads * p.key_dim * (p.key_dim + p.value_dim));
}

absl::Status LoadStartState(const RankRun& run) {
  if (run.local.s0 == nullptr) return run.engine.Clear(run.local.state, run.state_floats);
  return run.engine.Copy(run.local.state, run.local.s0, run.state_floats);
}

absl::Status RunSegment(const RankRun& run, size_t index, float* state) {
  return run.engine.Chunks(run.local_first[index], run.segments[run.own[index]].count, state);
}

absl::Status HandOn(const RankRun& run, size_t next_segment) {
  const CpSegment& next = run.segments[next_segment];
  const auto state = run.engine.OnHost(run.local.state, run.state_floats);
  if (!state.ok()) return state.status();
  const GdnStateReceipt receipt =
      MakeGdnReceipt(run.exchange.rank(), next.owner, next.first, run.local, *state);
  const auto* bytes = reinterpret_cast<const uint8_t*>(&receipt);
  const absl::Status sent = run.engine.SendHost(run.exchange, next.owner, {bytes, sizeof(receipt)});
  if (!sent.ok()) return sent;
  return run.exchange.Send(next.owner, AsBytes(run.local.state, run.state_floats));
}

absl::Status TakeOver(const RankRun& run, size_t segment) {
  const int sender = run.segments[segment - 1].owner;
  GdnStateReceipt receipt;
  auto* bytes = reinterpret_cast<uint8_t*>(&receipt);
  absl::Status got = run.engine.ReceiveHost(run.exchange, sender, {bytes, sizeof(receipt)});
  if (!got.ok()) return got;
  got = run.exchange.Receive(sender, AsBytes(run.local.state, run.state_floats));
  if (!got.ok()) return got;
  const auto state = run.engine.OnHost(run.local.state, run.state_floats);
  if (!state.ok()) return state.status();
  return CheckGdnReceipt(receipt, sender, run.exchange.rank(), run.segments[segment].first,
                         run.local, *state);
}

absl::Status RunRelay(const RankRun& run) {
  const int rank = run.exchange.rank();
  for (size_t i = 0; i < run.own.size(); ++i) {
    const size_t segment = run.own[i];
    if (segment == 0) {
      if (absl::Status s = LoadStartState(run); !s.ok()) return s;
    } else if (run.segments[segment - 1].owner != rank) {
      // Otherwise the state is where the rank's own last segment left it.
      if (absl::Status s = TakeOver(run, segment); !s.ok()) return s;
    }
    if (absl::Status s = RunSegment(run, i, run.local.state); !s.ok()) return s;
    if (segment + 1 < run.segments.size() && run.segments[segment + 1].owner != rank) {
      if (absl::Status s = HandOn(run, segment + 1); !s.ok()) return s;
    }
  }
  return run.exchange.Broadcast(run.segments.back().owner,
                                AsBytes(run.local.state, run.state_floats));
}

// Places of the maps (M, b) of every segment but the last, which no state follows. A rank's place
// holds its own segments in ascending order.
struct MapPlaces {
  std::vector<size_t> slot_of;  // of each segment, within its owner's place
  size_t slots = 0;             // of one rank, the most any rank owns
};

MapPlaces PlaceMaps(const Segments& segments, int cp) {
  MapPlaces places;
  std::vector<size_t> owned(static_cast<size_t>(cp), 0);
  for (size_t s = 0; s + 1 < segments.size(); ++s) {
    places.slot_of.push_back(owned[static_cast<size_t>(segments[s].owner)]++);
  }
  places.slots = *std::max_element(owned.begin(), owned.end());
  return places;
}

// Computes the rank's own maps and gathers all ranks'.
absl::StatusOr<const float*> GatherMaps(const RankRun& run, const MapPlaces& places) {
  const size_t map_floats = MapFloats(run.local);
  const size_t place_floats = places.slots * map_floats;
  const size_t all_floats = place_floats * static_cast<size_t>(run.exchange.size());
  const absl::StatusOr<float*> mine = run.engine.Take(place_floats);
  if (!mine.ok()) return mine.status();
  const absl::StatusOr<float*> all = run.engine.Take(all_floats);
  if (!all.ok()) return all.status();
  if (absl::Status s = run.engine.Clear(*mine, place_floats); !s.ok()) return s;
  for (size_t i = 0; i < run.own.size() && run.own[i] < places.slot_of.size(); ++i) {
    const absl::Status mapped = run.engine.Affine(
        run.local_first[i], run.segments[run.own[i]].count, *mine + i * map_floats);
    if (!mapped.ok()) return mapped;
  }
  const absl::Status gathered =
      run.exchange.AllGather(AsBytes(*mine, place_floats), AsBytes(*all, all_floats));
  if (!gathered.ok()) return gathered;
  return *all;
}

absl::Status RunCanonicalFold(const RankRun& run) {
  const MapPlaces places = PlaceMaps(run.segments, run.exchange.size());
  const absl::StatusOr<const float*> maps = GatherMaps(run, places);
  if (!maps.ok()) return maps.status();
  if (absl::Status s = LoadStartState(run); !s.ok()) return s;
  const absl::StatusOr<float*> spare = run.engine.Take(run.state_floats);
  if (!spare.ok()) return spare.status();
  float* state = run.local.state;
  float* next = *spare;
  // The states in which the rank's own segments start.
  std::vector<float*> starts;
  for (size_t s = 0; s < run.segments.size(); ++s) {
    if (starts.size() < run.own.size() && run.own[starts.size()] == s) {
      const absl::StatusOr<float*> start = run.engine.Take(run.state_floats);
      if (!start.ok()) return start.status();
      starts.push_back(*start);
      if (absl::Status c = run.engine.Copy(*start, state, run.state_floats); !c.ok()) return c;
    }
    if (s + 1 == run.segments.size()) break;
    const size_t place = static_cast<size_t>(run.segments[s].owner) * places.slots;
    const float* map = *maps + (place + places.slot_of[s]) * MapFloats(run.local);
    if (absl::Status a = run.engine.Advance(map, state, next); !a.ok()) return a;
    std::swap(state, next);
  }
  for (size_t i = 0; i < run.own.size(); ++i) {
    if (absl::Status s = RunSegment(run, i, starts[i]); !s.ok()) return s;
    if (run.own[i] + 1 != run.segments.size()) continue;
    const absl::Status kept = run.engine.Copy(run.local.state, starts[i], run.state_floats);
    if (!kept.ok()) return kept;
  }
  return run.exchange.Broadcast(run.segments.back().owner,
                                AsBytes(run.local.state, run.state_floats));
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

absl::StatusOr<Segments> SegmentsOfSplit(GdnCpProgram program, int64_t tokens, int cp) {
  return program == GdnCpProgram::kRelay ? RelaySegments(tokens, cp) : FoldSegments(tokens, cp);
}

absl::StatusOr<GdnCpRoom> GdnCpRoomOf(const GdnCpParams& params, int rank, int cp) {
  const absl::StatusOr<Segments> segments =
      SegmentsOfSplit(params.program, params.document_tokens, cp);
  if (!segments.ok()) return segments.status();
  GdnCpRoom room;
  if (params.program == GdnCpProgram::kRelay) return room;
  const size_t ranks = static_cast<size_t>(cp);
  const size_t own = static_cast<size_t>(
      std::count_if(segments->begin(), segments->end(),
                    [&](const CpSegment& segment) { return segment.owner == rank; }));
  room.floats = PlaceMaps(*segments, cp).slots * (1 + ranks) * MapFloats(params.local) +
                (1 + own) * StateFloats(params.local);
  room.pieces = 3 + own;
  return room;
}

int64_t LongestSegment(const Segments& segments) {
  int64_t longest = 0;
  for (const CpSegment& segment : segments) longest = std::max(longest, segment.count);
  return longest;
}

absl::Status RunGdnCpRank(const GdnCpParams& params, CpExchange& exchange, GdnCpEngine& engine) {
  const absl::StatusOr<Segments> segments =
      SegmentsOfSplit(params.program, params.document_tokens, exchange.size());
  if (!segments.ok()) return segments.status();
  const int rank = exchange.rank();
  const absl::Status status = CheckLocal(params, LocalTokens(*segments, rank), rank);
  if (!status.ok()) return status;
  RankRun run{params.local, *segments, exchange, engine, {}, {}, StateFloats(params.local)};
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
