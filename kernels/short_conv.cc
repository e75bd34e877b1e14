#include "kernels/short_conv.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cp_segments.h"
#include "kernels/float_formats.h"
#include "kernels/fp_environment.h"
#include "kernels/parallel.h"
#include "kernels/short_conv_engine.h"

namespace lockstep::kernels {
namespace {

bool IsType(FloatType type) { return type == FloatType::kF32 || type == FloatType::kBf16; }

size_t RowBytes(const ShortConvParams& p) {
  return static_cast<size_t>(p.channels) * SizeOf(p.type);
}

// Tap-major float32, so that a vector of channels loads each tap at once.
std::vector<float> LoadTaps(const ShortConvParams& p) {
  const size_t channels = static_cast<size_t>(p.channels);
  std::vector<float> taps(kShortConvWidth * channels);
  for (size_t c = 0; c < channels; ++c) {
    for (size_t j = 0; j < kShortConvWidth; ++j) {
      const size_t at = c * kShortConvWidth + j;
      taps[j * channels + c] = p.weight_type == FloatType::kBf16
                                   ? Bf16::Load(static_cast<const uint16_t*>(p.weight)[at])
                                   : static_cast<const float*>(p.weight)[at];
    }
  }
  return taps;
}

using Halo = std::vector<uint8_t>;  // [3, D]

Halo LoadHalo(const ShortConvParams& p) {
  Halo halo(kShortConvHalo * RowBytes(p), 0);
  if (p.halo != nullptr) memcpy(halo.data(), p.halo, halo.size());
  return halo;
}

// The halo after `count` more tokens at `rows`.
Halo NextHalo(const Halo& halo, const uint8_t* rows, int64_t count, size_t row_bytes) {
  const size_t taken = static_cast<size_t>(std::min(count, kShortConvHalo)) * row_bytes;
  Halo next(halo.begin() + static_cast<ptrdiff_t>(taken), halo.end());
  const uint8_t* end = rows + static_cast<size_t>(count) * row_bytes;
  next.insert(next.end(), end - taken, end);
  return next;
}

// Tokens [first, first + count) of the local tensors, after `halo`.
void RunTokens(const ShortConvParams& p, const std::vector<float>& taps, const Halo& halo,
               int64_t first, int64_t count) {
  const size_t row_bytes = RowBytes(p);
  const auto* x = static_cast<const uint8_t*>(p.x) + static_cast<size_t>(first) * row_bytes;
  auto* out = static_cast<uint8_t*>(p.out) + static_cast<size_t>(first) * row_bytes;
  ParallelFor(static_cast<size_t>(count), p.threads, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) {
      const void* rows[kShortConvWidth];
      for (size_t j = 0; j < kShortConvWidth; ++j) {
        // Row t - 3 + j, which may lie in the halo.
        rows[j] = t + j < kShortConvHalo ? halo.data() + (t + j) * row_bytes
                                         : x + (t + j - kShortConvHalo) * row_bytes;
      }
      ShortConvToken(p.type, rows, taps.data(), static_cast<size_t>(p.channels),
                     out + t * row_bytes);
    }
  });
}

void StoreTail(const ShortConvParams& p, const Halo& tail) {
  if (p.tail != nullptr) memcpy(p.tail, tail.data(), tail.size());
}

// The last inputs of every segment, from all ranks: what GDN's split leaves to exchange.
absl::StatusOr<std::vector<Halo>> GatherTails(const ShortConvParams& p,
                                              const std::vector<CpSegment>& segments,
                                              CpExchange& exchange) {
  const size_t row_bytes = RowBytes(p);
  const size_t slot_bytes = kShortConvHalo * row_bytes;
  std::vector<size_t> owned(static_cast<size_t>(exchange.size()), 0);
  std::vector<size_t> slot_of;
  for (const CpSegment& segment : segments) {
    slot_of.push_back(owned[static_cast<size_t>(segment.owner)]++);
  }
  const size_t place_bytes = *std::max_element(owned.begin(), owned.end()) * slot_bytes;
  std::vector<uint8_t> mine(place_bytes, 0);
  std::vector<uint8_t> all(place_bytes * owned.size());
  const auto* rows = static_cast<const uint8_t*>(p.x);
  for (size_t s = 0; s < segments.size(); ++s) {
    if (segments[s].owner != exchange.rank()) continue;
    const Halo tail = NextHalo(Halo(slot_bytes, 0), rows, segments[s].count, row_bytes);
    std::copy(tail.begin(), tail.end(), mine.begin() + slot_of[s] * slot_bytes);
    rows += static_cast<size_t>(segments[s].count) * row_bytes;
  }
  const absl::Status status = exchange.AllGather(mine, absl::MakeSpan(all));
  if (!status.ok()) return status;
  std::vector<Halo> tails;
  for (size_t s = 0; s < segments.size(); ++s) {
    const auto slot = all.begin() + static_cast<size_t>(segments[s].owner) * place_bytes +
                      slot_of[s] * slot_bytes;
    tails.emplace_back(slot, slot + slot_bytes);
  }
  return tails;
}

}  // namespace

absl::Status CheckShortConvShape(const ShortConvParams& p) {
  if (!IsType(p.type) || !IsType(p.weight_type)) {
    return absl::InvalidArgumentError(
        absl::StrCat("short_conv: expected x and weight as BF16 or F32, got ", Name(p.type),
                     " and ", Name(p.weight_type)));
  }
  if (p.channels < 1 || p.weight == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("short_conv: expected x [T,D] and a non-null weight [D,4] with D >= 1, got D=",
                     p.channels));
  }
  return CheckFpEnvironment();
}

absl::Status CheckShortConvTokens(const ShortConvParams& p) {
  if (p.tokens < 1 || p.x == nullptr || p.out == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "short_conv: expected non-null x and out of at least 1 token, got T=", p.tokens));
  }
  return absl::OkStatus();
}

absl::Status ShortConv(const ShortConvParams& p) {
  if (absl::Status status = CheckShortConvShape(p); !status.ok()) return status;
  if (absl::Status status = CheckShortConvTokens(p); !status.ok()) return status;
  const Halo halo = LoadHalo(p);
  RunTokens(p, LoadTaps(p), halo, 0, p.tokens);
  StoreTail(p, NextHalo(halo, static_cast<const uint8_t*>(p.x), p.tokens, RowBytes(p)));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<CpSegment>> CheckShortConvRank(const ShortConvParams& local,
                                                          GdnCpProgram split,
                                                          int64_t document_tokens,
                                                          const CpExchange& exchange) {
  if (absl::Status status = CheckShortConvShape(local); !status.ok()) return status;
  absl::StatusOr<std::vector<CpSegment>> segments =
      SegmentsOfSplit(split, document_tokens, exchange.size());
  if (!segments.ok()) return segments.status();
  const int64_t owned = LocalTokens(*segments, exchange.rank());
  if (local.tokens != owned) {
    return absl::InvalidArgumentError(
        absl::StrCat("short_conv: rank ", exchange.rank(), " owns ", owned,
                     " tokens of the document, got T=", local.tokens));
  }
  if (owned > 0) {
    if (absl::Status status = CheckShortConvTokens(local); !status.ok()) return status;
  }
  return segments;
}

absl::Status ShortConvCpRank(const ShortConvParams& local, GdnCpProgram split,
                             int64_t document_tokens, CpExchange& exchange) {
  const absl::StatusOr<std::vector<CpSegment>> segments =
      CheckShortConvRank(local, split, document_tokens, exchange);
  if (!segments.ok()) return segments.status();
  const absl::StatusOr<std::vector<Halo>> tails = GatherTails(local, *segments, exchange);
  if (!tails.ok()) return tails.status();
  const std::vector<float> taps = LoadTaps(local);
  const size_t row_bytes = RowBytes(local);
  Halo halo = LoadHalo(local);
  int64_t first = 0;
  for (size_t s = 0; s < segments->size(); ++s) {
    const CpSegment& segment = (*segments)[s];
    if (segment.owner == exchange.rank()) {
      RunTokens(local, taps, halo, first, segment.count);
      first += segment.count;
    }
    // A gathered tail ends with the segment's last inputs, all of them when it is short.
    const int64_t known = std::min(segment.count, kShortConvHalo);
    const size_t skipped = static_cast<size_t>(kShortConvHalo - known) * row_bytes;
    halo = NextHalo(halo, (*tails)[s].data() + skipped, known, row_bytes);
  }
  StoreTail(local, halo);
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
